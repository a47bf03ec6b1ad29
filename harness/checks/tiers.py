"""How much a target must let us see for a check to be judged, and what to add to the target file where it does not.

    answers        status and timing of each call: every service gives these
    typed          outcomes told apart, and how long calls waited: `answers` of the target file
    decisions      the service's own log, joined by attempt: `evidence.decisions`
    dependencies   what reached the services behind it, for which those of the stub stand in: `evidence.dependencies`

and some checks judge agent runs, which the target file must say how to open (`runs`, or a `driver`). Below its tier a
check is INCONCLUSIVE and says what to add: it is told before the trial (`overload target check`) and after it alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from harness.checks.registry import CHECKS


class Tier(StrEnum):
    ANSWERS = "answers"
    TYPED = "typed"
    DECISIONS = "decisions"
    DEPENDENCIES = "dependencies"
    RUNS = "runs"
    LEFTOVERS = "leftovers"


ADD = {
    Tier.TYPED: "`answers`: how an answer says its outcome (`outcome` rules) and its queue wait (`queue_wait`)",
    Tier.DECISIONS: "`evidence: {decisions: {file: ... or url: ..., fields: {...}}}`, the service's own log of what it "
    "decided, with the header Overload-Attempt in each line",
    Tier.DEPENDENCIES: "`evidence: {dependencies: http://...}`, the address of `overload stub --dependencies-only`, "
    "which the service calls in place of its own dependencies",
    Tier.RUNS: "`runs` (how a run is opened, steps submitted), or a `driver`",
    Tier.LEFTOVERS: "nothing: only the bundled stub tells what it still holds at the end",
}

_ARRIVED = (Tier.RUNS, Tier.DEPENDENCIES)
_BOTH = (Tier.RUNS, Tier.DEPENDENCIES, Tier.DECISIONS)
NEEDS: dict[str, tuple[Tier, ...]] = {
    "fairness.ordinary_unmoved": (),
    "fairness.refusals_structured": (),
    "fairness.limit_held": (),
    "agent.replan_share": (),
    "agent.budget_at_source": (),
    "trial.conserved": (),
    "trial.on_time": (),
    "trial.decisions_complete": _BOTH,
    "trial.leak_free": (Tier.LEFTOVERS,),
    "v01.fan_out_ceiling": _ARRIVED,
    "v02.foreground_first": _ARRIVED,
    "v03.tenant_share": _ARRIVED,
    "v04.bulkheads": _ARRIVED,
    "v05.one_retry_owner": (Tier.DEPENDENCIES,),
    "v06.expiry": _BOTH,
    "v07.retry_after": _BOTH,
    "v08.circuit": _BOTH,
    "v09.ambiguous_write": _BOTH,
    "v10.outage_recovery": _BOTH,
    "capacity.coalesced": _BOTH,
    "capacity.cancelled": _BOTH,
    "capacity.adaptive_bounded": _BOTH,
    "cost.bucket_per_tenant": _ARRIVED,
    "cost.reconciled": _BOTH,
    "cost.unwound": _ARRIVED,
    "cost.size_class": (Tier.RUNS,),
    "cost.corridor": _ARRIVED,
    "tree.bounded": _BOTH,
    "tree.delegate_priced": _BOTH,
    "tree.inward_guard": _BOTH,
    "flood.cheap": _ARRIVED,
    "flood.expensive": _BOTH,
}
"""Check -> what it cannot be judged without, beside answers."""


FINEST_NS, WINDOW_NS = 5_000_000, 50_000_000
"""How finely checks of agent runs, and those of windows, hold instants of the decision log against others."""


@dataclass(frozen=True, slots=True)
class Judgeable:
    """missing: tiers that the target does not give. add: what to add to the target file, a sentence each."""

    check: str
    missing: tuple[Tier, ...]

    @property
    def add(self) -> tuple[str, ...]:
        return tuple(ADD[tier] for tier in self.missing)


def needs(check: str) -> tuple[Tier, ...]:
    """Without an entry, by the words of the check's own `needs`."""
    if check in NEEDS:
        return NEEDS[check]
    words = CHECKS[check].needs if check in CHECKS else ""
    found = [tier for tier, word in ((Tier.DEPENDENCIES, "arrivals"), (Tier.DECISIONS, "decisions")) if word in words]
    return tuple(found)


def judgeable(check: str, given: Collection[Tier]) -> Judgeable:
    return Judgeable(check, tuple(tier for tier in needs(check) if tier not in given))


def tiers_of(manifest: dict[str, Any]) -> frozenset[Tier] | None:
    """What a trial's target gave; None for the stub and the simulator, which give everything."""
    if (manifest.get("target") or {}).get("kind") != "file":
        return None
    return given_by(manifest.get("evidence") or {})


def given_by(evidence: Mapping[str, Any]) -> frozenset[Tier]:
    """evidence: as the manifest keeps it."""
    return frozenset(tier for tier in Tier if evidence.get(tier.value)) | {Tier.ANSWERS}


def clock_problem(check: str, manifest: dict[str, Any]) -> str | None:
    """Why the instants of the service's own log cannot be held against other ones as finely as this check does; None if
    they can, or need not. manifest `clock`: of a log written by another clock (harness/measure/clock_offset.py)."""
    clock = manifest.get("clock")
    wanted = needs(check)
    if not isinstance(clock, dict) or Tier.DECISIONS not in wanted:
        return None
    if not clock.get("samples"):
        return "no line of the service's log names a call of this trial, so its clock is not known"
    finest_ns = FINEST_NS if Tier.RUNS in wanted else WINDOW_NS
    error_ms = float(clock.get("error_ns") or 0) / 1e6
    if not clock.get("consistent", True):
        return f"the service's clock moved by {2 * error_ms:.1f} ms against the callers' during the trial"
    if error_ms * 1e6 > finest_ns:
        return f"the service's clock is known to {error_ms:.1f} ms, and this is judged to {finest_ns / 1e6:.0f} ms"
    return None
