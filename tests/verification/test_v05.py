"""v05: a failure is retried by one owner, as often as tokens allow, and never where it cannot help."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v05(overload_case):
    overload_case("v05")
