"""A trial over time, in a bounded number of bins whatever its length: what the charts draw.

Pure and vectorised. Offered, re-plan share and queue wait are binned by when a call was due (as phases are); served,
refused and abandoned by when it ended. A rate is per second of the bin. Waiting is the mean number of a tenant's calls
in the service's queue, of those whose wait is known: from when each was sent until it had waited. The last bin may be
shorter or longer than the others, by half at most: a rate from a sliver would be noise. A bin without a value is None.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.ledger import outcomes as o
from harness.ledger.reader import Ints, Trial
from harness.report.frame import Frame
from harness.report.summary import groups_of

MOST_BINS, LEAST_BINS = 240, 40
CALLS_A_BIN = 4
"""Of the middle line: with fewer, a chart of rates is a chart of noise."""
MOST_LINES = 8
_WIDTHS_MS = (10, 20, 50, 100, 200, 500)
_WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 14_400, 43_200)

Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One tenant (or all the others together). wait_ms: mean queue wait of served calls; replan_share: 0 to 1. waiting:
    None in every bin where no call told how long it waited."""

    tenant: str
    ordinary: bool
    offered_per_s: Values
    served_per_s: Values
    refused_per_s: Values
    wait_ms: Values
    replan_share: Values
    abandoned_per_s: Values
    waiting: Values


@dataclass(frozen=True, slots=True)
class Series:
    """starts_s: begin of each bin, seconds since the trial began; they are width_s apart. end_s: end of the last."""

    width_s: float
    starts_s: tuple[float, ...]
    end_s: float
    lines: tuple[Line, ...]


def bin_width_ns(span_ns: int, most: int = MOST_BINS) -> int:
    """The least round width that needs at most `most` bins."""
    for width in (*(ms * 1_000_000 for ms in _WIDTHS_MS), *(s * 1_000_000_000 for s in _WIDTHS_S)):
        if span_ns <= width * most:
            return width
    return -(-span_ns // most)


def series_of(trial: Trial, frame: Frame, keep: Collection[str] = (), most: int = MOST_LINES) -> Series:
    """Lines in the order of the profile, the others together last; at most `most`. keep: who gets one before others."""
    calls = trial.calls
    due, done = np.maximum(calls.due_ns, 0), np.maximum(calls.done_ns, 0)
    span = max(frame.duration_ns, int(due.max()) + 1 if len(due) else 0, int(done.max()) + 1 if len(done) else 0, 1)
    groups = groups_of(trial, keep, most if len(trial.tenants) <= most else most - 1)
    group = groups.of_tenant[calls.tenant]
    width = bin_width_ns(span, _most_bins(np.bincount(group, minlength=groups.count)))
    bins = max(1, (span + width // 2) // width)
    lengths_s = np.full(bins, width / 1e9)
    lengths_s[-1] = (span - (bins - 1) * width) / 1e9
    base = group * bins
    grid = _Grid(base + _bin(due, width, bins), base + _bin(done, width, bins), groups.count, bins)

    sent = ~calls.is_outcome(*o.NEVER_SENT)
    served = calls.is_outcome(o.SERVED)
    wait = calls.queue_wait_ns
    known = served & (wait >= 0)
    wanted = grid.by_due(None)
    offered = grid.by_due(sent) / lengths_s
    served_rate = grid.by_done(served) / lengths_s
    refused = grid.by_done(calls.is_outcome(*o.REFUSED)) / lengths_s
    waits = _ratio(grid.by_due(known, wait), grid.by_due(known)) / 1e6
    replans = _ratio(grid.by_due(calls.round > 0), wanted)
    abandoned = grid.by_done(calls.is_outcome(o.ABANDONED)) / lengths_s
    waiting = _waiting(trial, group, groups.count, np.append(np.arange(bins) * width, span))
    lines = [
        Line(
            name,
            name in groups.ordinary and i < groups.own,
            *(_values(column[i]) for column in (offered, served_rate, refused, waits, replans, abandoned, waiting)),
        )
        for i, name in enumerate(groups.names)
    ]
    starts = tuple(round(i * width / 1e9, 6) for i in range(bins))
    return Series(width / 1e9, starts, round(span / 1e9, 6), tuple(lines))


def _most_bins(calls: Ints) -> int:
    return int(min(MOST_BINS, max(LEAST_BINS, int(np.median(calls)) // CALLS_A_BIN)))


def _bin(at_ns: Ints, width: int, bins: int) -> Ints:
    return np.minimum(at_ns // width, bins - 1)


Matrix = npt.NDArray[np.float64]


class _Grid:
    """Counts and sums per group and bin."""

    def __init__(self, due: Ints, done: Ints, groups: int, bins: int) -> None:
        self._due, self._done, self._shape = due, done, (groups, bins)

    def by_due(self, mask: npt.NDArray[np.bool_] | None, weights: Ints | None = None) -> Matrix:
        return self._counted(self._due, mask, weights)

    def by_done(self, mask: npt.NDArray[np.bool_]) -> Matrix:
        return self._counted(self._done, mask, None)

    def _counted(self, cells: Ints, mask: npt.NDArray[np.bool_] | None, weights: Ints | None) -> Matrix:
        cells = cells if mask is None else cells[mask]
        added = None if weights is None or mask is None else weights[mask]
        size = self._shape[0] * self._shape[1]
        counts: Matrix = np.bincount(cells, added, minlength=size).reshape(self._shape).astype(np.float64)
        return counts


def _waiting(trial: Trial, group: Ints, groups: int, edges: Ints) -> Matrix:
    """Mean number in the queue between neighbours of `edges`, a row a group; NaN for groups that tell nothing."""
    calls = trial.calls
    known = (calls.sent_ns >= 0) & (calls.queue_wait_ns >= 0)
    mean: Matrix = np.full((groups, len(edges) - 1), np.nan)
    for place in range(groups):
        mine = known & (group == place)
        if mine.any():
            begins = calls.sent_ns[mine]
            spent = _before(begins, edges) - _before(begins + calls.queue_wait_ns[mine], edges)
            mean[place] = np.maximum(np.diff(spent) / np.diff(edges), 0)
    return mean


def _before(instants: Ints, edges: Ints) -> Matrix:
    """Of each edge: the sum over earlier instants of how much earlier they are."""
    ordered = np.sort(instants)
    sums = np.concatenate(([0.0], np.cumsum(ordered, dtype=np.float64)))
    earlier = np.searchsorted(ordered, edges)
    total: Matrix = np.asarray(earlier, dtype=np.float64) * np.asarray(edges, dtype=np.float64) - sums[earlier]
    return total


def _ratio(part: Matrix, whole: Matrix) -> Matrix:
    ratio: Matrix = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return ratio


def _values(column: Matrix) -> Values:
    return tuple(None if math.isnan(value) else round(value, 4) for value in column.tolist())
