"""How late the stub's own loop runs: whether the stub, and not the policy under test, made callers wait.

A tick every 10 ms on an absolute schedule; a sample is how late the tick was handled. Ticks that a stall swallowed are
counted with the lateness each would have had (the correction for coordinated omission of HdrHistogram), or a stall of a
second would be one sample in a hundred. Fixed memory: logarithmic buckets, 16 to a power of two, 6 % wide at most.

Two ticks between which the loop had no time to spare are also told, as a stall [the one, the other): it gave no sign of
life although one was due, or it was at work all the time, or waited for a processor. What takes several turns of the
loop takes long then, and that is no fault of the policy under test.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from stub_service.timers import Timers

TICK_NS = 10_000_000
STALL_NS = 2_000_000
"""A tick later than this tells of a stall."""
SPARE_PART = 5
"""And so does one that finds less than this part of the time since the one before it idle: a fifth."""
_SCHEDSTAT = Path("/proc/self/schedstat")
_SUB_BITS = 4
_SUB = 1 << _SUB_BITS
_BUCKETS = 64 * _SUB
_MOST_MISSED = 10_000


def bucket_of(value: int) -> int:
    """Index of the bucket that holds `value` (0 or more)."""
    if value < _SUB:
        return value
    shift = value.bit_length() - _SUB_BITS - 1
    return min(_BUCKETS - 1, (shift << _SUB_BITS) + (value >> shift))


def top_of(bucket: int) -> int:
    """Largest value of a bucket."""
    if bucket < _SUB:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return (((bucket & (_SUB - 1)) + _SUB + 1) << shift) - 1


class Histogram:
    """Counts of non-negative integers. A quantile is the top of its bucket, never above the largest sample."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.samples = 0
        self.sum = 0
        self.max = 0

    def add(self, value: int) -> None:
        self._counts[bucket_of(value)] += 1
        self.samples += 1
        self.sum += value
        self.max = max(self.max, value)

    def quantile(self, per_mille: int) -> int:
        """The smallest bucket top with at least this share of the samples at or below it; 0 without samples."""
        wanted = -(-self.samples * per_mille // 1000)
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(self.max, top_of(bucket))
        return 0


OnStall = Callable[[int, int], None]
"""(from_ns, to_ns) on CLOCK_MONOTONIC."""


def nobody(from_ns: int, to_ns: int) -> None:
    """Is told of no stall."""


def busy_clock() -> Callable[[], int]:
    """Reads how long the main thread has run or waited for a processor [ns]: by Linux's scheduler (proc(5), schedstat);
    elsewhere only how long this thread has run."""
    try:
        file = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
        os.pread(file, 64, 0).split()[1]
    except (OSError, IndexError):
        return time.thread_time_ns

    def read() -> int:
        ran, waited, _ = os.pread(file, 64, 0).split()
        return int(ran) + int(waited)

    return read


class LoopLag:
    """Ticks on the stub's timers until they are closed. on_stall: told of each stall since the first `restart`; before
    that there is no trial that it could belong to. busy_ns: as of `busy_clock`."""

    def __init__(
        self, timers: Timers, now_ns: int, on_stall: OnStall = nobody, busy_ns: Callable[[], int] = lambda: 0
    ) -> None:
        self._timers = timers
        self._on_stall = on_stall
        self._busy_ns = busy_ns
        self._busy_until_ns = busy_ns()
        self._alive_ns = now_ns
        self._in_trial = False
        self.histogram = Histogram()
        timers.at(now_ns + TICK_NS, 0, self._tick, None)

    def restart(self) -> None:
        """A trial begins."""
        self.histogram = Histogram()
        self._in_trial = True

    def figures(self) -> dict[str, int]:
        """As /healthz shows it."""
        lag = self.histogram
        return {
            "samples": lag.samples,
            "p50_ns": lag.quantile(500),
            "p99_ns": lag.quantile(990),
            "max_ns": lag.max,
        }

    def _tick(self, _: None, due_ns: int, now_ns: int) -> None:
        busy_ns = self._busy_ns()
        since_ns = now_ns - self._alive_ns
        spare_ns = since_ns - (busy_ns - self._busy_until_ns)
        if self._in_trial and (now_ns - due_ns > STALL_NS or spare_ns * SPARE_PART < since_ns):
            self._on_stall(self._alive_ns, now_ns)
        self._alive_ns, self._busy_until_ns = now_ns, busy_ns
        add = self.histogram.add
        for _missed in range(_MOST_MISSED):
            add(now_ns - due_ns)
            due_ns += TICK_NS
            if due_ns > now_ns:
                break
        else:
            due_ns = now_ns + TICK_NS
        self._timers.at(due_ns, 0, self._tick, None)
