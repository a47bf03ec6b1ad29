"""What all checks of a caller look at: the log, its logical calls, and the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.callers.calls import Call, calls_of
from harness.callers.log import Arrival, Log
from harness.callers.parameters import Params
from harness.profile.units import NS_PER_S

SUBJECT = "caller"
LONG_ENOUGH_NS = 5 * NS_PER_S
"""Who has not come back by then has not taken the answer for a short one."""
INFERRED = "inferred from body and time; an Idempotency-Key or Overload-Call header would make it exact"


@dataclass(frozen=True, slots=True)
class Seen:
    log: Log
    params: Params
    calls: tuple[Call, ...]

    @property
    def clear(self) -> list[Call]:
        """Calls of which all attempts are known."""
        return [call for call in self.calls if not call.crowded]

    @property
    def attempts(self) -> list[Arrival]:
        """All attempts of those."""
        return [attempt for call in self.clear for attempt in call.attempts]

    @property
    def repeated(self) -> list[tuple[Call, Arrival, Arrival]]:
        """Each attempt that was followed by another of the same call."""
        return [(call, before, after) for call in self.calls for before, after in call.pairs()]

    @property
    def work(self) -> list[Arrival]:
        """All arrivals but read-backs, also those of calls that are not clear."""
        return [arrival for arrival in self.log.arrivals if arrival.form != "readback"]

    @property
    def crowded(self) -> int:
        """Arrivals that may be first attempts or further ones: nobody can say."""
        return sum(len(call.attempts) for call in self.calls if call.crowded)

    def watched_ns(self, after: Arrival) -> int:
        """How long after this answer a further attempt would have been seen; without end where the caller had ended by
        itself."""
        return (1 << 62) if self.log.caller_ended_ns is not None else self.log.until_ns - after.over_ns

    def given_up(self, call: Call) -> bool:
        """Nothing more came of it in the time in which it would have been seen."""
        return self.watched_ns(call.attempts[-1]) >= LONG_ENOUGH_NS


def seen(log: Log, params: Params) -> Seen:
    return Seen(log, params, tuple(calls_of(log.arrivals, params.within)))


def label(calls: Sequence[Call]) -> str:
    """To be put behind a sentence where what it says rests on inference."""
    return " (inferred)" if any(call.inferred for call in calls) else ""
