"""What a call uses at a dependency: tokens and bytes, known to nobody before the dependency has done the work.

Drawn from what is configured for its tenant, dependency and tool: a fixed number, log-normal (costs at one endpoint
spread over three orders of magnitude), or recorded values one after another. Each of them has a random stream of its
own, so that one tenant's calls never change what another's use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import cycle
from random import Random

from stub_service.capacity.cost_config import FIXED, LOGNORMAL, RECORDED, Draw, Usage
from stub_service.capacity.ports import READBACK, DependencyAnswer, DependencyCall
from stub_service.dependency.visits import Visit

MOST = 10**15
Drawn = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Used:
    tokens: int | None = None
    bytes: int | None = None


class Usages:
    """known: whether anything uses anything. Raises ValueError on a distribution that is not known."""

    def __init__(self, usages: Iterable[Usage], seed: int) -> None:
        self._of: dict[tuple[str, str, str], tuple[Drawn | None, Drawn | None]] = {}
        for one in usages:
            key = (one.tenant, one.dependency, one.tool)
            name = "\0".join(key)
            self._of[key] = (_drawn(one.tokens, f"{seed}:{name}:tokens"), _drawn(one.bytes, f"{seed}:{name}:bytes"))
        self.known = bool(self._of)

    def of(self, visit: Visit | DependencyCall) -> Used | None:
        """What this call uses; None: nothing is said of its like, or it only looks (a read-back)."""
        found = self._of.get((visit.tenant or "", visit.dependency, visit.tool or "call"))
        if found is None or visit.operation == READBACK:
            return None
        tokens, bytes_ = found
        return Used(tokens() if tokens else None, bytes_() if bytes_ else None)


def told(answer: DependencyAnswer, used: Used) -> DependencyAnswer:
    """The answer with what it used."""
    usage = {name: n for name, n in (("tokens", used.tokens), ("bytes", used.bytes)) if n is not None}
    return DependencyAnswer(answer.status, answer.retry_after, answer.date, {**answer.body, "usage": usage})


def _drawn(draw: Draw | None, name: str) -> Drawn | None:
    if draw is None:
        return None
    if draw.distribution == FIXED:
        fixed = max(0, round(draw.mean))
        return lambda: fixed
    if draw.distribution == LOGNORMAL:
        rng, sigma, most = Random(name), draw.sigma, draw.most or MOST
        mu = math.log(draw.mean) - sigma * sigma / 2
        return lambda: max(1, min(most, round(rng.lognormvariate(mu, sigma))))
    if draw.distribution == RECORDED:
        values = cycle(draw.values)
        return lambda: next(values)
    raise ValueError(f"unknown usage '{draw.distribution}' (known: {FIXED}, {LOGNORMAL}, {RECORDED})")
