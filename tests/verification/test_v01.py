"""v01: the calls of a run, its re-plans, its retries and its sub-agents stay within its envelope."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v01(overload_case):
    overload_case("v01")
