"""AIMD on the limit of a bulkhead: a little more after each quiet window, much less after a troubled one.

    limit <- min(highest, limit + increase)     a window without trouble, in which the limit was reached
    limit <- max(lowest, limit * decrease)      a window with a call slower than slow_ns or failed

`lowest` is the interactive reserve, `highest` what was tested: the limit never leaves [lowest, highest].
Source: D.-M. Chiu, R. Jain, Analysis of the increase and decrease algorithms for congestion avoidance (1989).
"""

from __future__ import annotations

from stub_service.capacity import config


class Aimd:
    """Windows begin with the first call after the last one ended, so that idle time teaches nothing."""

    __slots__ = ("config", "full", "limit", "trouble", "window_ends_ns")

    def __init__(self, adaptive: config.Adaptive, limit: int) -> None:
        self.config = adaptive
        self.limit = self.bounded(limit)
        self.window_ends_ns = -1
        self.trouble: str | None = None
        self.full = False

    def bounded(self, limit: int) -> int:
        return max(self.config.lowest, min(self.config.highest, limit))

    def observe(self, now_ns: int, latency_ns: int, failed: bool, in_use: int) -> str | None:
        """A call ended; in_use: calls running while it did. Returns why the limit has changed, or None."""
        if self.window_ends_ns < 0:
            self.window_ends_ns = now_ns + self.config.window_ns
        if failed:
            self.trouble = "errors"
        elif latency_ns > self.config.slow_ns and self.trouble is None:
            self.trouble = "latency"
        if in_use >= self.limit:
            self.full = True
        return self._end_window() if now_ns >= self.window_ends_ns else None

    def _end_window(self) -> str | None:
        before, trouble, full = self.limit, self.trouble, self.full
        self.window_ends_ns, self.trouble, self.full = -1, None, False
        if trouble:
            self.limit = self.bounded(int(before * self.config.decrease))
        elif full:
            self.limit = self.bounded(before + self.config.increase)
        return (trouble or "quiet") if self.limit != before else None
