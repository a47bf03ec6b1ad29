"""What happened to each step, told by its arrivals: the statuses of its attempts in order, and what they call for.

once            503, 200            twice       503, 503, 200
persistent      503, 503, 503: every attempt failed in a way that a retry might help, and it was retried
not retryable   400: a client's error; a retry cannot help
keyless         a write without an idempotency key whose first attempt failed in a way that a retry might help
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Literal

from harness.checks.capacity_frames import READ, WRITE, Frame, Step, budgets_of, envelope_limit
from harness.ledger.stalls import Stalls

RETRYABLE = frozenset((0, 408, 425, 429, 500, 502, 503, 504))
"""0: no answer in time."""

_MOST_STALLED = 0.25
"""Of a delay: all that comes due in a stall comes when it ends, and looks like a wave that nobody scheduled."""

Windows = dict[str, list[tuple[int, int]]]


def ok(status: object) -> bool:
    return isinstance(status, int) and 200 <= status < 300


def retryable(status: object) -> bool:
    return status in RETRYABLE


@dataclass(frozen=True, slots=True)
class Left:
    """Of a run's envelope at the end; 0 where it is not known. spent: dependencies whose budget is used up."""

    retry_tokens: int
    attempts: int
    spent: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Histories:
    """steps: all that reached a dependency."""

    steps: list[Step]
    once: list[Step]
    twice: list[Step]
    persistent: list[Step]
    not_retryable: list[Step]
    keyless: list[Step]
    left: dict[str, Left]

    def counts(self) -> dict[str, int]:
        return {
            "once": len(self.once),
            "twice": len(self.twice),
            "persistent": len(self.persistent),
            "not_retryable": len(self.not_retryable),
            "keyless": len(self.keyless),
        }

    def repeatable(self, step: Step) -> bool:
        """A read, or a write that carries a key."""
        first = step.arrivals[0]
        return first.get("operation") == READ or bool(first.get("idempotency_key"))

    def has_room(self, step: Step) -> bool:
        """Its run, with all that descend from it, has a token and an attempt left at the end."""
        left = self.left[step.run]
        dependency = str(step.arrivals[0].get("dependency"))
        return left.retry_tokens > 0 and left.attempts > 0 and dependency not in left.spent

    def out_of(self, name: Literal["retry_tokens", "attempts"]) -> list[str]:
        """Runs that end with a failed step that could be repeated, none of `name` left, and some of the other."""
        other = "attempts" if name == "retry_tokens" else "retry_tokens"
        failed = {
            step.run for step in self.steps if retryable(step.arrivals[-1].get("status")) and self.repeatable(step)
        }
        return sorted(
            run for run in failed if getattr(self.left[run], name) == 0 and getattr(self.left[run], other) > 0
        )

    def first_delays(self, stalls: Stalls | None = None) -> dict[str, list[int]]:
        """Dependency -> delays from the end of a first attempt to its retry; those told by a Retry-After left out, and
        (if stalls are given) those that stalls made much longer than they were meant to be."""
        found: dict[str, list[int]] = defaultdict(list)
        for step in self.steps:
            if len(step.arrivals) > 1 and not step.arrivals[0].get("retry_after"):
                begin, end = int(step.arrivals[0]["ended_ns"]), int(step.arrivals[1]["t_ns"])
                if stalls is None or stalls.stalled_ns(begin, end) <= _MOST_STALLED * (end - begin):
                    found[str(step.arrivals[0].get("dependency"))].append(end - begin)
        return dict(found)


def _left(frame: Frame) -> dict[str, Left]:
    """Run -> what is left of its tree's envelope, by what arrived and by what was scheduled."""
    scheduled = Counter(frame.root(str(row.get("run"))) for row in frame.of_kind("retry", "scheduled"))
    found: dict[str, Left] = {}
    for root, tree in frame.trees().items():
        steps = [step for run in tree for step in frame.of_run.get(run, ())]
        arrived = sum(len(step.arrivals) for step in steps)
        retried = max(arrived - sum(bool(step.arrivals) for step in steps), scheduled[root])
        tokens, attempts = (envelope_limit(frame, frame.runs[root], name) for name in ("retry_tokens", "attempts"))
        called = Counter(str(row.get("dependency")) for step in steps for row in step.arrivals)
        spent = frozenset(name for name, n in budgets_of(frame, frame.runs[root]).items() if called[name] >= n)
        left = Left(max(0, (tokens or 0) - retried), max(0, (attempts or 0) - arrived), spent)
        found |= dict.fromkeys(tree, left)
    return found


def histories_of(frame: Frame) -> Histories:
    steps = [step for step in frame.steps.values() if step.arrivals]
    found = Histories(steps, [], [], [], [], [], _left(frame))
    for step in steps:
        statuses = [row.get("status") for row in step.arrivals]
        first = step.arrivals[0]
        if not ok(statuses[0]) and not retryable(statuses[0]):
            found.not_retryable.append(step)
        elif not ok(statuses[0]) and first.get("operation") == WRITE and not first.get("idempotency_key"):
            found.keyless.append(step)
        elif len(statuses) == 2 and retryable(statuses[0]) and ok(statuses[1]):
            found.once.append(step)
        elif len(statuses) == 3 and all(map(retryable, statuses[:2])) and ok(statuses[2]):
            found.twice.append(step)
        elif len(statuses) > 1 and all(map(retryable, statuses)):
            found.persistent.append(step)
    return found


def open_windows(frame: Frame, *until: str) -> Windows:
    """Dependency -> when its circuit was open, by its decisions: from `opened` to one of `until`."""
    found: Windows = defaultdict(list)
    opened: dict[str, int] = {}
    for row in frame.of_kind("circuit"):
        dependency, at = str(row.get("dependency")), int(row["t_ns"])
        if row.get("outcome") == "opened":
            opened.setdefault(dependency, at)
        elif dependency in opened and row.get("outcome") in until:
            found[dependency].append((opened.pop(dependency), at))
    for dependency, at in opened.items():
        found[dependency].append((at, 2**62))
    return dict(found)


def is_open(frame: Frame, windows: Windows, dependency: str, at_ns: int, slack_ns: int) -> bool:
    """Open for longer than the slack already."""
    between = frame.stalls.between
    return any(at_ns < end and between(begin, at_ns) > slack_ns for begin, end in windows.get(dependency, ()))
