"""How long a worker is busy with one call: fixed, log-normal, or from the recorded cost; each may grow with load.

lognormal: exp(N(mu, sigma^2)) with mu = ln(mean) - sigma^2 / 2, so that the mean is the stated one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from stub_service.config import ServiceTimeConfig

ServiceTime = Callable[[float, int, int], int]
"""(cost, running including this call, workers) -> nanoseconds, at least 1."""


def build(config: ServiceTimeConfig, rng: Random) -> ServiceTime:
    """Raises ValueError on a distribution that is not known."""
    base = _base(config, rng)
    slope = config.load_slope
    if not slope:
        return lambda cost, running, workers: base(cost)
    return lambda cost, running, workers: max(1, int(base(cost) * (1 + slope * running / max(1, workers))))


def _base(config: ServiceTimeConfig, rng: Random) -> Callable[[float], int]:
    if config.distribution == "fixed":
        fixed = max(1, config.mean_ns)
        return lambda cost: fixed
    if config.distribution == "lognormal":
        sigma = config.sigma
        mu = math.log(config.mean_ns) - sigma * sigma / 2
        return lambda cost: max(1, int(rng.lognormvariate(mu, sigma)))
    if config.distribution == "recorded_cost":
        base, per_unit, cap = config.base_ns, config.per_unit_ns, config.cap_ns or 2**62
        return lambda cost: max(1, min(cap, base + int(per_unit * max(0.0, cost))))
    raise ValueError(f"unknown service time '{config.distribution}' (known: fixed, lognormal, recorded_cost)")
