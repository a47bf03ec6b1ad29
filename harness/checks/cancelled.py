"""capacity.cancelled: a run that was cancelled starts nothing more.

From the cancellation on, by what arrived at the dependencies:

    queued      steps that waited never arrive, and end `cancelled`
    in flight   no retry, no further step, no sub-agent follows from them
    late        a result that comes after the cancellation is looked at once (`late`: accepted or discarded) before
                anything is done with it; a read-back of a write that is in doubt is no follow-up

The cancellation is when its caller had the answer to it, or when the controller says that it happened, if sooner. A
call that had been started before may arrive a little after it; time in which the stub stood still does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.checks.capacity_frames import CANCEL, OPEN_RUN, SUBMIT, Frame, Step, frame_of
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, enough, none_of, verdict, withheld
from harness.checks.v05_histories import ok
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import BUDGET_EXHAUSTED, CANCELLED, SERVED
from harness.ledger.reader import Trial
from harness.profile.base import Count, DurationNs, Part

NAME = "capacity.cancelled"


class Params(Part):
    """way: how long a call that had been started before may take to arrive. queued, in_flight, failed: steps that must
    have been waiting, running, and running to a failure when their run was cancelled; more: batches or sub-agents that
    must have been asked for afterwards."""

    way: DurationNs = 30_000_000
    queued: Count = 20
    in_flight: Count = 20
    failed: Count = 5
    more: Count = 5


@dataclass(frozen=True, slots=True, eq=False)
class _Cancelled:
    """A run, or one that descends from it, and when it was cancelled. before: batches that it had by then."""

    run: str
    at_ns: int
    steps: list[Step]
    before: set[str]

    def running(self) -> list[Step]:
        return [s for s in self.steps if any(int(r["t_ns"]) <= self.at_ns < int(r["ended_ns"]) for r in s.arrivals)]

    def waiting(self) -> list[Step]:
        """Asked for before, and neither begun nor ended before: for a slot, or for their turn in the run."""
        return [
            s for s in self.steps
            if s.batch in self.before
            and (not s.arrivals or int(s.arrivals[0]["t_ns"]) > self.at_ns)
            and (s.end is None or int(s.end["t_ns"]) >= self.at_ns)
        ]  # fmt: skip


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    if not frame.evidence.has_arrivals or not frame.evidence.has_decisions:
        return withheld(NAME, "it needs both arrivals and decisions", "a target that gives both (`/evidence`)")
    runs = _cancelled(frame)
    rules = [*_follow_ups(frame, runs, params), *_queued(runs), *_late(frame, runs), *_told(frame, runs),
             *_evidence(frame, runs, params)]  # fmt: skip
    waited = sum(len(run.waiting()) for run in runs)
    passed = (
        f"{len(runs)} runs were cancelled with {waited} steps waiting and {sum(len(r.running()) for r in runs)} in "
        "flight: none of the waiting began, and nothing followed from the others."
    )
    return verdict(NAME, rules, passed)


def _cancelled(frame: Frame) -> list[_Cancelled]:
    when: dict[str, int] = {}
    for row in frame.of_kind("run", CANCELLED):
        when.setdefault(str(row.get("run")), int(row["t_ns"]))
    for run in frame.runs.values():
        told = [int(r["done_ns"]) for r in run.calls if r.get("action") == CANCEL and r.get("outcome") == SERVED]
        if told:
            when[run.id] = min(when.get(run.id, told[0]), told[0])
    admitted: dict[str, dict[str, int]] = {}
    for row in frame.of_kind("batch", "admitted"):
        admitted.setdefault(str(row.get("run")), {}).setdefault(str(row.get("batch")), int(row["t_ns"]))
    found = []
    for name in frame.runs:
        above = [when[other] for other in _ancestors(frame, name) if other in when]
        if above:
            before = {batch for batch, at in admitted.get(name, {}).items() if at <= min(above)}
            found.append(_Cancelled(name, min(above), frame.of_run.get(name, []), before))
    return found


def _ancestors(frame: Frame, run: str) -> list[str]:
    """The run itself and all above it."""
    found = [run]
    while (parent := frame.runs[run].parent) in frame.runs and parent not in found:
        run = str(parent)
        found.append(run)
    return found


def _follow_ups(frame: Frame, runs: list[_Cancelled], params: Params) -> list[Rule]:
    between = frame.stalls.between
    retried: list[str] = []
    begun: list[str] = []
    samples = 0
    for run in runs:
        samples += len(run.steps)
        for step in run.steps:
            after = [row for row in step.arrivals if between(run.at_ns, int(row["t_ns"])) > params.way]
            if after:
                (begun if after[0] is step.arrivals[0] else retried).append(step.id)
    text = f"{len(begun)} steps of cancelled runs reached a dependency after the cancellation"
    again = f"{len(retried)} steps of cancelled runs were retried after the cancellation"
    return [
        none_of("runs", "begun after cancellation", begun, samples, "steps", text),
        none_of("runs", "retried after cancellation", retried, samples, "steps", again),
    ]


def _queued(runs: list[_Cancelled]) -> list[Rule]:
    waiting = [step for run in runs for step in run.waiting()]
    wrong = [step.id for step in waiting if not step.arrivals and step.outcome != CANCELLED]
    ends = ", ".join(dict.fromkeys(str(s.outcome or "without a record") for s in waiting if s.outcome != CANCELLED))
    text = f"{len(wrong)} steps that waited when their run was cancelled ended {ends} instead of cancelled"
    return [none_of("queued", "not ended as cancelled", wrong, len(waiting), "steps", text)]


def _late(frame: Frame, runs: list[_Cancelled]) -> list[Rule]:
    """Each result that came after the cancellation was looked at, once."""
    looked: dict[tuple[str, str], int] = {}
    for row in frame.of_kind("late"):
        key = str(row.get("run")), str(row.get("step"))
        looked[key] = looked.get(key, 0) + 1
    running = [step for run in runs for step in run.running()]
    answered = [s for s in running if ok(s.arrivals[-1].get("status"))]
    wrong = [step.id for step in answered if looked.get((step.run, step.step), 0) != 1]
    text = f"{len(wrong)} results that came after a cancellation were used without a look at whether they still may be"
    return [none_of("late results", "not looked at", wrong, len(answered), "steps", text)]


def _told(frame: Frame, runs: list[_Cancelled]) -> list[Rule]:
    """Batches and sub-agents asked for after the cancellation are refused as cancelled."""
    wrong, samples = [], 0
    for run in runs:
        for row in frame.runs[run.run].calls:
            if row.get("action") in (SUBMIT, OPEN_RUN) and int(row.get("sent_ns", -1)) > run.at_ns:
                samples += 1
                if row.get("outcome") not in (CANCELLED, BUDGET_EXHAUSTED):
                    wrong.append(str(row.get("call")))
    text = f"{len(wrong)} batches of cancelled runs were taken after the cancellation"
    return [none_of("batches", "taken after cancellation", wrong, samples, "calls", text)]


def _evidence(frame: Frame, runs: list[_Cancelled], params: Params) -> list[Rule]:
    waiting = sum(len(run.waiting()) for run in runs)
    running = [step for run in runs for step in run.running()]
    failed = sum(not ok(step.arrivals[-1].get("status")) for step in running)
    asked = sum(
        row.get("action") in (SUBMIT, OPEN_RUN) and int(row.get("sent_ns", -1)) > run.at_ns
        for run in runs for row in frame.runs[run.run].calls
    )  # fmt: skip
    return [
        enough("queued", "waiting when cancelled", waiting, params.queued, "steps", "larger batches, cancelled sooner"),
        enough("in flight", "running when cancelled", len(running), params.in_flight, "steps", "a longer service time"),
        enough("in flight", "failed after it", failed, params.failed, "steps", "a fault `error` while they run"),
        enough("batches", "asked for after it", asked, params.more, "calls", "runs with further batches to submit"),
    ]


CHECKS[NAME] = Check(
    NAME,
    "a cancelled run starts nothing more: queued steps go, nothing follows from those in flight",
    "arrivals and decisions of runs cancelled while steps wait, run and fail (`cancel_after`)",
    Params,
    judge,
)
