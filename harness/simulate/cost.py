"""From a profile's `capacity.cost`, quotas and steps' usage to the configuration that both drivers share."""

from __future__ import annotations

from collections.abc import Iterator

from harness.profile import cost as described
from harness.profile.capacity import Step
from harness.profile.model import Profile
from harness.profile.run_demand import steps_in
from stub_service.capacity import cost_config as made


def cost_config(cost: described.Cost) -> made.CostConfig:
    """The layer's side: it is told of no usage."""
    buckets = [made.BucketLimits(name, float(one.rate), one.burst) for name, one in cost.tenants.items()]
    if cost.each is not None:
        buckets.append(made.BucketLimits("", float(cost.each.rate), cost.each.burst))
    pools, learning = cost.pools, cost.learning
    return made.CostConfig(
        buckets=tuple(buckets),
        classes=tuple(
            made.ClassForecast(name, cost.queue_of(name), one.tokens, one.per_tool, one.floor)
            for name, one in cost.classes.items()
        ),
        learning=made.Learning(learning.weight, learning.least, learning.most),
        sessions=pools.sessions,
        memory=pools.memory,
        tools=pools.tools,
        queues=tuple(made.SizeQueue(name, one.kept, one.queue) for name, one in cost.queues.items()),
        lease_ns=cost.lease or 0,
    )


def quota(one: described.Quota) -> made.Quota:
    return made.Quota(float(one.rate), one.burst)


def usages(profile: Profile) -> tuple[made.Usage, ...]:
    """What the dependencies know: by tenant, dependency and tool."""
    known = {}
    for tenant, step in _steps(profile):
        if step.usage is not None:
            key = tenant, step.dependency, step.tool
            known[key] = made.Usage(*key, _draw(step.usage.tokens), _draw(step.usage.bytes))
    return tuple(known.values())


def _steps(profile: Profile) -> Iterator[tuple[str, Step]]:
    for name, tenant in profile.tenants.items():
        for group in tenant.runs:
            yield from ((name, step) for step in steps_in(group))


def _draw(draw: described.Draw | None) -> made.Draw | None:
    if draw is None:
        return None
    return made.Draw(draw.distribution, draw.mean or 0.0, draw.sigma or 0.0, draw.most or 0, tuple(draw.values))
