"""v10.outage_recovery: after a long outage the backlog drains in order and in bounds, and the dependency stays up.

From an opening of a dependency's circuit to its closing is an outage; from the closing until the last step that was
waiting then has started is the drain. A trial may have several, each judged until the next fault of its dependency
begins. Then

    stale work   never starts, and ends `expired`
    order        of those that wait, the higher class starts first, then the earlier deadline
    interactive  keeps its reserve: it does not wait behind the backlog
    queue        never more waiting than the bulkhead's bound
    start rate   over any span T of the drain at most T * tested capacity + burst       [starts]
    second wave  what comes after the closing does not open the circuit again

Source: M. Brooker, Avoiding insurmountable queue backlogs (Amazon Builders' Library). Starts are arrivals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Annotated

from pydantic import Field

from harness.checks import rules
from harness.checks.circuits import CLOSED, NEVER_NS, OPEN, Stage, dependency_of, stages
from harness.checks.context import NS_PER_MS
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule
from harness.checks.rulings import Breach, missing, never
from harness.checks.step_rows import CLASSES, Frame, StepRows, at, frame_of, most_at_once
from harness.checks.v06_expiry import late_starts, waited_past_deadline
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import EXPIRED, SERVED, THROTTLED
from harness.ledger.reader import Trial
from harness.profile.base import DurationNs, Part
from harness.profile.units import NS_PER_S

NAME = "v10.outage_recovery"
Least = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Share = Annotated[float, Field(ge=0, le=1)]


class Params(Part):
    """late: as in v06.expiry. interactive_wait: longest that an interactive step may wait once the circuit has closed.
    out_of_order: share of the drain's starts that may overtake a step of a higher class or an earlier deadline.
    burst: starts beyond the tested capacity in any span. margin: two events closer than this have no order.
    stale, drained, ordered, pressed, interactive, second_wave: evidence, in steps: expired in the queue; waiting at the
    closing and started; those a first-in-first-out drain would have started too late; turned away by a full queue;
    interactive ones in the drain; others that came after the closing.
    """

    late: DurationNs = 25 * NS_PER_MS
    interactive_wait: DurationNs = 200 * NS_PER_MS
    out_of_order: Share = 0.05
    burst: Least = 8
    margin: DurationNs = 20 * NS_PER_MS
    stale: Least = 10
    drained: Least = 20
    ordered: Least = 10
    pressed: Least = 5
    interactive: Least = 5
    second_wave: Least = 20


@dataclass(frozen=True, slots=True)
class Wait:
    """A step that waited in [from_ns, to_ns) for its first start. started: whether it then did. key: its place."""

    step: StepRows
    from_ns: int
    to_ns: int
    started: bool
    key: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Outage:
    """Of one dependency. until_ns: when its next fault begins. steps: those first heard of before that (and after the
    outage before); waits: those of them that waited; backlog: those at the closing; drained_ns: when the last of it
    started."""

    dependency: str
    opened_ns: int
    closed_ns: int
    until_ns: int
    stages: list[Stage]
    steps: list[StepRows]
    waits: list[Wait]
    backlog: list[Wait]
    drained_ns: int


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    withheld = missing(NAME, frame.evidence, "decisions", "arrivals")
    if withheld:
        return withheld
    outages, lost = list(_outages(frame)), _never_recovered(frame, params)
    if not outages and lost:
        return rules.verdict(NAME, lost, "")
    if not outages:
        what = "no circuit opened and closed again: there was no outage to recover from"
        return rules.withheld(NAME, what, "a fault (`outage` or `hang`) that lasts, ends, and is followed by more load")
    # Of several outages those judge that left a backlog to drain.
    outages = [outage for outage in outages if _drained(outage) >= params.drained] or outages[:1]
    found = [*lost, *(rule for outage in outages for rule in _judge_one(frame, outage, params))]
    drained = sum(map(_drained, outages))
    stale = sum(len(_stale(frame, outage, params.late)) for outage in outages)
    passed = (
        f"{stale} stale steps expired and none of them started; {drained} others drained by class and deadline, under "
        f"the tested capacity; interactive work was not held up, and the second wave did not open the circuit again."
    )
    return rules.verdict(NAME, found, passed)


def _outages(frame: Frame) -> Iterator[Outage]:
    """Of each dependency: from an opening of its circuit to the closing after it. An opening after the first is another
    outage if a fault of the profile has begun since."""
    for name in frame.circuits:
        of_circuit, all_steps = stages(frame, name), frame.of_dependency(name)
        faults = sorted(fault.from_ns for fault in frame.profile.faults if fault.dependency == name)
        since_ns, until_ns = 0, -1
        for opened in (s for s in of_circuit if s.state == OPEN and s.after == CLOSED):
            closed = next((s for s in of_circuit if s.state == CLOSED and s.from_ns > opened.from_ns), None)
            if closed is None or opened.from_ns < until_ns:
                continue
            until_ns = next((begin for begin in faults if begin >= closed.from_ns), NEVER_NS)
            steps = [step for step in all_steps if since_ns <= step.first_ns < until_ns]
            since_ns = until_ns
            waits = [wait for step in steps for wait in _wait(frame, step)]
            backlog = [w for w in waits if w.from_ns < closed.from_ns < w.to_ns]
            drained_ns = max((w.to_ns for w in backlog if w.started), default=closed.from_ns)
            yield Outage(name, opened.from_ns, closed.from_ns, until_ns, of_circuit, steps, waits, backlog, drained_ns)


def _drained(outage: Outage) -> int:
    return sum(1 for wait in outage.backlog if wait.started)


def _never_recovered(frame: Frame, params: Params) -> list[Rule]:
    """Broken for a circuit that stayed open though every fault of its dependency was over, and work went on coming."""
    found = []
    for name in frame.circuits:
        of_circuit = stages(frame, name)
        ends = [fault.to_ns for fault in frame.profile.faults if fault.dependency == name]
        over_ns = max((end for end in ends if end is not None), default=0)
        if not ends or None in ends or of_circuit[-1].state == CLOSED:
            continue
        cool_down = dependency_of(frame, name)
        since_ns = over_ns + 2 * (cool_down.circuit.open_for if cool_down else 0)
        late = [(s.id, f"ended {s.outcome}") for s in frame.of_dependency(name) if s.first_ns > since_ns]
        refused = [breach for breach in late if breach[1] != f"ended {SERVED}"]
        if len(refused) >= params.second_wave:
            what = "met a circuit that never closed again after the outage"
            found.append(never(name, what, refused, len(late), params.second_wave, ""))
    return found


def _wait(frame: Frame, step: StepRows) -> Iterator[Wait]:
    """From the first that was heard of it to its first attempt, or its end without one."""
    if step.queued_ns is None:
        return
    start = at(step.attempts[0]) if step.attempts else None
    end = at(step.end) if step.end is not None else NEVER_NS
    traffic_class = step.told("traffic_class")
    rank = CLASSES.index(traffic_class) if traffic_class in CLASSES else len(CLASSES)
    key = rank, frame.deadline_of(step) or NEVER_NS
    yield Wait(step, step.queued_ns, end if start is None else start, start is not None, key)


def _judge_one(frame: Frame, outage: Outage, params: Params) -> Iterator[Rule]:
    yield from _stale_rules(frame, outage, params)
    yield _order(frame, outage, params)
    yield _interactive(frame, outage, params)
    yield from _queue(frame, outage, params)
    yield from _rate(frame, outage, params)
    yield _stays_closed(frame, outage, params)
    drained = _drained(outage)
    ordered = _held_up_by_fifo(outage.backlog)
    for what, n, least, add in (
        ("waiting at the closing, and started", drained, params.drained, "more work that waits through the outage"),
        ("a first-in-first-out drain would hold up", ordered, params.ordered, "urgent work queued behind less urgent"),
    ):
        yield rules.enough("evidence", what, n, least, "steps", add)


def _stale(frame: Frame, outage: Outage, late_ns: int) -> list[StepRows]:
    return [step for step in outage.steps if waited_past_deadline(frame, step, late_ns)]


def _stale_rules(frame: Frame, outage: Outage, params: Params) -> Iterator[Rule]:
    mine = {step.id for step in outage.steps}
    stale = _stale(frame, outage, params.late)
    started = [breach for breach in late_starts(frame, params.late) if breach[0] in mine]
    otherwise = [
        (step.id, f"ended {step.outcome or 'nowhere'}")
        for step in stale
        if step.outcome != EXPIRED and step.id not in {witness for witness, _ in started}
    ]
    add = "waiting work whose deadline passes during the outage"
    name = outage.dependency
    yield never(name, "started after their deadline", started, len(stale), params.stale, add)
    yield never(name, "went stale and did not end `expired`", otherwise, len(stale), params.stale, add)


def _order(frame: Frame, outage: Outage, params: Params) -> Rule:
    """A start is out of order if one with a smaller key had been waiting, and went on waiting."""
    between = frame.stalls.between
    queue = sorted(outage.waits, key=lambda wait: wait.from_ns)
    starts = sorted((w for w in queue if w.started and w.to_ns >= outage.closed_ns), key=lambda wait: wait.to_ns)
    waiting: list[tuple[tuple[int, int], int, Wait]] = []
    place = 0
    breaches: list[Breach] = []
    for start in starts:
        while place < len(queue) and between(queue[place].from_ns, start.to_ns) >= params.margin:
            heappush(waiting, (queue[place].key, place, queue[place]))
            place += 1
        while waiting and between(start.to_ns, waiting[0][2].to_ns) <= params.margin:
            heappop(waiting)
        if waiting and waiting[0][0] < start.key:
            breaches.append((start.step.id, f"while {waiting[0][2].step.id} waited, which is more urgent"))
    allowed = len(breaches) <= params.out_of_order * len(starts)
    add = "work of several classes and deadlines that waits through the outage"
    what = "started before more urgent work"
    return never(outage.dependency, what, [] if allowed else breaches, len(starts), params.drained, add)


def _held_up_by_fifo(backlog: list[Wait]) -> int:
    """How many of them have somebody less urgent before them in order of arrival."""
    worst, held_up = (-1, -1), 0
    for wait in sorted((w for w in backlog if w.started), key=lambda wait: wait.from_ns):
        held_up += wait.key < worst
        worst = max(worst, wait.key)
    return held_up


def _interactive(frame: Frame, outage: Outage, params: Params) -> Rule:
    breaches: list[Breach] = []
    in_drain = 0
    for step in outage.steps:
        if step.told("traffic_class") != "interactive" or step.first_ns < outage.closed_ns:
            continue
        in_drain += step.first_ns <= outage.drained_ns
        until = at(step.attempts[0]) if step.attempts else at(step.end) if step.end else NEVER_NS
        waited = frame.stalls.between(step.first_ns, min(until, outage.until_ns))
        if waited > params.interactive_wait:
            breaches.append((step.id, f"waited {waited / NS_PER_MS:.0f} ms, at most {_ms(params.interactive_wait)}"))
        elif step.outcome not in (SERVED, None) and step.end and at(step.end) < outage.until_ns:
            breaches.append((step.id, f"ended {step.outcome}"))
    add = "interactive steps while the backlog drains"
    what = "of interactive work were held up by the backlog"
    return never(outage.dependency, what, breaches, in_drain, params.interactive, add)


def _queue(frame: Frame, outage: Outage, params: Params) -> Iterator[Rule]:
    asked = dependency_of(frame, outage.dependency)
    for kind, bulkhead in (("read", asked.reads), ("write", asked.writes)) if asked else ():
        mine = [w for w in outage.waits if w.step.told("operation") == kind]
        if not mine:
            continue
        # Seen from the dependency, one that starts arrives a little later than its place in the queue is free again.
        lived = frame.stalls.lived
        most, where = most_at_once((lived(w.from_ns), lived(w.to_ns) - params.margin) for w in mine)
        over = [w.step.id for w in mine if lived(w.from_ns) <= where < lived(w.to_ns)]
        full = sum(1 for s in outage.steps if s.outcome == THROTTLED and s.told("operation") == kind)
        finding = rules.at_most(
            outage.dependency, f"{kind}s waiting at once", most, bulkhead.queue, "steps", len(mine),
            f"{outage.dependency}: {most} {kind}s waited at once where the queue holds {bulkhead.queue}",
            over,
        )  # fmt: skip
        yield finding
        if most <= bulkhead.queue:
            add = "more load during the outage than the queue holds"
            yield rules.enough("evidence", f"{kind}s turned away by a full queue", full, params.pressed, "steps", add)


def _rate(frame: Frame, outage: Outage, params: Params) -> Iterator[Rule]:
    """max over i <= j of (j - i + 1) - rate * (t_j - t_i), over the arrivals of the drain.

    t_i: what arrived in a stall, or just after one, may have been started when the stall began.
    """
    if frame.profile.capacity is None:
        return
    rate = float(frame.profile.capacity.recovery.to_rate)
    arrivals = [a for a in frame.evidence.arrivals if a.get("dependency") == outage.dependency]
    starts = [at(a) for a in arrivals if outage.closed_ns <= at(a) <= outage.drained_ns]
    lowest, most, where = float("inf"), 0.0, outage.closed_ns
    for count, instant in enumerate(starts):
        level = count - rate * (instant - outage.closed_ns) / NS_PER_S
        begun_ns = frame.stalls.earliest(instant, params.margin)
        lowest = min(lowest, count - rate * (begun_ns - outage.closed_ns) / NS_PER_S)
        if level - lowest + 1 > most:
            most, where = level - lowest + 1, instant
    said = (
        f"{outage.dependency}: {most:.0f} calls more than the tested {rate:g}/s allow had been started by "
        f"{where / 1e9:.2f} s ({len(starts)} in all, from {outage.closed_ns / 1e9:.2f} s)"
    )
    named = [w.step.id for w in sorted(outage.backlog, key=lambda w: w.to_ns) if w.started and w.to_ns <= where]
    yield rules.at_most(
        outage.dependency, "starts beyond the tested capacity", round(most, 2), params.burst, "calls", len(starts),
        said, named,
    )  # fmt: skip


def _stays_closed(frame: Frame, outage: Outage, params: Params) -> Rule:
    """An opening that a later fault of the profile explains is another outage."""
    again: list[Breach] = [
        (outage.dependency, f"opened again at {stage.from_ns / 1e9:.2f} s")
        for stage in outage.stages
        if stage.state == OPEN and stage.after == CLOSED and stage.from_ns >= outage.closed_ns
        if not _faulty(frame, outage.dependency, stage.from_ns)
    ]
    wave = [s for s in outage.steps if s.first_ns >= outage.closed_ns and s.told("traffic_class") != "interactive"]
    add = "more work once the circuit has closed"
    what = "of the second wave met a circuit that opened again"
    return never(outage.dependency, what, again, len(wave), params.second_wave, add)


def _faulty(frame: Frame, dependency: str, instant_ns: int) -> bool:
    return any(
        fault.dependency == dependency and fault.from_ns <= instant_ns < (fault.to_ns or NEVER_NS)
        for fault in frame.profile.faults
    )


def _ms(ns: int) -> str:
    return f"{ns / NS_PER_MS:.0f} ms"


CHECKS[NAME] = Check(
    NAME,
    "after an outage the backlog drains by class and deadline, within bounds, and the dependency stays up",
    "decisions and arrivals of a dependency with an outage, a backlog of several classes, and a second wave",
    Params,
    judge,
)
