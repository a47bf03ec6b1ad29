"""v08.circuit: while a circuit is open nothing reaches its dependency; it probes with few, and closes by its rule.

    closed      opens when its own calls fail or are slow, by the profile's rule; nothing is refused meanwhile
    open        zero arrivals; `dependency_unavailable` at once; other dependencies untouched; for `open_for`
    half-open   at most `probes` arrivals in flight; a failed or slow one reopens it
    closing     only after `close_after` successes; then normal admission

Source: M. Nygard, Release It!, chapter 5 (Circuit Breaker). The stages are the controller's transitions; what happened
in them is judged by arrivals, and so is whether it should have opened: a circuit that never does is a FAIL, not a
missing stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from harness.checks import rules
from harness.checks.circuits import (
    CLOSED,
    HALF_OPEN,
    NEVER_NS,
    OPEN,
    Arrived,
    Stage,
    arrived,
    cause,
    should_have_opened,
    stages,
)
from harness.checks.context import NS_PER_MS
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule
from harness.checks.rulings import Breach, missing, never
from harness.checks.step_rows import Frame, StepRows, at, frame_of, most_at_once
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import CANCELLED, DEPENDENCY_UNAVAILABLE, SERVED
from harness.ledger.reader import CALLS, Trial, rows_of
from harness.ledger.stalls import WAY_NS, Stalls, stalls_on_the_way
from harness.profile.base import DurationNs, Part
from harness.profile.capacity import Circuit

NAME = "v08.circuit"
Least = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class Params(Part):
    """react: how long the rule to open (or reopen) may be met before it must have acted. in_flight: how long after a
    transition a call sent before it may still arrive. cheap: longest that a refusal may take; slow_refusals: share that
    may take longer. while_open: steps that must have come while one was open; elsewhere: those of other dependencies
    meanwhile; at_half_open: those that came while it probed; after: served after it closed.
    """

    react: DurationNs = 500 * NS_PER_MS
    in_flight: DurationNs = 20 * NS_PER_MS
    cheap: DurationNs = 100 * NS_PER_MS
    slow_refusals: Annotated[float, Field(ge=0, lt=1)] = 0.1
    while_open: Least = 20
    elsewhere: Least = 20
    at_half_open: Least = 10
    after: Least = 10


@dataclass(frozen=True, slots=True)
class View:
    """One dependency: its rule, its calls as it saw them, its stages, its steps."""

    name: str
    rule: Circuit
    calls: list[Arrived]
    stages: list[Stage]
    steps: list[StepRows]
    stalls: Stalls

    def of(self, state: str) -> list[Stage]:
        return [stage for stage in self.stages if stage.state == state]

    def is_closed_around(self, instant_ns: int, margin_ns: int) -> bool:
        return not any(
            s.state != CLOSED and s.from_ns - margin_ns <= instant_ns <= s.to_ns + margin_ns for s in self.stages
        )

    @property
    def healthy(self) -> bool:
        """Whether its own calls give no reason to refuse anything."""
        return bool(self.calls) and not any(call.bad for call in self.calls)

    def held_up_before(self, instant_ns: int) -> bool:
        """Whether calls that stalls made slow for their caller may have had its circuit open at the instant."""
        since_ns = instant_ns - self.rule.window - self.rule.open_for - self.rule.lease
        return any(call.held_up and since_ns <= call.ended_ns <= instant_ns for call in self.calls)


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    withheld = missing(NAME, frame.evidence, "decisions", "arrivals")
    if withheld:
        return withheld
    if frame.profile.capacity is None:
        return rules.withheld(NAME, "the profile does not say how the circuits are set", "`capacity:` in the profile")
    views = [
        View(name, d.circuit, arrived(frame, name), stages(frame, name), frame.of_dependency(name), frame.stalls)
        for name, d in frame.profile.capacity.dependencies.items()
    ]
    found = [
        _opens(views, params),
        _opens_for_cause(views, params),
        _nothing_while_open(views, params),
        _cools_down(views, params),
        _probes(views, params),
        _reopens(views, params),
        _closes(views, params),
        _admits_when_closed(views, params),
        _elsewhere(views, params),
        _cheap(trial, frame, views, params),
        *_evidence(views, params),
    ]
    n = sum(1 for _ in _came_in(views, OPEN))
    passed = (
        f"Circuits opened on failures and on latency; {n} steps came while one was open, none of them reached its "
        f"dependency; each closed by its rule, with few probes."
    )
    return rules.verdict(NAME, found, passed)


def _opens(views: list[View], params: Params) -> Rule:
    breaches: list[Breach] = []
    for view in views:
        for stage in view.of(CLOSED):
            due = should_have_opened(view.calls, view.rule, stage, params.react, view.stalls)
            if due is not None:
                during = [call for call in view.calls if call.t_ns >= due and call.ended_ns < stage.to_ns]
                what = "slow" if sum(c.slow for c in during) > sum(c.failed for c in during) else "failed"
                breaches.append((view.name, f"calls {what} from {_s(due)} on, and {len(during)} more were sent"))
    troubled = sum(1 for view in views if any(call.bad for call in view.calls))
    add = "a fault that makes a dependency fail, and one that makes it slow"
    return never("closed", "stayed closed though the rule to open was met", breaches, troubled, 1, add, "circuits")


def _opens_for_cause(views: list[View], params: Params) -> Rule:
    breaches: list[Breach] = []
    openings = 0
    for view in views:
        for stage in view.of(OPEN):
            openings += 1
            if stage.after == CLOSED and cause(view.calls, view.rule, stage.from_ns, params.react) is None:
                breaches.append((view.name, f"at {_s(stage.from_ns)}"))
    return never("closed", "opened though their own calls were well", breaches, openings, 0, "", "circuits")


def _nothing_while_open(views: list[View], params: Params) -> Rule:
    breaches = [
        (_id(call), f"at {_s(call.t_ns)}, {(call.t_ns - stage.from_ns) / NS_PER_MS:.0f} ms after {view.name} opened")
        for view in views
        for stage in view.of(OPEN)
        for call in view.calls
        if call.t_ns < stage.to_ns and view.stalls.between(stage.from_ns, call.t_ns) > params.in_flight
    ]
    came = sum(1 for _ in _came_in(views, OPEN))
    add = "steps that come while the circuit is open"
    return never("open", "reached a dependency whose circuit was open", breaches, came, params.while_open, add)


def _cools_down(views: list[View], params: Params) -> Rule:
    """Not half-open before its time, and not much later, if anybody asks."""
    breaches: list[Breach] = []
    opened = [(view, stage) for view in views for stage in view.of(OPEN)]
    for view, stage in opened:
        due = stage.from_ns + view.rule.open_for
        if stage.to_ns < due - params.in_flight:
            breaches.append((view.name, f"{_s(due - stage.to_ns)} too early"))
        ignored = [
            s for s in view.steps
            if view.stalls.between(due, s.first_ns) > params.react and s.first_ns < stage.to_ns and not s.attempts
        ]  # fmt: skip
        if ignored:
            until = "for good" if stage.to_ns == NEVER_NS else f"until {_s(stage.to_ns)}"
            breaches.append(
                (view.name, f"open from {_s(stage.from_ns)} {until}; {len(ignored)} steps refused too long")
            )
    add = "steps that come after the cool-down"
    return never("open", "did not probe when the cool-down ended", breaches, len(opened), 1, add, "circuits")


def _probes(views: list[View], params: Params) -> Rule:
    breaches: list[Breach] = []
    inside_all = 0
    probing = [(view, stage) for view in views for stage in view.of(HALF_OPEN)]
    for view, stage in probing:
        lease = view.rule.lease - params.in_flight
        inside = [call for call in view.calls if stage.holds(call.t_ns)]
        inside_all += len(inside)
        spans = [(call.t_ns, min(call.ended_ns, _sent(view, call) + max(lease, 1))) for call in inside]
        most, where = most_at_once(spans)
        if most > view.rule.probes:
            said = f"{most} calls in flight at {_s(where)}, {view.rule.probes} allowed"
            breaches += [(_id(call), said) for call in inside if call.t_ns <= where]
    add = "steps that come while the circuit is half-open"
    return never("half-open", "went along with the probes", breaches, inside_all, 1, add, "calls")


def _sent(view: View, call: Arrived) -> int:
    """Since when a probe may have held its lease: one that came in after a stall was sent before it."""
    return view.stalls.earliest(call.t_ns, WAY_NS)


def _reopens(views: list[View], params: Params) -> Rule:
    breaches: list[Breach] = []
    failed = 0
    for view in views:
        for stage in view.of(HALF_OPEN):
            bad = [call for call in view.calls if stage.holds(call.t_ns) and call.bad]
            if not bad:
                continue
            failed += 1
            first = min(bad, key=lambda call: call.ended_ns)
            if stage.followed_by != OPEN or view.stalls.between(first.ended_ns, stage.to_ns) > params.react:
                breaches.append((_id(first), f"{view.name}, probe ended badly at {_s(first.ended_ns)}"))
            breaches += [
                (_id(call), f"{view.name}, another call {_s(call.t_ns - first.ended_ns)} after a probe had ended badly")
                for call in view.calls
                if stage.holds(call.t_ns) and view.stalls.between(first.ended_ns, call.t_ns) > params.in_flight
            ]
    add = "a fault that lasts longer than the cool-down, so that a probe fails"
    return never("half-open", "did not reopen after a failed probe", breaches, failed, 1, add, "stages")


def _closes(views: list[View], params: Params) -> Rule:
    breaches: list[Breach] = []
    seen = 0
    for view in views:
        for stage in view.of(HALF_OPEN):
            good = [call for call in view.calls if stage.holds(call.t_ns) and not call.bad]
            good = [call for call in good if call.ended_ns <= min(stage.to_ns, NEVER_NS - 1) + NS_PER_MS]
            seen += stage.followed_by == CLOSED
            if stage.followed_by == CLOSED and len(good) < view.rule.close_after:
                breaches.append((view.name, f"after {len(good)} successes where {view.rule.close_after} are asked for"))
            if stage.followed_by is None and len(good) >= view.rule.close_after + view.rule.probes:
                breaches.append((view.name, f"not at all, after {len(good)} successes"))
    seen += sum(1 for view in views for stage in view.of(OPEN) if stage.followed_by == CLOSED)
    breaches += [(view.name, "straight from open") for view in views for s in view.of(OPEN) if s.followed_by == CLOSED]
    add = "a fault that ends, and steps enough to close the circuit"
    return never("closing", "did not close by the recovery rule", breaches, seen, 1, add, "circuits")


def _refused(view: View) -> list[StepRows]:
    """Steps turned away without a call."""
    return [step for step in view.steps if step.outcome == DEPENDENCY_UNAVAILABLE and not step.attempts]


def _admits_when_closed(views: list[View], params: Params) -> Rule:
    breaches = [
        (step.id, f"{view.name}, at {_s(at(step.end))}")
        for view in views
        for step in _refused(view)
        if step.end is not None and view.is_closed_around(at(step.end), params.in_flight)
    ]
    n = sum(1 for view in views for step in view.steps if view.is_closed_around(step.first_ns, 0))
    add = "steps before the fault and after the circuit has closed"
    return never("closed", "were refused though the circuit of their dependency was closed", breaches, n, 1, add)


def _elsewhere(views: list[View], params: Params) -> Rule:
    breaches: list[Breach] = []
    seen = 0
    spans = [(s.from_ns, s.to_ns) for view in views for s in view.stages if s.state != CLOSED]
    for view in (view for view in views if view.healthy):
        for step in view.steps:
            if any(begin <= step.first_ns < end for begin, end in spans):
                seen += 1
                well = step.outcome in (SERVED, "coalesced", CANCELLED)
                if not well and not (step.end and view.held_up_before(at(step.end))):
                    breaches.append((step.id, f"{view.name}, ended {step.outcome or 'without an outcome'}"))
    add = "a healthy dependency with steps of its own all through the trial"
    return never("elsewhere", "of a healthy dependency suffered", breaches, seen, params.elsewhere, add)


def _cheap(trial: Trial, frame: Frame, views: list[View], params: Params) -> Rule:
    """By the caller's clock, for calls that brought one step and did not wait in a queue before the circuit opened."""
    between = stalls_on_the_way(trial).between
    took = {
        str(row["call"]): between(int(row["sent_ns"]), int(row["done_ns"]))
        for row in rows_of(trial.folder / CALLS)
        if row.get("outcome") == DEPENDENCY_UNAVAILABLE and "sent_ns" in row
    }
    asked: list[tuple[str, int]] = []
    for view in views:
        for step in _refused(view):
            request = frame.request_of(step)
            if step.queued_ns is None and request in took:
                asked.append((step.id, took[request]))
    slow = [(id_, f"after {ns / NS_PER_MS:.0f} ms") for id_, ns in asked if ns > params.cheap]
    breaches = slow if len(slow) > params.slow_refusals * len(asked) else []
    add = "steps that are refused while the circuit is open"
    return never("open", "were refused slowly", breaches, len(asked), params.while_open, add)


