"""v06: work whose deadline passes in the queue never starts, and is recorded as expired."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v06(overload_case):
    overload_case("v06")
