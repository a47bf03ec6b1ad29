"""v09: a write whose answer never came is looked up before anything else, and committed once."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v09(overload_case):
    overload_case("v09")
