"""v07: a Retry-After that fits the deadline gives one retry, not early; one that does not gives none."""

from __future__ import annotations

import pytest


@pytest.mark.live
def test_v07(overload_case):
    overload_case("v07")
