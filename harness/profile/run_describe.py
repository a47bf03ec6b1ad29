"""What the capacity layer, its faults and the runs of a profile will do, in plain sentences. Asked by describe.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from harness.profile import cost_describe, tree_describe
from harness.profile.capacity import Capacity, Fault, RunGroup
from harness.profile.errors import printable, short
from harness.profile.model import Profile, Tenant
from harness.profile.run_demand import begun_of, of_group
from harness.profile.units import show_duration, show_rate
from harness.profile.wording import plural

_MOST_GROUPS = 8


def sentences(profile: Profile) -> Iterator[str]:
    """Of the layer first, then what goes wrong, then who runs what; nothing for a profile without any of it."""
    if profile.capacity is not None:
        yield from _of_layer(profile.capacity)
    for fault in profile.faults:
        yield _of_fault(profile, fault)
    groups = [(name, tenant, group) for name, tenant in profile.tenants.items() for group in tenant.runs]
    for name, tenant, group in groups[:_MOST_GROUPS]:
        yield from _of_group(profile, name, tenant, group)
    if len(groups) > _MOST_GROUPS:
        yield f"And {len(groups) - _MOST_GROUPS} more groups of runs."
    yield from _cannot(profile, groups[0][0] if groups else "")


def _of_layer(capacity: Capacity) -> Iterator[str]:
    parts = []
    for name, one in capacity.dependencies.items():
        workers = f"{one.workers} worker{plural(one.workers)} at {show_duration(one.service_time)}"
        parts.append(f"{_name(name)} ({workers}; at most {one.reads.limit} reads and {one.writes.limit} writes)")
    yield f"Capacity layer: at most {capacity.ceiling} calls in flight to {', '.join(parts)}."
    kept = [f"{one.slots} for {name} ({one.floor} never lent)" for name, one in capacity.reserves.items() if one.slots]
    if kept:
        yield f"Of every bulkhead it keeps {', '.join(kept)}."
    yield from cost_describe.of_layer(capacity)
    yield from tree_describe.of_layer(capacity)


def _of_fault(profile: Profile, fault: Fault) -> str:
    what = {
        "slow": f"is {fault.factor:g} times as slow" if fault.factor else "is slow",
        "error": f"answers {fault.status}",
        "retry_after": f"answers {fault.status or 429} with Retry-After: {printable(fault.retry_after or '')}",
        "commit_then_timeout": "commits, and never answers",
        "outage": "is out (503 at once)",
        "hang": "never answers",
    }[fault.kind]
    which = f" to {fault.operation}s" if fault.operation else ""
    often = f", {fault.times} time{plural(fault.times)}" if fault.times else ""
    to_ns = fault.to_ns if fault.to_ns is not None else profile.duration
    return f"{_name(fault.dependency)} {what}{which}{often}, {show_duration(fault.from_ns)} to {show_duration(to_ns)}."


def _of_group(profile: Profile, name: str, tenant: Tenant, group: RunGroup) -> Iterator[str]:
    demand = of_group(profile, group)
    count = begun_of(profile, tenant, group, 0, profile.duration)
    if group.rate is None:
        begin = f"at {show_duration(group.at or 0)}"
    else:
        until = show_duration(group.to_ns if group.to_ns is not None else profile.duration)
        begin = f"at {show_rate(group.rate)} from {show_duration(group.from_ns or 0)} to {until}"
    batches = len(group.batches)
    who = f"{_name(name)}, {_name(group.name)} ({group.traffic_class})"
    does = f"{demand.steps} step{plural(demand.steps)} in {batches} batch{'es' if batches != 1 else ''}"
    yield (
        f"{who}: {count:,} run{plural(count)} {begin}, each with {does}{_also(group)}: "
        f"at most {demand.calls} calls and {demand.attempts} attempts."
    )
    yield from _beyond(profile, who, group)
    yield from tree_describe.of_group(profile, who, group)
    yield from cost_describe.of_group(profile, who, tenant, group)


def _also(group: RunGroup) -> str:
    more = ", all at once" if group.parallel and len(group.batches) > 1 else ""
    agents = sum(count for _, count, _ in group.sub_agents())
    if agents:
        more += f", {agents} sub-agent{plural(agents)} included"
    if group.replans:
        more += f", re-planned for {group.replans.rounds} round{plural(group.replans.rounds)} if not all is served"
    if group.cancel_after is not None:
        more += f", cancelled after {show_duration(group.cancel_after)}"
    if group.crash_after is not None:
        more += f", gone without a word after {show_duration(group.crash_after)}"
    return more


def _beyond(profile: Profile, who: str, group: RunGroup) -> Iterator[str]:
    """What it will be refused, because it asks for more than its envelope holds."""
    defaults = profile.capacity.envelope if profile.capacity else None
    if defaults is None:
        return
    attempts = group.envelope.attempts if group.envelope.attempts is not None else defaults.attempts
    budgets = {**defaults.budgets, **(group.envelope.budgets or {})}
    wanted = of_group(profile, group).steps
    if wanted > attempts:
        yield f"{who}: it asks for {wanted} steps of {attempts} attempts, so some will end budget_exhausted."
    batches = [*group.batches, *(batch for child, count, _ in group.sub_agents() for batch in child.batches * count)]
    asked: Counter[str] = Counter()
    for step in (step for batch in batches for step in batch.steps):
        asked[step.dependency] += step.repeat
    for dependency, count in asked.items():
        if count > budgets.get(dependency, count):
            budget = f"a budget of {budgets[dependency]}"
            yield f"{who}: {count} steps at {_name(dependency)} of {budget}, so some will end budget_exhausted."


def _cannot(profile: Profile, first: str) -> Iterator[str]:
    if first and profile.capacity is None:
        yield (
            f"{_name(first)} has runs, and no `capacity:` is described: they can be run against a target only, "
            "neither simulated nor on the bundled stub."
        )
    elif first and any(not tenant.runs for tenant in profile.tenants.values()):
        yield "Tenants with runs and tenants that call the shared service: it can be run live, not simulated."


def _name(name: str) -> str:
    return short(printable(name), 40)
