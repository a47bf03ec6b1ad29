"""From a profile to callers: who calls when, reproducible from the profile's seed alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from harness.profile.model import Profile, Tenant
from harness.workload import pacers
from harness.workload.callers import Arrival, BudgetRule, Caller, ReplanRule

RecordedSource = Callable[[str], Iterator[Arrival]]
"""Opens a tenant's recorded schedule by its file name: arrivals in order of `due_ns`."""


def no_recordings(file: str) -> Iterator[Arrival]:
    """For profiles without recorded tenants."""
    raise ValueError(f"recorded arrivals '{file}' are asked for, but no source of recordings was given")


def arrivals(profile: Profile, name: str, tenant: Tenant, recorded: RecordedSource) -> Iterator[int | Arrival]:
    """The tenant's original calls, in order. A tenant's random stream depends on seed and name only."""
    if tenant.recorded is not None:
        return recorded(tenant.recorded.file)
    assert tenant.rate is not None
    segments = tenant.rate.segments(profile.duration)
    if tenant.pace == "poisson":
        return pacers.poisson(segments, Random(f"{profile.seed}:{name}:arrivals"), tenant.phase)
    return pacers.even(segments, tenant.phase)


def callers(profile: Profile, recorded: RecordedSource = no_recordings) -> list[Caller]:
    """One caller a tenant, in the order of the profile: a tenant's place is its index."""
    return [
        Caller(
            name,
            index,
            arrivals(profile, name, tenant, recorded),
            profile.duration,
            ReplanRule(tenant.replans.calls, tenant.replans.after, tenant.replans.rounds) if tenant.replans else None,
            BudgetRule(tenant.budget.rate, tenant.budget.burst, tenant.budget.scope) if tenant.budget else None,
        )
        for index, (name, tenant) in enumerate(profile.tenants.items())
    ]


def planned(profile: Profile, recorded: RecordedSource = no_recordings) -> dict[str, dict[str, int]]:
    """Original calls that will be due, per tenant and phase ('' for those in no phase): what the audit expects."""
    plan: dict[str, dict[str, int]] = {}
    for name, tenant in profile.tenants.items():
        counts = plan[name] = {}
        for arrival in arrivals(profile, name, tenant, recorded):
            due = arrival.due_ns if isinstance(arrival, Arrival) else arrival
            if due >= profile.duration:
                break
            phase = profile.phases.at(due) or ""
            counts[phase] = counts.get(phase, 0) + 1
    return plan
