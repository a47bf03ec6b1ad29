"""How many things were under way at once: intervals in, levels out.

An interval is half open, [from, to). What ends at an instant makes room for what begins at it, so a slot that is handed
over is never counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Peak:
    """most: at once; at_ns: when that was first so (-1: nothing ever was)."""

    most: int
    at_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """A step function: `level[i]` from `at_ns[i]` on, until `at_ns[i + 1]`; 0 before the first."""

    at_ns: Ints
    level: Ints

    def at(self, instants_ns: Ints) -> Ints:
        """The level at each instant, what begins or ends then included."""
        if not len(self.at_ns):
            return np.zeros(len(instants_ns), dtype=np.int64)
        place = np.searchsorted(self.at_ns, instants_ns, side="right") - 1
        return np.where(place >= 0, self.level[np.maximum(place, 0)], 0)

    def peak(self, from_ns: int | None = None, to_ns: int | None = None) -> Peak:
        """The highest level, and when it was reached first; in [from_ns, to_ns) if given."""
        at, level = self.at_ns, self.level
        if from_ns is not None and to_ns is not None:
            inside = (at >= from_ns) & (at < to_ns)
            entering = int(self.at(np.array([from_ns], dtype=np.int64))[0])
            at, level = np.append(from_ns, at[inside]), np.append(entering, level[inside])
        if not len(at) or int(level.max()) <= 0:
            return Peak(0, -1)
        place = int(np.argmax(level))
        return Peak(int(level[place]), int(at[place]))

    def mean(self, from_ns: int, to_ns: int) -> float:
        """Time average over [from_ns, to_ns)."""
        if to_ns <= from_ns:
            return 0.0
        inside = (self.at_ns > from_ns) & (self.at_ns < to_ns)
        edges = np.concatenate(([from_ns], self.at_ns[inside], [to_ns]))
        return float((self.at(edges[:-1]) * np.diff(edges)).sum() / (to_ns - from_ns))


def levels(from_ns: Ints, to_ns: Ints) -> Levels:
    """Of intervals [from, to); one that ends before it begins counts for nothing."""
    kept = to_ns > from_ns
    begins, ends = from_ns[kept], to_ns[kept]
    if not len(begins):
        return Levels(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    at = np.concatenate((begins, ends))
    change = np.concatenate((np.ones(len(begins), dtype=np.int64), -np.ones(len(ends), dtype=np.int64)))
    order = np.argsort(at, kind="stable")
    at, running = at[order], np.cumsum(change[order])
    last = np.append(at[1:] != at[:-1], True)
    return Levels(at[last], running[last])
