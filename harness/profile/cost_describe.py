"""What is going to happen to the cost of runs, in plain sentences. Asked by run_describe.py."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from harness.profile.capacity import Capacity, Child, RunGroup
from harness.profile.cost import Cost, Hints
from harness.profile.errors import printable, short
from harness.profile.model import Profile, Tenant
from harness.profile.run_demand import span
from harness.profile.units import show_duration

_MOST_BUCKETS = 6


def of_layer(capacity: Capacity) -> Iterator[str]:
    """Buckets, pools, queues and quotas."""
    for name, one in capacity.dependencies.items():
        if one.quota is not None:
            yield f"{_name(name)} serves {_cost(one.quota.rate)} tokens/s to all together (burst {one.quota.burst:,})."
    cost = capacity.cost
    if cost is None:
        return
    buckets = [f"{_name(name)} {_cost(one.rate)}/s up to {one.burst:,}" for name, one in cost.tenants.items()]
    shown = buckets[:_MOST_BUCKETS] + ([f"{len(buckets) - _MOST_BUCKETS} more"] if len(buckets) > _MOST_BUCKETS else [])
    if cost.each is not None:
        shown.append(f"each other tenant {_cost(cost.each.rate)}/s up to {cost.each.burst:,}")
    if shown:
        yield f"Cost: a bucket of tokens for each tenant: {', '.join(shown)}."
    yield from _of_pools(cost)


def _of_pools(cost: Cost) -> Iterator[str]:
    pools = [(cost.pools.sessions, "sessions"), (cost.pools.memory, "memory writes"), (cost.pools.tools, "tool calls")]
    held = [f"{count:,} {name}" for count, name in pools if count is not None]
    if held:
        kept = [f"{queue.kept} for {name}" for name, queue in cost.queues.items() if queue.kept]
        yield f"Runs hold at most {', '.join(held)} at once{f' (kept: {chr(44).join(kept)})' if kept else ''}."
    if cost.lease is not None:
        yield f"A run whose agent asks for nothing for {show_duration(cost.lease)} is ended and settled."


def of_group(profile: Profile, who: str, tenant: Tenant, group: RunGroup) -> Iterator[str]:
    """What a run of the group is forecast at and uses; and whether its bucket bears it."""
    cost = profile.capacity.cost if profile.capacity is not None else None
    if cost is None:
        return
    request_class, hints = group.request_class or "chat_turn", group.forecast or Hints()
    used = used_by(group)
    forecast = cost.basis(request_class, hints)
    yield (
        f"{who}: a {request_class}, forecast at {forecast:,} tokens at first, queued as "
        f"{cost.queue_of(request_class)}; it uses about {round(used):,}."
    )
    for what, asked, limit in (
        ("memory writes", hints.memory, cost.pools.memory),
        ("tool calls", hints.tools, cost.pools.tools),
    ):
        if limit is not None and asked > limit:
            yield f"{who}: it claims {asked} {what} of {limit}, so every run will be refused."
    name = next((name for name, one in profile.tenants.items() if one is tenant), "")
    bucket = cost.bucket_of(name)
    begin, end, rate = span(profile, tenant, group)
    asked_per_s = float(rate) * used
    if bucket is not None and begin < end and asked_per_s > float(bucket.rate):
        yield (
            f"{who}: about {asked_per_s:,.0f} tokens/s of a bucket of {_cost(bucket.rate)}/s, so some runs will be "
            "refused until it is paid."
        )


def used_by(group: RunGroup) -> float:
    """Tokens that one run uses on average, if all of its batches are served once."""

    def of(batches: RunGroup | Child) -> float:
        return sum(
            step.repeat * step.usage.tokens.typical
            for batch in batches.batches
            for step in batch.steps
            if step.usage is not None and step.usage.tokens is not None
        )

    return of(group) + sum(count * of(child) for child, count, _ in group.sub_agents())


def _cost(rate: Fraction) -> str:
    return f"{float(rate):,.10g}"


def _name(name: str) -> str:
    return short(printable(name), 40)