def _came_in(views: list[View], state: str) -> Iterator[StepRows]:
    for view in views:
        for stage in view.of(state):
            yield from (step for step in view.steps if stage.holds(step.first_ns))


def _evidence(views: list[View], params: Params) -> Iterator[Rule]:
    causes = [
        cause(view.calls, view.rule, stage.from_ns, params.react)
        for view in views
        for stage in view.of(OPEN)
        if stage.after == CLOSED
    ]
    closed = [(view, stage) for view in views for stage in view.of(CLOSED) if stage.after is not None]
    after = sum(
        1 for view, stage in closed for step in view.steps if stage.holds(step.first_ns) and step.outcome == SERVED
    )
    half = sum(1 for _ in _came_in(views, HALF_OPEN))
    for what, n, least, unit, add in (
        ("opened on failures", causes.count("failures"), 1, "circuits", "a fault that makes a dependency fail"),
        ("opened on latency", causes.count("latency"), 1, "circuits", "a fault that makes a dependency slow"),
        ("came while it was half-open", half, params.at_half_open, "steps", "more steps a second"),
        ("were served after it closed", after, params.after, "steps", "more time after the fault"),
    ):
        yield rules.enough("evidence", what, n, least, unit, add)


def _id(call: Arrived) -> str:
    return f"{call.row.get('run')}/{call.row.get('step')}"


def _s(ns: int) -> str:
    return f"{ns / 1e9:.2f} s"


CHECKS[NAME] = Check(
    NAME,
    "an open circuit lets nothing through, probes with few, and closes by its rule",
    "decisions and arrivals of a dependency that fails and one that is slow, until after both have recovered",
    Params,
    judge,
)
