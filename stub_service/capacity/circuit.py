"""A circuit breaker of one dependency: while it is open, refusals are cheap and nothing reaches the dependency.

    closed     -> open       in the last window_ns, from min_calls calls on: share of failures >= failure_share,
                             or share of calls slower than slow_ns >= slow_share
    open       -> half_open  open_ns later
    half_open  -> closed     close_after probes in a row succeeded
    half_open  -> open       one probe failed (failed, or slower than slow_ns)

In half_open at most `probes` probes are out, in total until they settle. A probe holds a lease: after lease_ns its
place is free again even if it never comes back (a success that comes later proves nothing; a failure still counts).
Results of calls that began in an earlier state are not counted: stragglers of an outage neither close nor reopen it.
Source: M. Nygard, Release It!, chapter 5. Never lets all waiters through when the cool-down ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from stub_service.capacity import config

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"

OnChange = Callable[[int, str, str | None], None]
"""(now_ns, `opened`, `half_open` or `closed`, reason)."""


class Pass(NamedTuple):
    """A call that the circuit let through. probe: 0, or which probe of this half-open state it is."""

    generation: int
    probe: int


class Circuit:
    __slots__ = (
        "_calls",
        "_failures",
        "_lease_ends",
        "_next_probe",
        "_slow",
        "config",
        "generation",
        "on_change",
        "open_until_ns",
        "state",
        "successes",
    )

    def __init__(self, circuit: config.Circuit, on_change: OnChange) -> None:
        self.config = circuit
        self.on_change = on_change
        self.state = CLOSED
        self.generation = 0
        self.open_until_ns = -1
        self.successes = 0
        self._calls: deque[tuple[int, bool, bool]] = deque()
        self._failures = 0
        self._slow = 0
        self._lease_ends: dict[int, int] = {}
        self._next_probe = 1

    def refresh(self, now_ns: int) -> None:
        """What time alone changes: the cool-down ends, leases end."""
        if self.state == OPEN and now_ns >= self.open_until_ns:
            self._become(HALF_OPEN, now_ns, "cooled_down")
        if self._lease_ends:
            for probe in [p for p, end_ns in self._lease_ends.items() if now_ns >= end_ns]:
                del self._lease_ends[probe]

    def admits(self, now_ns: int) -> bool:
        """Whether one more call may start now."""
        if self.state == CLOSED:
            return True
        self.refresh(now_ns)
        return self.state == HALF_OPEN and self.probes_out < self.config.probes

    @property
    def probes_out(self) -> int:
        return len(self._lease_ends)

    def begin(self, now_ns: int) -> Pass:
        """A call that was admitted starts."""
        if self.state != HALF_OPEN:
            return Pass(self.generation, 0)
        probe = self._next_probe
        self._next_probe += 1
        self._lease_ends[probe] = now_ns + self.config.lease_ns
        return Pass(self.generation, probe)

    def end(self, passed: Pass, now_ns: int, latency_ns: int, failed: bool | None) -> None:
        """A call that began has ended. failed: None if it says nothing about the dependency (cancelled, throttled)."""
        in_time = passed.probe == 0 or self._lease_ends.pop(passed.probe, None) is not None
        if failed is None or passed.generation != self.generation:
            return
        slow = latency_ns > self.config.slow_ns
        if passed.probe:
            self._probed(now_ns, failed, slow, in_time)
        elif self.state == CLOSED:
            self._count(now_ns, failed, slow)

    def next_ns(self) -> int | None:
        """When time alone lets a call through that is not let through now."""
        if self.state == OPEN:
            return self.open_until_ns
        return min(self._lease_ends.values(), default=None) if self.state == HALF_OPEN else None

    def _probed(self, now_ns: int, failed: bool, slow: bool, in_time: bool) -> None:
        if failed or slow:
            self._become(OPEN, now_ns, "probe_failed" if failed else "probe_slow")
            return
        if in_time:
            self.successes += 1
            if self.successes >= self.config.close_after:
                self._become(CLOSED, now_ns, "recovered")

    def _count(self, now_ns: int, failed: bool, slow: bool) -> None:
        calls = self._calls
        calls.append((now_ns, failed, slow))
        self._failures += failed
        self._slow += slow
        oldest = now_ns - self.config.window_ns
        while calls[0][0] <= oldest:
            _, was_failed, was_slow = calls.popleft()
            self._failures -= was_failed
            self._slow -= was_slow
        if not (failed or slow) or len(calls) < self.config.min_calls:
            return
        if self._failures and self._failures >= self.config.failure_share * len(calls):
            self._become(OPEN, now_ns, "failures")
        elif self._slow and self._slow >= self.config.slow_share * len(calls):
            self._become(OPEN, now_ns, "latency")

    def _become(self, state: str, now_ns: int, reason: str) -> None:
        self.state = state
        self.generation += 1
        self.successes = 0
        self._lease_ends.clear()
        self._calls.clear()
        self._failures = self._slow = 0
        if state == OPEN:
            self.open_until_ns = now_ns + self.config.open_ns
        self.on_change(now_ns, "opened" if state == OPEN else state, reason)
