"""v03: a tenant that floods its queue takes nothing of the share that is kept for another."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v03(overload_case):
    overload_case("v03")
