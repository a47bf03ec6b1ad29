"""The clock of a worker on another machine, from exchanges of a ping and its answer (harness/measure/clock_offset.py).

Clocks also run at different speeds (tens of millionths, so some ms in a minute or two): measured before a trial and
once more after it, and the change counts as error. Never compare times of two machines more finely than that. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.measure.clock_offset import Offset, offset_of

PINGS = 12
SAME_CLOCK = Offset(0, 0, True, 0)
"""CLOCK_MONOTONIC is one for all processes of a machine."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """sent and back on our clock, answered on the other."""

    sent_ns: int
    answered_ns: int
    back_ns: int


def estimate(exchanges: Sequence[Exchange]) -> Offset | None:
    """None without an exchange."""
    columns = ([e.sent_ns for e in exchanges], [e.answered_ns for e in exchanges], [e.back_ns for e in exchanges])
    sent, answered, back = (np.array(column, dtype=np.int64) for column in columns)
    return offset_of(sent, answered, back)


def over_a_trial(before: Offset, after: Offset | None) -> Offset:
    """The offset that a trial used, with the error that it had at any moment of it: of the estimate at the end, and how
    far away that was. after: None where the worker was gone by then."""
    if after is None or before == SAME_CLOCK:
        return before
    drift_ns = abs(after.offset_ns - before.offset_ns)
    error_ns = max(before.error_ns, drift_ns + after.error_ns)
    return Offset(before.offset_ns, error_ns, before.consistent and after.consistent, before.samples + after.samples)
