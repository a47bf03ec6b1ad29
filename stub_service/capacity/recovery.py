"""After an outage a dependency is not met by its whole backlog at once: starts are spaced, at a rate that ramps.

    rate(t) = from + (to - from) * min(1, t / ramp)        t since the circuit closed; starts per second

A start is due one interval 1/rate after the one before; what was not used is made up for, up to one interval of the
tested capacity (GCRA, as in ITU-T I.371), so that a late timer does not lower the rate. In any span T start at most
T * to + 2 calls. Foreground calls are spaced by the tested capacity `to` alone, and what they use is not there for the
others. It ends when the ramp is over and nothing waits. Until the first outage it does nothing.
"""

from __future__ import annotations

from stub_service.capacity import config

_SECOND_NS = 1_000_000_000


class Ramp:
    """now_ns never goes back."""

    __slots__ = ("background_due_ns", "config", "due_ns", "since_ns")

    def __init__(self, recovery: config.Recovery) -> None:
        self.config = recovery
        self.since_ns = -1
        self.due_ns = -1
        self.background_due_ns = -1

    @property
    def on(self) -> bool:
        return self.since_ns >= 0

    def begin(self, now_ns: int) -> None:
        """The circuit has closed after an outage."""
        self.since_ns = self.due_ns = self.background_due_ns = now_ns

    def rate_per_s(self, now_ns: int) -> float:
        part = min(1.0, (now_ns - self.since_ns) / self.config.ramp_ns) if self.config.ramp_ns > 0 else 1.0
        return self.config.from_per_s + (self.config.to_per_s - self.config.from_per_s) * part

    def interval_ns(self, foreground: bool, now_ns: int) -> int:
        rate = self.config.to_per_s if foreground else self.rate_per_s(now_ns)
        return int(_SECOND_NS / rate) if rate > 0 else 2**62

    def next_ns(self, foreground: bool, now_ns: int) -> int:
        """The earliest instant of the next start; not after now_ns if it may start now."""
        if not self.on:
            return now_ns
        return self.due_ns if foreground else max(self.due_ns, self.background_due_ns)

    def started(self, now_ns: int) -> None:
        """A call of the dependency has started, of whatever class."""
        if not self.on:
            return
        interval_ns = self.interval_ns(True, now_ns)
        made_up_ns = now_ns - interval_ns
        self.due_ns = max(self.due_ns, made_up_ns) + interval_ns
        self.background_due_ns = max(self.background_due_ns, made_up_ns) + self.interval_ns(False, now_ns)

    def settle(self, now_ns: int, waiting: int) -> None:
        """Ends the ramp if it is over and the backlog is gone."""
        if self.on and not waiting and now_ns - self.since_ns >= self.config.ramp_ns:
            self.since_ns = -1
