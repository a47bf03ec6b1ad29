"""When the harness's own processes stood still, so that what took long only because of that is blamed on nobody.

A live check allows an event some time: 30 ms from a dispatch to its arrival, say. On a busy machine the stub's process
may not run for longer than that, and a healthy service would FAIL. The stub notices when its loop stood still
(`stub_service/lag.py`) and writes it down, and a tolerance is counted in the time in which it did not. On the axis

    lived(t)  =  t - stalled time before t                                                       [ns since the epoch]

an event at `t` is too late after `at` only if lived(t) - lived(at) > tolerance.

How much this can excuse: what fell into stalls that there were, and no more. A defect that breaks its rule all through
a trial breaks it between the stalls as well, and one that delays by far more than its tolerance still does where not
all of the delay was stalled. `trial.on_time` bounds the rest: beyond half of a trial stalled (or of a phase), or long
stalls in more than one percent of it, the trial is INVALID, whatever the checks say.

In virtual time nothing stalls, and a target that tells of no stalls has none: then lived(t) = t.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.ledger.reader import LedgerError, Trial, rows_of

STALLS = "stalls.jsonl"
WAY_NS = 10_000_000
"""From a dispatch to its arrival, and from an answer to its receipt, while nothing stalls: less than this, amply."""
LATE_NS = 2_000_000
"""A call sent later than this after it was due tells that the caller's process stood still."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stalls:
    """Disjoint, in order, none empty. before_ns[i]: stalled time before the i-th."""

    from_ns: Ints
    to_ns: Ints
    before_ns: Ints

    def lived(self, instant_ns: int) -> int:
        """The instant on the axis without stalls; never decreasing."""
        place = int(np.searchsorted(self.from_ns, instant_ns, side="right")) - 1
        if place < 0:
            return instant_ns
        inside = min(instant_ns, int(self.to_ns[place])) - int(self.from_ns[place])
        return instant_ns - int(self.before_ns[place]) - inside

    def lived_all(self, instants_ns: Ints) -> Ints:
        """`lived` of each."""
        if not len(self.from_ns):
            return instants_ns
        place = np.searchsorted(self.from_ns, instants_ns, side="right") - 1
        at = np.maximum(place, 0)
        inside = np.minimum(instants_ns, self.to_ns[at]) - self.from_ns[at]
        return np.asarray(np.where(place < 0, instants_ns, instants_ns - self.before_ns[at] - inside))

    def between(self, from_ns: int, to_ns: int) -> int:
        """How long it was from one instant to another without stalls; negative if the second is the earlier one."""
        return self.lived(to_ns) - self.lived(from_ns)

    def stalled_ns(self, from_ns: int, to_ns: int) -> int:
        """How much of [from, to) was stalled."""
        return to_ns - from_ns - self.between(from_ns, to_ns)

    def earliest(self, instant_ns: int, slack_ns: int) -> int:
        """When an event that was seen at the instant may have been due: when the stall that it fell into began, or one
        that had ended at most `slack_ns` before; else the instant itself."""
        place = int(np.searchsorted(self.from_ns, instant_ns, side="right")) - 1
        if place < 0 or int(self.to_ns[place]) + slack_ns < instant_ns:
            return instant_ns
        return int(self.from_ns[place])

    def latest(self, instant_ns: int, slack_ns: int) -> int:
        """Until when what followed an event may have been held up: the end of the stall that it fell into, or of one
        that began at most `slack_ns` after; else the instant itself."""
        place = int(np.searchsorted(self.from_ns, instant_ns + slack_ns, side="right")) - 1
        return instant_ns if place < 0 else max(instant_ns, int(self.to_ns[place]))

    def longest(self, from_ns: int, to_ns: int, slack_ns: int) -> int:
        """How long something may have lasted for whom it began before `from_ns` and ended after `to_ns`, by the stalls
        next to it."""
        return self.latest(to_ns, slack_ns) - self.earliest(from_ns, slack_ns)


def stalls(spans: Iterable[tuple[int, int]]) -> Stalls:
    """Of spans in any order, which may touch and overlap."""
    merged: list[list[int]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    begins, ends = (np.array([span[side] for span in merged], dtype=np.int64) for side in (0, 1))
    return Stalls(begins, ends, np.concatenate(([0], np.cumsum(ends - begins)[:-1])).astype(np.int64)[: len(begins)])


def stalls_of(trial: Trial) -> Stalls:
    """The stub's, read once a trial. Raises LedgerError."""
    return _kept(trial, "stalls", lambda: stalls(_told(trial)))


def stalls_on_the_way(trial: Trial) -> Stalls:
    """The stub's, and its callers': when a call was due and not sent yet. For what a caller saw by its own clock."""
    return _kept(trial, "stalls_on_the_way", lambda: stalls([*_told(trial), *_unsent(trial)]))


def _kept(trial: Trial, name: str, read: Callable[[], Stalls]) -> Stalls:
    if name not in trial.memo:
        trial.memo[name] = read()
    found: Stalls = trial.memo[name]
    return found


def _told(trial: Trial) -> Iterator[tuple[int, int]]:
    path = trial.folder / STALLS
    for row in rows_of(path):
        span = row.get("from_ns"), row.get("to_ns")
        if not all(type(instant) is int and abs(instant) < 1 << 62 for instant in span):
            raise LedgerError(f"{path}: a row is not one of a stall ({str(row)[:100]}); expected from_ns and to_ns")
        yield int(span[0]), int(span[1])  # type: ignore[arg-type]


def _unsent(trial: Trial) -> Iterator[tuple[int, int]]:
    calls = trial.calls
    late = (calls.sent_ns >= 0) & (calls.sent_ns - calls.start_ns > LATE_NS)
    yield from zip(calls.start_ns[late].tolist(), calls.sent_ns[late].tolist(), strict=True)
