"""The clock of another host, and how well it is known.

An event that the other host stamped with s happened after we sent what caused it (a) and before we heard of it (b),
both on our clock. With o = its clock - ours,

    a <= s - o <= b     so     s - b <= o <= s - a

Each such event narrows the interval of o; the best bound is the intersection of all. Half of its width is the error,
below which no two times of the two hosts may be compared. If the intersection is empty, the clocks have drifted apart,
or one was set: there is no single offset, and the error says by how much the bounds contradict each other.

Source: Cristian, "Probabilistic clock synchronization" (1989); the intersection is Marzullo's (1984), for one source.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Offset:
    """offset_ns: their clock minus ours. error_ns: at most so far from it. consistent: one offset explains all events.
    samples: events."""

    offset_ns: int
    error_ns: int
    consistent: bool
    samples: int


def offset_of(sent_ns: Ints, stamped_ns: Ints, heard_ns: Ints) -> Offset | None:
    """One place an event; None without any. sent and heard: our clock, heard >= sent. stamped: theirs."""
    if not len(stamped_ns):
        return None
    low = int((stamped_ns - heard_ns).max())
    high = int((stamped_ns - sent_ns).min())
    middle = (low + high) // 2
    return Offset(middle, (abs(high - low) + 1) // 2, low <= high, len(stamped_ns))
