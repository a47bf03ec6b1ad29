"""The states of each dependency's circuit over time, and what its own calls would have had it do: for v08 and v10.

Two accounts of the same thing, to be held against each other: what the controller says (its transitions), and what the
dependency saw (the arrivals, by the rule of the profile's circuit). A controller that never opens has no transitions;
its arrivals show that it should have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from harness.checks.step_rows import Frame, answered, at, ended_ns
from harness.ledger.evidence import Row
from harness.ledger.stalls import WAY_NS, Stalls
from harness.profile.capacity import Circuit, Dependency

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"
NEVER_NS = 2**62
_STATE_AFTER = {"opened": OPEN, "half_open": HALF_OPEN, "closed": CLOSED}
_GAVE_UP = 0.9
"""Of a bulkhead's timeout: a call without an answer that ended before was left by its caller, and proves nothing."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A state in [from_ns, to_ns). after, followed_by: the states before and after it; None: there is none."""

    dependency: str
    state: str
    from_ns: int
    to_ns: int
    after: str | None
    followed_by: str | None

    def holds(self, instant_ns: int) -> bool:
        return self.from_ns <= instant_ns < self.to_ns


@dataclass(frozen=True, slots=True)
class Arrived:
    """One call as its dependency saw it. bad: failed or slow; neither if it proves nothing. held_up: it was neither,
    but with the time that the stub stood still around it, the controller may have found it slow, or given it up."""

    row: Row
    t_ns: int
    ended_ns: int
    failed: bool
    slow: bool
    held_up: bool = False

    @property
    def bad(self) -> bool:
        return self.failed or self.slow


def stages(frame: Frame, dependency: str) -> list[Stage]:
    """Gapless from the beginning; closed until told otherwise."""
    found: list[Stage] = []
    state, since, before = CLOSED, 0, None
    for row in frame.circuits.get(dependency, []):
        following = _STATE_AFTER.get(str(row.get("outcome")))
        if following is None:
            continue
        found.append(Stage(dependency, state, since, at(row), before, following))
        state, since, before = following, at(row), state
    return [*found, Stage(dependency, state, since, NEVER_NS, before, None)]


def arrived(frame: Frame, dependency: str) -> list[Arrived]:
    """All calls that reached it and that say something of its health, in order of arrival."""
    asked = dependency_of(frame, dependency)
    found = []
    for row in frame.evidence.arrivals:
        if row.get("dependency") != dependency:
            continue
        status, took = answered(row), ended_ns(row) - at(row)
        timeout = (asked.writes if row.get("operation") == "write" else asked.reads).timeout if asked else 0
        failed = status >= 500 or (status == 0 and took >= _GAVE_UP * timeout)
        slow = status != 0 and asked is not None and took > asked.circuit.slow
        held_up = asked is not None and _held_up(frame, row, asked.circuit.slow)
        found.append(Arrived(row, at(row), ended_ns(row), failed, slow, held_up))
    return found


def _held_up(frame: Frame, row: Row, slow_ns: int) -> bool:
    """Whether stalls just before it arrived, and just after it ended, made it slow for its caller."""
    begin, end = at(row), ended_ns(row)
    return end - begin <= slow_ns < frame.stalls.longest(begin, end, WAY_NS)


def dependency_of(frame: Frame, name: str) -> Dependency | None:
    return frame.profile.capacity.dependencies.get(name) if frame.profile.capacity else None


def should_have_opened(
    calls: list[Arrived], rule: Circuit, closed: Stage, patience_ns: int, stalls: Stalls
) -> int | None:
    """Since when the rule would have had it open while it stayed closed, for longer than `patience_ns`; None: never.

    Over the calls that began and ended in the closed stage, by when they ended.
    """
    due_ns: int | None = None
    for now_ns, met in _over_window(calls, rule, closed):
        due_ns = (due_ns if due_ns is not None else now_ns) if met else None
        if due_ns is not None and stalls.between(due_ns, now_ns) > patience_ns:
            return due_ns
    return None


def _over_window(calls: list[Arrived], rule: Circuit, closed: Stage) -> Iterator[tuple[int, bool]]:
    """(instant, whether the rule to open is met) at the end of each call."""
    mine = [call for call in calls if closed.from_ns <= call.t_ns and call.ended_ns < closed.to_ns]
    window: deque[Arrived] = deque()
    for call in sorted(mine, key=lambda call: call.ended_ns):
        window.append(call)
        while window[0].ended_ns <= call.ended_ns - rule.window:
            window.popleft()
        n = len(window)
        failed, slow = sum(c.failed for c in window), sum(c.slow for c in window)
        yield call.ended_ns, n >= rule.min_calls and (failed >= rule.failure_share * n or slow >= rule.slow_share * n)


def cause(calls: list[Arrived], rule: Circuit, opened_ns: int, patience_ns: int) -> str | None:
    """What its own calls had done when it opened: `failures`, `latency`, or None if nothing like it.

    Half of what the rule asks is enough: how a window is kept is the controller's affair.
    """
    since = opened_ns - rule.window - patience_ns
    window = [call for call in calls if since <= call.ended_ns <= opened_ns + patience_ns // 10]
    failed, slow = sum(call.failed for call in window), sum(call.slow or call.held_up for call in window)
    if failed and failed >= rule.failure_share * rule.min_calls / 2:
        return "failures"
    return "latency" if slow and slow >= rule.slow_share * rule.min_calls / 2 else None
