"""v04: a dependency that becomes slow takes nothing of the others."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v04(overload_case):
    overload_case("v04")
