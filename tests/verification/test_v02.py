"""v02: people who come back are served first, and what was lent of their reserve is taken back."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v02(overload_case):
    overload_case("v02")
