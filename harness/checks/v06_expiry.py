"""v06.expiry: work whose deadline passes while it waits never starts, is recorded `expired`, and returns what it held.

Judged by what reached the dependency, against the deadline that the run was promised when it opened: a deadline that is
lost on the way (when a step is put back in the queue, say) does not move the judge. A step counts as *waiting at its
deadline* if it had begun to wait (queued, or put back for a retry), and neither started nor ended before the deadline,
nor so soon after it that it had been sent before: time in which the stub stood still does not count for that.

It must never read a served step that was started in time and ended late as a breach: the rule is about starts.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.checks import rules
from harness.checks.context import NS_PER_MS
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule
from harness.checks.rulings import Breach, missing, never
from harness.checks.step_rows import Frame, RunRows, StepRows, at, frame_of
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import EXPIRED, SERVED
from harness.ledger.reader import Trial
from harness.profile.base import DurationNs, Part

NAME = "v06.expiry"
Least = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class Params(Part):
    """late: how long after its deadline a start may be seen (the way to the dependency takes time). least: steps whose
    deadline must have passed while they waited; put_back: how many of those after a first attempt; served_after_wait:
    steps that must have waited and been served, so that refusing everything passes nothing."""

    late: DurationNs = 25 * NS_PER_MS
    least: Least = 10
    put_back: Least = 2
    served_after_wait: Least = 5


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    withheld = missing(NAME, frame.evidence, "decisions", "arrivals")
    if withheld:
        return withheld
    waiting = [step for step in frame.steps.values() if waited_past_deadline(frame, step, params.late)]
    found = [
        _no_late_start(frame, params, len(waiting)),
        *_recorded(frame, params, waiting),
        _given_back(frame, waiting),
        _promised(frame, params),
        *_evidence(frame, params, waiting),
    ]
    passed = (
        f"{len(waiting)} steps were waiting when their deadline passed: none of them started, each was recorded "
        f"`expired`, and what they had reserved was returned."
    )
    return rules.verdict(NAME, found, passed)


def waited_past_deadline(frame: Frame, step: StepRows, late_ns: int) -> bool:
    """Whether it was waiting, for the first time or again, when its deadline passed; what arrived at most `late_ns`
    after it had been started before."""
    deadline_ns = frame.deadline_of(step)
    if deadline_ns is None:
        return False
    waits = [at(d) for d in (*step.decided("step", "queued"), *step.decided("retry", "scheduled"))]
    begun = [wait for wait in waits if wait < deadline_ns]
    if not begun:
        return False
    if any(at(end) < deadline_ns for end in step.ends):
        return False
    between = frame.stalls.between
    return not any(
        max(begun) <= at(attempt) and between(deadline_ns, at(attempt)) <= late_ns for attempt in step.attempts
    )


def late_starts(frame: Frame, late_ns: int) -> list[Breach]:
    """Steps of which an attempt arrived after the deadline. A read-back only asks: it may come later."""
    breaches = []
    between = frame.stalls.between
    for step in frame.steps.values():
        deadline_ns = frame.deadline_of(step)
        if deadline_ns is None:
            continue
        over = [at(attempt) - deadline_ns for attempt in step.attempts if between(deadline_ns, at(attempt)) > late_ns]
        if over:
            breaches.append((step.id, f"{max(over) / NS_PER_MS:.0f} ms after it"))
    return breaches


def _no_late_start(frame: Frame, params: Params, waiting: int) -> Rule:
    add = "more work than its dependency can start before the deadline"
    return never("starts", "started after their deadline", late_starts(frame, params.late), waiting, params.least, add)


def _recorded(frame: Frame, params: Params, waiting: list[StepRows]) -> list[Rule]:
    late = {witness for witness, _ in late_starts(frame, params.late)}
    nowhere = [(step.id, "") for step in waiting if not step.ends]
    otherwise = [
        (step.id, f"as {step.outcome}" + (f", reason {step.end.get('reason')}" if step.end else ""))
        for step in waiting
        if step.ends and step.outcome != EXPIRED and step.id not in late
    ]
    add = "work that is queued, and whose deadline passes there"
    return [
        never("records", "disappeared when their deadline passed", nowhere, len(waiting), params.least, add),
        never("records", "expired and were recorded as something else", otherwise, len(waiting), params.least, add),
    ]


def _given_back(frame: Frame, waiting: list[StepRows]) -> Rule:
    """What a run has used up at its last word, against the attempts that were really made for it.

    used = attempts at its opening - attempts left      must be <= its calls, read-backs included
    """
    concerned = {step.run for step in waiting if step.outcome == EXPIRED}
    breaches: list[Breach] = []
    seen = 0
    for run in (frame.runs[name] for name in sorted(concerned)):
        used = _used(run)
        if used is None or run.children or (run.opened or {}).get("parent_run"):
            continue
        seen += 1
        made = sum(max(len(s.attempts), len(s.decided("step", "admitted"))) + len(s.readbacks) for s in run.steps)
        if used > made:
            breaches.append((run.run, f"{used} attempts are gone and {made} were made"))
    add = "decisions that tell the attempts that a run has left (`remaining_attempts`)"
    return never("reservations", "kept what expired work had reserved", breaches, seen, 1, add, "runs")


def _used(run: RunRows) -> int | None:
    left = [int(d["remaining_attempts"]) for d in run.decisions if d.get("remaining_attempts") is not None]
    opened = run.opened
    if opened is None or opened.get("remaining_attempts") is None or len(left) < 2:
        return None
    return int(opened["remaining_attempts"]) - left[-1]


def _promised(frame: Frame, params: Params) -> Rule:
    """No run may have been given more time than its profile asks for: that would move the deadline for all of it."""
    asked = _asked(frame)
    breaches: list[Breach] = []
    seen = 0
    for run in frame.runs.values():
        opened = run.opened
        most = asked.get(str(opened.get("tenant"))) if opened is not None else None
        if opened is None or run.deadline_ns is None or most is None:
            continue
        seen += 1
        given = run.deadline_ns - at(opened)
        if given > most + params.late:
            breaches.append((run.run, f"{given / NS_PER_MS:.0f} ms instead of at most {most / NS_PER_MS:.0f}"))
    return never("deadlines", "were given more time than they asked for", breaches, seen, 0, "", "runs")


def _asked(frame: Frame) -> dict[str, int]:
    """Tenant -> the longest deadline that any of its runs asks for; only where each of them states one."""
    longest: dict[str, int] = {}
    for name, tenant in frame.profile.tenants.items():
        deadlines = [group.envelope.deadline for group in tenant.runs]
        deadlines += [child.envelope.deadline for group in tenant.runs for child, _, _ in group.sub_agents()]
        stated = [deadline for deadline in deadlines if deadline is not None]
        if stated and len(stated) == len(deadlines):
            longest[name] = max(stated)
    return longest


def _evidence(frame: Frame, params: Params, waiting: list[StepRows]) -> list[Rule]:
    put_back = sum(1 for step in waiting if step.attempts)
    served = sum(1 for step in frame.steps.values() if step.outcome == SERVED and step.queued_ns is not None)
    return [
        rules.enough(
            "evidence", "deadline passed while queued", len(waiting), params.least, "steps",
            "more work behind a full dependency, with a deadline shorter than its wait",
        ),
        rules.enough(
            "evidence", "deadline passed while put back for a retry", put_back, params.put_back, "steps",
            "steps whose first attempt fails just before the dependency fills up",
        ),
        rules.enough(
            "evidence", "waited and were served", served, params.served_after_wait, "steps",
            "queued work with a deadline that it can meet",
        ),
    ]  # fmt: skip


CHECKS[NAME] = Check(
    NAME,
    "work whose deadline passes in the queue never starts and is recorded `expired`",
    "the controller's decisions and the dependencies' arrivals; at least 10 steps that expire while they wait",
    Params,
    judge,
)
