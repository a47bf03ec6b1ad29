"""Which worker drives which tenant, when a trial is driven by several processes.

A tenant that re-plans, has a budget, or runs agents keeps state from call to call, and a recorded one is one file: such
a tenant stays whole on one worker. Only an open-loop tenant too big for one worker is split, by call: call k goes to
part k mod n, so that every part has an even share at every instant, and ids and instants are those of one process.

Largest first onto the worker with the least so far (R. L. Graham, "Bounds on multiprocessing timing anomalies", 1969):
at most 4/3 of the best possible. A load is the most calls a second that a tenant can want, re-plans included. Pure: the
same profile and number of workers give the same deal, on every machine. Never drops or doubles a tenant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from harness.profile.demand import worst_case_rate_per_s
from harness.profile.model import Profile, Tenant
from harness.profile.units import NS_PER_S

WHOLE_UP_TO_PER_S = Fraction(500)
"""An open-loop tenant up to this rate stays whole: to split it would even out next to nothing."""

Part = tuple[int, int]
"""(k, n): the calls k, k + n, k + 2 n, ... of a tenant."""

WHOLE: Part = (0, 1)


@dataclass(frozen=True, slots=True)
class Item:
    """A tenant to deal. load: calls a second. splittable: open loop, without state from call to call."""

    tenant: str
    load: Fraction
    splittable: bool


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker drives: tenant -> part of it."""

    parts: Mapping[str, Part] = field(default_factory=dict)
    load: Fraction = Fraction(0)


def items_of(profile: Profile, plan: Mapping[str, Mapping[str, int]]) -> list[Item]:
    """In the order of the profile. plan: calls due, as the manifest has them; it speaks for recorded tenants."""
    return [
        Item(name, _load(profile, name, tenant, sum(plan.get(name, {}).values())), _splittable(tenant))
        for name, tenant in profile.tenants.items()
    ]


def _load(profile: Profile, name: str, tenant: Tenant, planned: int) -> Fraction:
    mean = Fraction(planned * NS_PER_S, profile.duration)
    alone = profile.model_copy(update={"tenants": {name: tenant}})
    return worst_case_rate_per_s(alone, {name: mean} if tenant.recorded else {})


def _splittable(tenant: Tenant) -> bool:
    return tenant.rate is not None and tenant.open_loop


def deal(items: Sequence[Item], workers: int) -> list[Share]:
    """A share a worker. Every tenant is on exactly one, or its parts 0..n-1 each on another."""
    if workers < 1:
        raise ValueError("a trial needs at least one worker")
    even = sum((item.load for item in items), Fraction(0)) / workers
    pieces = [(item.load / n, item.tenant, (k, n)) for item in items for n in [_pieces(item, even, workers)]
              for k in range(n)]  # fmt: skip
    order = {item.tenant: place for place, item in enumerate(items)}
    pieces.sort(key=lambda piece: (-piece[0], order[piece[1]], piece[2]))
    parts: list[dict[str, Part]] = [{} for _ in range(workers)]
    loads = [Fraction(0)] * workers
    for load, tenant, part in pieces:
        free = [place for place in range(workers) if tenant not in parts[place]]
        # Of equal ones the one with fewer tenants: those that want nothing are spread, too.
        place = min(free, key=lambda w: (loads[w], len(parts[w]), w))
        parts[place][tenant] = part
        loads[place] += load
    return [
        Share({tenant: mine[tenant] for tenant in sorted(mine, key=order.__getitem__)}, load)
        for mine, load in zip(parts, loads, strict=True)
    ]


def _pieces(item: Item, even: Fraction, workers: int) -> int:
    if not item.splittable or item.load <= max(even, WHOLE_UP_TO_PER_S):
        return 1
    return min(workers, math.ceil(item.load / max(even, WHOLE_UP_TO_PER_S)))
