"""A small profile for each defect: quick in virtual time, and rich enough to decide."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.conftest import CAP, FAIR, WORKED_EXAMPLE, with_values

EVEN_GAP_NS = 125_000_000  # of the worked example's 8/s

FAIRNESS: dict[str, Any] = {
    "name": "fairness",
    "duration": "75s",
    "phases": {"calm": ["0s", "30s"], "burst": ["30s", "70s"]},
    "patience": "2s",
    "patience_until": "start",
    "service": {"workers": 8, "service_time": "200ms", "admission": FAIR},
    # The runaway comes first: a round that always begins at the first tenant begins at it.
    "tenants": {
        "D": {
            "rate": ["8/s", {"from": "30s", "to": "70s", "rate": "60/s"}],
            "replans": {"calls": 1, "after": "500ms", "rounds": 2},
        },
        "A": {"rate": "8/s"},
        "B": {"rate": "8/s"},
        "C": {"rate": "8/s"},
    },
    "ordinary": ["A", "B", "C"],
}

UNEVEN: dict[str, Any] = with_values(
    FAIRNESS,
    {
        "name": "uneven",
        "service.workers": 24,
        "service.service_time": {"distribution": "lognormal", "mean": "200ms", "sigma": 0.5},
        "tenants.A": {"rate": "16/s", "pace": "poisson"},
        "tenants.B": {"rate": "16/s", "pace": "poisson"},
        "tenants.C": {"rate": "16/s", "pace": "poisson"},
        "tenants.D.rate": ["16/s", {"from": "30s", "to": "70s", "rate": "160/s"}],
        "tenants.D.pace": "poisson",
    },
)
"""Healthy and noisy: Poisson arrivals and log-normal service times, ordinary tenants at about half of a fair share."""

REFUSALS: dict[str, Any] = with_values(
    FAIRNESS,
    {"name": "refusals", "duration": "30s", "phases": {"calm": ["0s", "10s"], "burst": ["10s", "30s"]}}
    | {"tenants.D.rate": ["8/s", {"from": "10s", "to": "30s", "rate": "60/s"}]},
)

BUDGET: dict[str, Any] = with_values(
    WORKED_EXAMPLE,
    {"name": "budget", "tenants.D.budget": {"rate": "10/s", "burst": 10}, "service.workers": 3}
    | {"tenants.D.patience": "300ms"},
)
"""Too few workers for anybody, so that the budgeted agent has failures to re-plan."""

WORKED = {
    "shared_fifo": (WORKED_EXAMPLE, "FAIL"),
    "no_replans": (with_values(WORKED_EXAMPLE, {"tenants.D.replans.calls": 0}), "FAIL"),
    "tenant_cap": (with_values(WORKED_EXAMPLE, {"service.admission": CAP}), "FAIL"),
    "fair_queues": (with_values(WORKED_EXAMPLE, {"service.admission": FAIR}), "PASS"),
    "budget": (with_values(WORKED_EXAMPLE, {"tenants.D.budget": {"rate": "10/s", "burst": 10}}), "PASS"),
    "workers_doubled": (with_values(WORKED_EXAMPLE, {"service.workers": 16}), "PASS"),
}
"""The worked example: rows, and what the fairness check must say of each at any phase."""


def at_phase(document: dict[str, Any], number: int) -> dict[str, Any]:
    """The same with the tenants shifted against the first one within a gap, from a seed; number 0 is as written."""
    if not number:
        return document
    rng = Random(f"{number}:phases")
    phases = {f"tenants.{name}.phase": f"{rng.randrange(EVEN_GAP_NS)}ns" for name in [*document["tenants"]][1:]}
    return with_values(document, {**phases, "seed": number})
