"""How waits and latencies are distributed, calm against burst: whole curves, since percentiles hide their shape.

Pure and vectorised. Two empirical distributions a tenant and phase:

- answered within: the share of the calls sent (without those still open) that were served within a time from when they
  were due. A call that was refused, abandoned or failed never is, so the curve ends at the served share;
- queued at most: of served calls whose wait was told, and of abandoned calls at their whole patience (as `wait+` of the
  table): the share that waited at most so long.

A curve is a step function, kept at no more than MOST_POINTS places that are even on a logarithmic scale, because waits
spread over orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.ledger import outcomes as o
from harness.ledger.reader import Ints, Trial
from harness.report.frame import Frame
from harness.report.series import MOST_LINES
from harness.report.summary import WHOLE, groups_of

MOST_POINTS = 96
LEAST_MS, MOST_MS = 0.01, 1e8
COMPARED = ("calm", "burst")
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Curve:
    """phase: of COMPARED, or WHOLE. samples: calls that it is made of. shares: at each place of the scale, 0 to 1."""

    phase: str
    samples: int
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """One tenant (or all the others together). A phase without a sample has no curve."""

    tenant: str
    ordinary: bool
    answered: tuple[Curve, ...]
    queued: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Distributions:
    """scale_ms: the places at which every curve is given, the same for all, so that tenants can be compared."""

    scale_ms: tuple[float, ...]
    spreads: tuple[Spread, ...]


def distributions_of(trial: Trial, frame: Frame, keep: Collection[str] = (), most: int = MOST_LINES) -> Distributions:
    """Of the tenants that have a chart over time, in that order."""
    calls = trial.calls
    groups = groups_of(trial, keep, most if len(trial.tenants) <= most else most - 1)
    group = groups.of_tenant[calls.tenant]
    served, abandoned = calls.is_outcome(o.SERVED), calls.is_outcome(o.ABANDONED)
    sent = ~calls.is_outcome(*o.NEVER_SENT, o.OPEN)
    latency = calls.done_ns - calls.due_ns
    told = served & (calls.queue_wait_ns >= 0)
    patience = frame.patience_ns[calls.tenant]
    waited = told | (abandoned & (patience >= 0) & bool(np.any(calls.queue_wait_ns >= 0)))
    wait = np.where(told, calls.queue_wait_ns, patience)
    scale = _scale(np.concatenate((latency[served], wait[waited])))
    phases = _phases(frame, calls.due_ns)
    spreads = []
    for place, name in enumerate(groups.names):
        answered, queued = [], []
        for phase, of_phase in phases:
            mine = of_phase & (group == place)
            ended = int(np.count_nonzero(mine & sent))
            answered += _curve(phase, latency[mine & served], ended, scale)
            queued += _curve(phase, wait[mine & waited], int(np.count_nonzero(mine & waited)), scale)
        ordinary = name in groups.ordinary and place < groups.own
        spreads.append(Spread(name, ordinary, tuple(answered), tuple(queued)))
    return Distributions(tuple(scale.tolist()), tuple(spreads))


def _phases(frame: Frame, due_ns: Ints) -> list[tuple[str, Mask]]:
    found = [
        (name, (due_ns >= from_ns) & (due_ns < to_ns)) for name, from_ns, to_ns in frame.phases if name in COMPARED
    ]
    return found or [(WHOLE, np.ones(len(due_ns), dtype=np.bool_))]


def _scale(values_ns: Ints) -> npt.NDArray[np.float64]:
    """From the power of ten below the least positive value to the one above the greatest."""
    positive = values_ns[values_ns > 0] / 1e6
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 10.0)
    first = np.floor(np.log10(min(max(low, LEAST_MS), MOST_MS / 10)))
    last = max(first + 1, np.ceil(np.log10(min(max(high, LEAST_MS), MOST_MS))))
    scale: npt.NDArray[np.float64] = np.logspace(first, last, MOST_POINTS)
    return scale


def _curve(phase: str, values_ns: Ints, whole: int, scale_ms: npt.NDArray[np.float64]) -> list[Curve]:
    if not whole:
        return []
    # A value of exactly 200 ms is at 200 ms, whatever the float of the place says.
    places = np.rint(scale_ms * 1e6).astype(np.int64)
    shares = np.searchsorted(np.sort(values_ns), places, side="right") / whole
    return [Curve(phase, whole, tuple(np.round(shares, 5).tolist()))]
