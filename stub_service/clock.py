"""The stub's clock: nanoseconds since the epoch, on CLOCK_MONOTONIC, which all processes of a machine share."""

from __future__ import annotations

import time


class Clock:
    """Before an epoch is set, it counts from its making."""

    __slots__ = ("_epoch_ns",)

    def __init__(self) -> None:
        self._epoch_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        """Negative before the epoch."""
        return time.monotonic_ns() - self._epoch_ns

    def since_epoch(self, monotonic_ns: int) -> int:
        """An instant of CLOCK_MONOTONIC as `now_ns` would have told it."""
        return monotonic_ns - self._epoch_ns

    def set_epoch(self, monotonic_ns: int) -> None:
        self._epoch_ns = monotonic_ns
