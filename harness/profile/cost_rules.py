"""Rules of `capacity.cost`, of quotas and of what steps use: contradictions, each with its path. Asked by run_rules.py.

A run that asks for more than there is is no contradiction: cost_describe.py says so beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # the model imports this module
    from harness.profile.capacity import Capacity, Child, RunGroup
    from harness.profile.cost import Bucket, Cost
    from harness.profile.model import Tenant

Path: TypeAlias = tuple[str | int, ...]
Contradiction: TypeAlias = tuple[Path, str]
AT: Path = ("capacity", "cost")


def contradictions(capacity: Capacity | None, tenants: Mapping[str, Tenant | None]) -> Iterator[Contradiction]:
    """capacity: None if none is described, or none that is sound."""
    if capacity is not None:
        for name, dependency in capacity.dependencies.items():
            if dependency.quota is not None and dependency.quota.rate == 0:
                yield ("capacity", "dependencies", name, "quota", "rate"), "it must be above zero"
        if capacity.cost is not None:
            yield from _of_cost(capacity.cost, tenants)
    for name, tenant in tenants.items():
        if tenant is not None and tenant.runs:
            yield from _of_tenant(("tenants", name), tenant, capacity)


def _of_cost(cost: Cost, tenants: Mapping[str, Any]) -> Iterator[Contradiction]:
    for name in cost.tenants:
        if tenants and name not in tenants:
            yield (*AT, "tenants", name), "there is no such tenant"
    buckets: list[tuple[Path, str, Bucket]] = [
        ((*AT, "tenants", name), f"the bucket of '{name}'", one) for name, one in cost.tenants.items()
    ]
    if cost.each is not None:
        buckets.append(((*AT, "each"), "each tenant's bucket", cost.each))
    for at, _, bucket in buckets:
        if bucket.rate == 0:
            yield (*at, "rate"), "it must be above zero: a debt would never be paid"
    for name, one in cost.classes.items():
        too_small = next(((who, bucket) for _, who, bucket in buckets if one.floor > bucket.burst), None)
        if too_small is not None:
            rule = (
                f"it is above what {too_small[0]} ever holds (burst: {too_small[1].burst}), so not even the first "
                "request would be admitted; lower it, or raise the burst"
            )
            yield (*AT, "classes", name, "floor"), rule
    if cost.lease == 0:
        yield (*AT, "lease"), "it must be above zero; leave it out to wait for the deadline"
    yield from _of_queues(cost)


def _of_queues(cost: Cost) -> Iterator[Contradiction]:
    kept = {name: queue.kept for name, queue in cost.queues.items()}
    sessions = cost.pools.sessions
    if sessions is None:
        for name, count in kept.items():
            if count:
                yield (*AT, "queues", name, "kept"), "without a limit of sessions (pools.sessions) nothing can be kept"
        return
    if sum(kept.values()) > sessions:
        yield (*AT, "pools", "sessions"), f"the queues keep {sum(kept.values())} of them; raise it, or keep fewer"
        return
    for size in ("short", "standard", "batch"):
        others = sum(count for name, count in kept.items() if name != size)
        if others >= sessions and any(cost.queue_of(name) == size for name in ("chat_turn", "tool_heavy")):
            rule = f"all {sessions} sessions are kept for other sizes, so no {size} run would ever begin; raise it"
            yield (*AT, "pools", "sessions"), rule


def _of_tenant(at: Path, tenant: Tenant, capacity: Capacity | None) -> Iterator[Contradiction]:
    used: dict[tuple[str, str], Any] = {}
    counted = capacity is None or capacity.cost is not None
    for i, group in enumerate(tenant.runs):
        here: Path = (*at, "runs", i)
        for field in ("request_class", "forecast"):
            if not counted and getattr(group, field) is not None:
                yield (*here, field), "nobody counts what runs cost here: describe capacity.cost, or leave it out"
        if group.crash_after == 0:
            yield (*here, "crash_after"), "it must be above zero"
        for step_at, step in _steps(here, group):
            if step.usage is None:
                continue
            key = step.dependency, step.tool
            if used.setdefault(key, step.usage) != step.usage:
                rule = f"the tool '{step.tool}' of this tenant uses something else elsewhere; give it another name"
                yield (*step_at, "usage"), rule


def children_of(at: Path, parent: RunGroup | Child) -> Iterator[tuple[Path, Child]]:
    """Every sub-agent below it, with its path."""
    for i, child in enumerate(parent.children):
        here: Path = (*at, "children", i)
        yield here, child
        yield from children_of(here, child)


def _steps(at: Path, group: RunGroup) -> Iterator[tuple[Path, Any]]:
    places: list[tuple[Path, Any]] = [((*at, "batches", i), batch) for i, batch in enumerate(group.batches)]
    if group.replans is not None:
        places.append(((*at, "replans", "batch"), group.replans.batch))
    for here, child in children_of(at, group):
        places += [((*here, "batches", j), batch) for j, batch in enumerate(child.batches)]
    for place, batch in places:
        yield from (((*place, "steps", i), step) for i, step in enumerate(batch.steps))
