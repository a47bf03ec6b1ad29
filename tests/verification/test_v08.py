"""v08: an open circuit lets nothing through, and closes by its rule with few probes."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v08(overload_case):
    overload_case("v08")
