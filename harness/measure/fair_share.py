"""Max-min fair shares by water-filling, and Jain's index.

Max-min: nobody can get more without somebody who has less (relative to weight) getting less. The level L solves

    sum_i min(demand_i, weight_i * L) = min(capacity, sum_i demand_i)

Source: Bertsekas and Gallager, Data Networks, 6.5.2. Jain's index (Jain, Chiu, Hawe 1984) is reported only and must
never gate: with 50 tenants it stays at .98 while one of them gets nothing.
"""

from __future__ import annotations

from collections.abc import Sequence


def max_min(demands: Sequence[float], capacity: float, weights: Sequence[float] | None = None) -> list[float]:
    """What each gets: never more than its demand, in all min(capacity, total demand). Weights > 0, 1 if left out."""
    weight = list(weights) if weights is not None else [1.0] * len(demands)
    share = [0.0] * len(demands)
    left, heavy = capacity, sum(weight)
    # Those who want least for their weight are filled first; the level only rises.
    for i in sorted(range(len(demands)), key=lambda i: demands[i] / weight[i]):
        share[i] = min(demands[i], max(0.0, left) * weight[i] / heavy)
        left -= share[i]
        heavy = max(heavy - weight[i], weight[i] * 1e-12)
    return share


def jain(values: Sequence[float]) -> float | None:
    """(sum x)^2 / (n * sum x^2): 1 if all get the same, 1/n if one gets all. None without anything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else None
