"""trial.decisions_complete: exactly one event for every decision, and each with every field that applies.

    one end      every step that anybody saw has exactly one terminal decision, however it ended
    none missing every submitted batch was decided once, and as many steps ended as were submitted; what reached a
                 dependency was admitted, a repeat was scheduled, a read-back was recorded
    none twice   no event is written twice; circuit transitions follow one another
    every field  that a reader needs to say, later, what was decided, for whom, on what grounds, and what is left

The callers' rows and the arrivals are the judge of what there must be events for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from harness.checks import capacity_frames, rules
from harness.checks.circuits import CLOSED, HALF_OPEN, OPEN, stages
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule
from harness.checks.rulings import Breach, missing, never
from harness.checks.step_rows import Frame, StepRows, frame_of
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.outcomes import COALESCED, FROM_CALLER, SERVED
from harness.ledger.reader import Trial
from harness.profile.base import Part

NAME = "trial.decisions_complete"
Least = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]

ALWAYS = (
    "run", "tenant", "traffic_class", "dependency", "operation", "tool", "batch", "step", "round", "attempt", "owner",
    "queue_wait_ns", "deadline_ns", "remaining_ns", "remaining_attempts", "remaining_retry_tokens", "limit", "in_use",
    "total_in_use", "queue", "circuit", "request", "user_status",
)  # fmt: skip
"""Of a step's terminal decision. task_class, release and remaining_budget only where the run has them; reason where it
was not served; service_ns where it was called."""
OF_RUN = ("task_class", "release")
_FOLLOWS = {CLOSED: {OPEN}, OPEN: {HALF_OPEN}, HALF_OPEN: {OPEN, CLOSED}}


class Params(Part):
    """least: steps that must have ended. outcomes: different ways in which they must have. retries, read_backs: how
    many there must have been."""

    least: Least = 50
    outcomes: Least = 5
    retries: Least = 5
    read_backs: Least = 1


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    withheld = missing(NAME, frame.evidence, "decisions", "arrivals")
    if withheld:
        return withheld
    steps = list(frame.steps.values())
    found = [
        *_ends(steps, params),
        *_batches(trial, frame),
        *_accounted(steps),
        _twice(frame),
        _transitions(frame),
        *_fields(frame, steps),
        *_evidence(steps, params),
    ]
    outcomes = len({step.outcome for step in steps})
    passed = (
        f"{len(steps)} steps, {outcomes} different outcomes: each has exactly one terminal decision, and all "
        f"{len(frame.evidence.decisions)} decisions have every field."
    )
    return rules.verdict(NAME, found, passed)


def _ends(steps: list[StepRows], params: Params) -> Iterator[Rule]:
    none = [(step.id, f"{len(step.attempts)} attempts reached a dependency") for step in steps if not step.ends]
    twice = [
        (step.id, " and ".join(str(end.get("outcome")) for end in step.ends)) for step in steps if len(step.ends) > 1
    ]
    n = len(steps)
    yield never("steps", "have no terminal decision", none, n, params.least, "more steps")
    yield never("steps", "have more than one terminal decision", twice, n, params.least, "more steps")


def _batches(trial: Trial, frame: Frame) -> Iterator[Rule]:
    """By the callers' own rows: what they submitted and had an answer to must have been decided, once and in whole."""
    callers = capacity_frames.frame_of(trial)
    decided = Counter(
        ".".join(str(row["request"]).split(".")[:2])
        for rows in frame.batches.values()
        for row in rows
        if row.get("request") is not None
    )
    submitted = [
        str(row["call"])
        for row in callers.calls
        if row.get("action") == capacity_frames.SUBMIT
        and row.get("outcome") not in FROM_CALLER
        and 200 <= int(row.get("status", 0)) < 600
        and int(row.get("status", 0)) not in (400, 401, 404)
    ]
    wrong = [(call, f"{decided[call]} decisions") for call in submitted if decided[call] != 1]
    yield never("batches", "were not decided exactly once", wrong, len(submitted), 1, "submitted batches", "batches")
    short: list[Breach] = []
    sized = 0
    for (run, batch), asked in _sizes(callers, frame):
        ended = sum(1 for s in frame.runs[run].steps if s.told("batch") == batch and s.ends)
        sized += 1
        if ended != asked:
            short.append((f"{run}/{batch}", f"{ended} steps have an end, {asked} were submitted"))
    yield never("batches", "have another number of ends than of steps", short, sized, 0, "", "batches")


def _sizes(callers: capacity_frames.Frame, frame: Frame) -> Iterator[tuple[tuple[str, str], int]]:
    """((run, batch), steps submitted), for first submissions whose group is known: batch `b<n>` of the profile."""
    for run, batch in frame.batches:
        view = callers.runs.get(run)
        place = batch[1:] if batch.startswith("b") else ""
        if view is None or view.group is None or view.parent is not None or not place.isdecimal():
            continue
        if int(place) < len(view.group.batches):
            yield (run, batch), capacity_frames.size_of(view.group.batches[int(place)])


