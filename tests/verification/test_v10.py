"""v10: after an outage stale work is shed, the rest drains in order, and the circuit stays closed."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v10(overload_case):
    overload_case("v10")
