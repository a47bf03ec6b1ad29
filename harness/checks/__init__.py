"""Checks: pure functions from a trial's ledger to a verdict. Importing this package registers all of them."""

from __future__ import annotations

from harness.checks import (  # noqa: F401 - each registers itself
    adaptive_bounded,
    adaptive_throttle,
    budget_at_source,
    budget_per_tenant,
    cancelled,
    coalesced,
    conserved,
    cost_bucket_per_tenant,
    cost_corridor,
    cost_reconciled,
    cost_size_class,
    cost_unwound,
    decisions_complete,
    flood_cheap,
    flood_expensive,
    identity,
    leak_free,
    limit_held,
    max_min,
    on_time,
    ordinary_unmoved,
    recovers,
    refusal_is_a_result,
    refusals_structured,
    replan_share,
    retry_budget,
    rounds_capped,
    shadow,
    shuffle,
    tree_bounded,
    tree_guard,
    tree_priced,
    v01_fan_out,
    v02_foreground,
    v03_tenant_share,
    v04_bulkheads,
    v05_retry_owner,
    v06_expiry,
    v07_retry_after,
    v08_circuit,
    v09_ambiguous_write,
    v10_recovery,
)
from harness.checks.judge import UnknownCheck, judge_all
from harness.checks.registry import CHECKS
from harness.profile.base import Part

PARAMETERS: dict[str, type[Part]] = {name: check.params for name, check in CHECKS.items()}
"""What each check may be told, for the loader of profiles."""

__all__ = ["CHECKS", "PARAMETERS", "UnknownCheck", "judge_all"]