def _accounted(steps: list[StepRows]) -> Iterator[Rule]:
    """What reached a dependency has an event of its own."""
    unadmitted, unscheduled, unread = list[Breach](), list[Breach](), list[Breach]()
    attempts = retries = readbacks = 0
    for step in steps:
        admitted, scheduled = len(step.decided("step", "admitted")), len(step.decided("retry", "scheduled"))
        attempts, readbacks = attempts + len(step.attempts), readbacks + len(step.readbacks)
        retries += max(0, len(step.attempts) - 1)
        if len(step.attempts) > admitted:
            unadmitted.append((step.id, f"{len(step.attempts)} attempts, {admitted} admitted"))
        if len(step.attempts) - 1 > scheduled:
            unscheduled.append((step.id, f"{len(step.attempts) - 1} repeats, {scheduled} scheduled"))
        if len(step.readbacks) > len(step.decided("readback")):
            unread.append((step.id, f"{len(step.readbacks)} read-backs, {len(step.decided('readback'))} recorded"))
    yield never("attempts", "reached a dependency and were never admitted", unadmitted, attempts, 1, "more steps")
    yield never("attempts", "were repeated and never scheduled", unscheduled, retries, 0, "")
    yield never("read-backs", "were made and not recorded", unread, readbacks, 0, "")


def _twice(frame: Frame) -> Rule:
    """The same event, of the same attempt, more than once."""
    keys = ("kind", "outcome", "run", "batch", "step", "attempt", "dependency", "operation", "traffic_class", "t_ns")
    seen = Counter(
        tuple(row.get(key) for key in keys) for row in frame.evidence.decisions if row.get("run") is not None
    )
    breaches = [
        (f"{key[2]}/{key[4] or key[3] or ''}".rstrip("/"), f"{n} times {key[0]} {key[1]}")
        for key, n in seen.items()
        if n > 1
    ]
    for run in frame.runs.values():
        ended = [d for d in run.decisions if d.get("kind") == "run" and d.get("outcome") != "opened"]
        opened = [d for d in run.decisions if d.get("kind") == "run" and d.get("outcome") == "opened"]
        if len(ended) > 1 or len(opened) > 1:
            breaches.append((run.run, f"opened {len(opened)} times, ended {len(ended)} times"))
    return never("events", "were written more than once", breaches, len(seen), 1, "more steps", "decisions")


def _transitions(frame: Frame) -> Rule:
    breaches: list[Breach] = []
    n = 0
    for name in frame.circuits:
        for stage in stages(frame, name):
            n += stage.followed_by is not None
            if stage.followed_by is not None and stage.followed_by not in _FOLLOWS[stage.state]:
                breaches.append((name, f"{stage.state}, then {stage.followed_by}"))
    return never("circuits", "took a step that there is not", breaches, n, 0, "", "transitions")


def _fields(frame: Frame, steps: list[StepRows]) -> Iterator[Rule]:
    lacking: list[Breach] = []
    ends = 0
    for step in steps:
        for end in step.ends:
            ends += 1
            absent = [key for key in _required(frame, step, end) if end.get(key) is None]
            if absent:
                lacking.append((step.id, f"{end.get('outcome')} without {', '.join(absent)}"))
    yield never("fields", "have a terminal decision that lacks a field", lacking, ends, 1, "more steps")
    ruled = [
        (f"{row.get('run', '')}", f"{row.get('kind')} {row.get('outcome')} without {', '.join(absent)}")
        for row in frame.evidence.decisions
        if (absent := [key for key in ("kind", "outcome", "t_ns", *_OF_KIND.get(str(row.get("kind")), ())) if
                       row.get(key) is None])
    ]  # fmt: skip
    yield never("fields", "lack a field", ruled, len(frame.evidence.decisions), 1, "more steps", "decisions")


_OF_KIND = {
    "run": ("tenant", "request", "user_status"),
    "batch": ("run", "tenant", "traffic_class", "batch", "round", "request", "remaining_attempts"),
    "retry": ("run", "step", "dependency", "attempt", "owner", "reason", "remaining_retry_tokens", "remaining_ns"),
    "readback": ("run", "step", "dependency", "attempt"),
    "circuit": ("dependency", "circuit"),
    "lend": ("traffic_class", "limit", "in_use"),
    "limit": ("dependency", "operation", "limit"),
    "late": ("run", "step"),
    "cost": ("tenant", "request_class", "size_class", "forecast"),
}


def _required(frame: Frame, step: StepRows, end: Row) -> Iterator[str]:
    opened = frame.runs[step.run].opened or {}
    yield from ALWAYS
    yield from (key for key in OF_RUN if opened.get(key) is not None)
    if end.get("outcome") not in (SERVED, COALESCED):
        yield "reason"
    if end.get("outcome") == COALESCED:
        yield "coalesced_with"
    if step.attempts:
        yield "service_ns"


def _evidence(steps: list[StepRows], params: Params) -> Iterator[Rule]:
    outcomes = {step.outcome for step in steps if step.outcome is not None}
    retries = sum(len(step.decided("retry", "scheduled")) for step in steps)
    looked = sum(len(step.readbacks) for step in steps)
    for what, n, least, unit, add in (
        ("different outcomes", len(outcomes), params.outcomes, "outcomes", "steps that end in more ways"),
        ("scheduled", retries, params.retries, "retries", "failures that are retried"),
        ("made", looked, params.read_backs, "read-backs", "a write whose answer never comes"),
    ):
        yield rules.enough("evidence", what, n, least, unit, add)


CHECKS[NAME] = Check(
    NAME,
    "every decision has exactly one event, with every field",
    "decisions and arrivals of steps that end in many ways, retries and read-backs among them",
    Params,
    judge,
)
