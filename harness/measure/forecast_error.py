"""How far a forecast of cost was from what calls turned out to cost.

    bias          (sum of forecasts - sum of costs) / sum of costs            over 0: too much was held back
    error         sum of |forecast - cost| / sum of costs                     weighted absolute error
    mape          mean of |forecast - cost| / cost, of calls that cost anything
    ratio         forecast / cost: its 5 %, 50 % and 95 % quantiles, of calls that cost anything
    under         share of calls that cost more than was forecast
    uncovered     sum of what they cost more / sum of costs: spent beyond what admission had counted

Costs at one endpoint spread over orders of magnitude: bias and `uncovered` are what a budget feels, the quantiles say
how little a single forecast tells. All None where nothing cost anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ForecastError:
    """Shares as fractions. mean_*: in the unit of cost."""

    calls: int
    mean_cost: float | None
    mean_forecast: float | None
    bias: float | None
    error: float | None
    mape: float | None
    ratio_p05: float | None
    ratio_p50: float | None
    ratio_p95: float | None
    under: float | None
    uncovered: float | None


def forecast_error(forecast: Floats, cost: Floats) -> ForecastError:
    """One place a call, in the same order."""
    n, total = len(cost), float(cost.sum())
    if not n or not total:
        return ForecastError(n, None, None, None, None, None, None, None, None, None, None)
    off = forecast - cost
    paid = cost > 0
    ratio = np.sort(forecast[paid] / cost[paid])
    p05, p50, p95 = (float(ratio[min(len(ratio) - 1, max(0, int(np.ceil(p * len(ratio))) - 1))])
                     for p in (0.05, 0.5, 0.95))  # fmt: skip
    return ForecastError(
        n,
        total / n,
        float(forecast.mean()),
        float(off.sum()) / total,
        float(np.abs(off).sum()) / total,
        float((np.abs(off[paid]) / cost[paid]).mean()),
        p05,
        p50,
        p95,
        float((off < 0).mean()),
        float(-off[off < 0].sum()) / total,
    )


def bias_over_time(forecast: Floats, cost: Floats, parts: int) -> tuple[float | None, ...]:
    """The bias of each of `parts` runs of neighbouring calls; None where nothing cost anything."""
    edges = np.linspace(0, len(cost), parts + 1).astype(int)
    found: list[float | None] = []
    for begin, end in pairwise(edges):
        total = float(cost[begin:end].sum())
        found.append((float(forecast[begin:end].sum()) - total) / total if total else None)
    return tuple(found)
