"""Who was served what while there was not enough for all, and what each should have been served: an oracle that knows
demands, weights and the total served, and nothing of how the service decides.

Time is cut into windows. One counts if somebody waited through nearly all of it (a backlog): only then does it matter
who is next. In a window, of tenant i:

    demand_i    calls that waited when it began, or were sent before its last fifth (what comes later may start in the
                next window and blame nobody), and at least what was served
    served_i    calls that started
    share_i     max-min of the demands, by weight, over what was served in all (fair_share.py)
    short_i     share_i - served_i

So shares add up to what was really served: the oracle judges who got it. Whether anything was left lying is another
question (`idle_while_waiting`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.measure.fair_share import max_min
from harness.measure.intervals import Interval, t_of
from harness.measure.occupancy import Levels, levels

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
GRACE = 5
"""The last 1/GRACE of a window: what is sent there is demand of the next."""


@dataclass(frozen=True, slots=True, eq=False)
class Stays:
    """Of each call that was sent: when it came, when it left the queue, and whether it then started. A call that was
    refused left as it came."""

    tenant: Ints
    came_ns: Ints
    left_ns: Ints
    started: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Rows: windows with a backlog, in order of time; columns: tenants. from_ns: where each begins."""

    window_ns: int
    from_ns: Ints
    demand: Floats
    served: Floats
    share: Floats

    def __len__(self) -> int:
        return len(self.from_ns)


def shares(
    stays: Stays, tenants: int, weights: Sequence[float], window_ns: int, end_ns: int, backlog: float = 0.95
) -> Shares:
    """backlog: least part of a window in which somebody must have waited."""
    waiting = levels(stays.came_ns, stays.left_ns)
    windows = end_ns // window_ns
    kept = np.array([_busy(waiting, at, at + window_ns) >= backlog for at in range(0, windows * window_ns, window_ns)])
    begins = np.flatnonzero(kept) if windows else np.zeros(0, dtype=np.int64)
    came, left = stays.came_ns // window_ns, stays.left_ns // window_ns
    in_time = stays.came_ns % window_ns < window_ns - window_ns // GRACE
    served = _counted(stays.tenant, left, stays.started, tenants, windows)[begins]
    sent = _counted(stays.tenant, came, in_time, tenants, windows)[begins]
    # It waited at each beginning of a window after it came and until it left.
    waits = left > came
    changes = _counted(stays.tenant, came + 1, waits, tenants, windows)
    changes -= _counted(stays.tenant, left + 1, waits, tenants, windows)
    demand = np.maximum(np.cumsum(changes, axis=0)[begins] + sent, served)
    fair = [max_min(row.tolist(), float(got.sum()), weights) for row, got in zip(demand, served, strict=True)]
    return Shares(window_ns, begins * window_ns, demand, served, np.array(fair).reshape(demand.shape))


def _counted(tenant: Ints, window: Ints, of: npt.NDArray[np.bool_], tenants: int, windows: int) -> Floats:
    """How many, [windows, tenants]."""
    inside = of & (window < windows)
    place = window[inside] * tenants + tenant[inside]
    return np.bincount(place, minlength=windows * tenants).reshape(windows, tenants).astype(np.float64)


def _busy(waiting: Levels, from_ns: int, to_ns: int) -> float:
    """Part of the time in which anybody waits."""
    inside = waiting.at_ns[(waiting.at_ns > from_ns) & (waiting.at_ns < to_ns)]
    edges = np.concatenate(([from_ns], inside, [to_ns]))
    return float(((waiting.at(edges[:-1]) > 0) * np.diff(edges)).sum() / (to_ns - from_ns))


def shortfall(found: Shares, tenant: int, confidence: float) -> Interval | None:
    """What a tenant lacked of its share over all windows, as a part of it; windows are the independent samples. None
    with fewer than three of them, or without any share."""
    short, share = found.share[:, tenant] - found.served[:, tenant], found.share[:, tenant]
    n = len(found)
    if n < 3 or share.sum() <= 0:
        return None
    part = float(short.sum() / share.sum())
    residual = short - part * share
    # A single call more or less is always possible.
    spread = math.sqrt(float(residual @ residual) * n / (n - 1) + 1) / float(share.sum())
    reach = t_of(confidence, n - 1) * spread
    return Interval(part, part - reach, part + reach)


def worst_window(found: Shares, tenant: int, least: float) -> tuple[float, int] | None:
    """(largest part of a window's share that was lacking, which window), of windows whose share is at least `least`
    calls; None without any."""
    share = found.share[:, tenant]
    may = np.flatnonzero(share >= least)
    if not len(may):
        return None
    part = 1 - found.served[may, tenant] / share[may]
    place = int(np.argmax(part))
    return float(part[place]), int(may[place])


@dataclass(frozen=True, slots=True)
class Idle:
    """part: of the workers' time while anybody waited that was spent idle although a call could have had it. rows: of
    the evidence while anybody waited. waiting_ns: how long that was. worst_ns: since when it was idle longest."""

    part: float
    rows: int
    waiting_ns: int
    worst_ns: int


def idle_while_waiting(decisions: Iterable[dict[str, Any]]) -> Idle | None:
    """decisions: the service's own, in order, each with the state just after it. None if they do not tell it."""
    at: int | None = None
    waiting = running = workers = rows = waited = idle = could = longest = worst = 0
    for row in decisions:
        if "part" in row or "workers" not in row:
            continue
        now = int(row["t_ns"])
        if at is not None and waiting > 0 and now > at:
            lost = min(waiting, max(0, workers - running)) * (now - at)
            idle, could, waited, rows = idle + lost, could + workers * (now - at), waited + now - at, rows + 1
            if lost > longest:
                longest, worst = lost, at
        at, waiting, running, workers = now, int(row["waiting"]), int(row["running"]), int(row["workers"])
    return Idle(idle / could, rows, waited, worst) if could else None
