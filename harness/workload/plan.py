"""From a profile to callers: who calls when, reproducible from the profile's seed alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice, takewhile
from random import Random

from harness.profile.model import Profile, Tenant
from harness.workload import pacers
from harness.workload.agents import Agent
from harness.workload.budgets import BudgetRule
from harness.workload.callers import Arrival, Caller, ReplanRule
from harness.workload.dealing import WHOLE, Part
from harness.workload.loops import LoopGuard
from harness.workload.replans import PlanRule
from harness.workload.retries import RetryRule
from harness.workload.runs import RunCaller, begins_of
from harness.workload.source import CallSource

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


def callers(
    profile: Profile, recorded: RecordedSource = no_recordings, parts: Mapping[str, Part] | None = None
) -> list[CallSource]:
    """One caller a tenant, in the order of the profile: a tenant's place is its index. parts: these tenants only, and
    of each that part (dealing.py); None: all of all."""
    return [
        run_caller(profile, name, index)
        if tenant.runs
        else service_caller(profile, name, index, recorded, WHOLE if parts is None else parts[name])
        for index, (name, tenant) in enumerate(profile.tenants.items())
        if parts is None or name in parts
    ]


def service_caller(
    profile: Profile, name: str, index: int, recorded: RecordedSource = no_recordings, part: Part = WHOLE
) -> Caller:
    """Of a tenant that calls a shared service."""
    tenant = profile.tenants[name]
    if tenant.is_agent:
        return agent(profile, name, index, recorded)
    return Caller(
        name,
        index,
        arrivals(profile, name, tenant, recorded),
        profile.duration,
        ReplanRule(tenant.replans.calls, tenant.replans.after, tenant.replans.rounds) if tenant.replans else None,
        BudgetRule(tenant.budget[0].rate, tenant.budget[0].burst, tenant.budget[0].scope) if tenant.budget else None,
        part,
    )


def agent(profile: Profile, name: str, index: int, recorded: RecordedSource = no_recordings) -> Agent:
    """Of a tenant with more than arrivals, plain re-plans and one budget."""
    tenant = profile.tenants[name]
    again, retries, throttle, loop = tenant.replans, tenant.retries, tenant.throttle, tenant.loop
    return Agent(
        name,
        index,
        arrivals(profile, name, tenant, recorded),
        profile.duration,
        Random(f"{profile.seed}:{name}:agent"),
        PlanRule(again.calls, again.after, again.rounds, tuple(again.tools), again.order, tenant.on_refusal)
        if again and again.calls
        else PlanRule(0, 0, 0, refusals=tenant.on_refusal),
        [BudgetRule(budget.rate, budget.burst, budget.scope) for budget in tenant.budget],
        LoopGuard(loop.iterations, loop.branch_tokens) if loop else None,
        (throttle.adaptive.k, throttle.adaptive.window) if throttle else None,
        RetryRule(retries.attempts, retries.delay, frozenset(retries.on), retries.budget, retries.window)
        if retries
        else None,
    )


def run_caller(profile: Profile, name: str, index: int) -> RunCaller:
    """Of a tenant whose agents run behind a capacity layer."""
    tenant = profile.tenants[name]
    rng = _runs_rng(profile, name)
    return RunCaller(name, index, tenant.runs, profile.duration, rng, tenant.pace, tenant.phase)


def planned(profile: Profile, recorded: RecordedSource = no_recordings) -> dict[str, dict[str, int]]:
    """Original calls that will be due, per tenant and phase ('' for those in no phase): what the audit expects. Of a
    tenant with runs: the calls that open its runs, without those of sub-agents."""
    plan: dict[str, dict[str, int]] = {}
    for name, tenant in profile.tenants.items():
        counts = plan[name] = {}
        for due in _original_dues(profile, name, tenant, recorded):
            phase = profile.phases.at(due) or ""
            counts[phase] = counts.get(phase, 0) + 1
    return plan


def due_by(profile: Profile, parts: Mapping[str, Part], recorded: RecordedSource, by_ns: int) -> int:
    """Original calls of these tenants, or parts of them, that are due before `by_ns`."""
    count = 0
    for name, (first, step) in parts.items():
        dues = islice(_original_dues(profile, name, profile.tenants[name], recorded), first, None, step)
        # Runs of different groups are not in order of due.
        count += sum(due < by_ns for due in (dues if profile.tenants[name].runs else takewhile(by_ns.__gt__, dues)))
    return count


def _original_dues(profile: Profile, name: str, tenant: Tenant, recorded: RecordedSource) -> Iterator[int]:
    if tenant.runs:
        rng = _runs_rng(profile, name)
        for begins in begins_of(tenant.runs, profile.duration, rng, tenant.pace, tenant.phase):
            yield from begins
        return
    for arrival in arrivals(profile, name, tenant, recorded):
        due = arrival.due_ns if isinstance(arrival, Arrival) else arrival
        if due >= profile.duration:
            return
        yield due


def _runs_rng(profile: Profile, name: str) -> Random:
    return Random(f"{profile.seed}:{name}:runs")
