"""Quantiles, and from how many samples they may gate.

The p-quantile of n sorted samples is the one of rank ceil(p * n): a value that was measured, never an interpolation.
p95 gates from 300 samples and p99 from 1,000 (about ten or more samples beyond it); with fewer it is reported only.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

GATES_FROM = {0.5: 30, 0.95: 300, 0.99: 1000}


def quantile(values: npt.NDArray[np.int64], p: float) -> int | None:
    """Nearest rank; None without samples."""
    n = len(values)
    if not n:
        return None
    rank = min(n - 1, max(0, math.ceil(p * n) - 1))
    return int(np.partition(values, rank)[rank])


def may_gate(p: float, samples: int) -> bool:
    """Whether a bound on this quantile may decide a verdict. Unlisted quantiles need ten samples beyond them."""
    return samples >= GATES_FROM.get(p, math.ceil(10 / (1 - p)) if p < 1 else math.inf)
