"""Deliberately wrong parts, and their healthy twins. Importing this package registers all of them."""

from __future__ import annotations

from stub_service.defects import (
    capacity_cancelled,
    capacity_coalesced,
    capacity_trial,
    capacity_v01,
    capacity_v02,
    capacity_v03,
    capacity_v04,
    capacity_v05,
    capacity_v06,
    capacity_v07,
    capacity_v08,
    capacity_v09,
    capacity_v10,
    cost,
    fairness,
    fairness_identity,
    fairness_max_min,
    fairness_shuffle,
    refusals,
)

__all__ = [
    "capacity_cancelled",
    "capacity_coalesced",
    "capacity_trial",
    "capacity_v01",
    "capacity_v02",
    "capacity_v03",
    "capacity_v04",
    "capacity_v05",
    "capacity_v06",
    "capacity_v07",
    "capacity_v08",
    "capacity_v09",
    "capacity_v10",
    "cost",
    "fairness",
    "fairness_identity",
    "fairness_max_min",
    "fairness_shuffle",
    "refusals",
]
