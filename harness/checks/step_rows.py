"""All that a trial's rows say of one step: decisions of every kind, attempts, read-backs, effects; and of circuits.

Beside capacity_frames.py, which joins calls, runs and bulkheads: the checks of expiry, Retry-After, circuits, ambiguous
writes and recovery follow single steps through retries and read-backs. Arrivals and effects are what really reached a
dependency: they are the judge. Nothing here judges, and nothing raises on a row that lacks a key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.checks.capacity_frames import is_readback
from harness.checks.context import profile_of, time_scale
from harness.ledger.evidence import Evidence, Row, evidence_of
from harness.ledger.outcomes import FROM_SERVICE
from harness.ledger.reader import Trial
from harness.ledger.stalls import Stalls, stalls_of
from harness.profile.model import Profile

CLASSES = ("interactive", "approval_resume", "autonomous", "maintenance")
"""In order of precedence."""
_TERMINAL = frozenset(FROM_SERVICE)
_OF_STEP = frozenset(("step", "retry", "readback", "late"))


@dataclass(slots=True)
class StepRows:
    """All that is known of one step, in order of time. attempts: arrivals other than read-backs."""

    run: str
    step: str
    decisions: list[Row] = field(default_factory=list)
    attempts: list[Row] = field(default_factory=list)
    readbacks: list[Row] = field(default_factory=list)
    effects: list[Row] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.run}/{self.step}"

    def decided(self, kind: str, *outcomes: str) -> list[Row]:
        """Its decisions of a kind, with one of these outcomes (none named: any)."""
        return [d for d in self.decisions if d.get("kind") == kind and (not outcomes or d.get("outcome") in outcomes)]

    @property
    def ends(self) -> list[Row]:
        """Its terminal decisions: one, if all is well."""
        return [d for d in self.decisions if d.get("kind") == "step" and d.get("outcome") in _TERMINAL]

    @property
    def end(self) -> Row | None:
        ends = self.ends
        return ends[0] if ends else None

    @property
    def outcome(self) -> str | None:
        end = self.end
        return None if end is None else str(end.get("outcome"))

    def told(self, key: str) -> str | None:
        """The first that any of its rows say of a key, such as `dependency`."""
        for rows in (self.decisions, self.attempts, self.readbacks, self.effects):
            for row in rows:
                if row.get(key) is not None:
                    return str(row[key])
        return None

    @property
    def queued_ns(self) -> int | None:
        """When it first began to wait; None: it never did."""
        return next((int(d["t_ns"]) for d in self.decided("step", "queued")), None)

    @property
    def first_ns(self) -> int:
        """The first that was heard of it."""
        return min((at(rows[0]) for rows in (self.decisions, self.attempts, self.readbacks) if rows), default=0)


@dataclass(slots=True)
class RunRows:
    """One run. opened: its `opened` decision; decisions: all that name it."""

    run: str
    decisions: list[Row] = field(default_factory=list)
    steps: list[StepRows] = field(default_factory=list)
    children: int = 0

    @property
    def opened(self) -> Row | None:
        return next((d for d in self.decisions if d.get("kind") == "run" and d.get("outcome") == "opened"), None)

    @property
    def deadline_ns(self) -> int | None:
        """As it was promised when the run opened, whatever was made of it later."""
        opened = self.opened
        if opened is not None and opened.get("deadline_ns") is not None:
            return int(opened["deadline_ns"])
        return None


@dataclass(slots=True)
class Frame:
    """A trial of a capacity layer. circuits: dependency -> its transitions, in order of time. batches: (run, batch) ->
    decisions about the whole batch."""

    profile: Profile
    scale: float
    evidence: Evidence
    steps: dict[str, StepRows]
    runs: dict[str, RunRows]
    circuits: dict[str, list[Row]]
    batches: dict[tuple[str, str], list[Row]]
    stalls: Stalls

    def request_of(self, step: StepRows) -> str | None:
        """Id of the call that brought it, as its own decisions or those of its batch name it (or an attempt of it)."""
        rows = (*step.decisions, *self.batches.get((step.run, step.told("batch") or ""), ()))
        told = next((str(row["request"]) for row in rows if row.get("request") is not None), None)
        return ".".join(told.split(".")[:2]) if told is not None else None

    def deadline_of(self, step: StepRows) -> int | None:
        """The run's, as promised at its opening; else the earliest that any row of the step tells."""
        run = self.runs.get(step.run)
        if run is not None and run.deadline_ns is not None:
            return run.deadline_ns
        told = [int(row["deadline_ns"]) for row in (*step.decisions, *step.attempts) if row.get("deadline_ns")]
        return min(told, default=None)

    def of_dependency(self, dependency: str) -> list[StepRows]:
        return [step for step in self.steps.values() if step.told("dependency") == dependency]


def frame_of(trial: Trial) -> Frame:
    """Read once a trial. Raises LedgerError for a damaged file."""
    if "step_rows" not in trial.memo:
        trial.memo["step_rows"] = _frame(trial)
    frame: Frame = trial.memo["step_rows"]
    return frame


def at(row: Row) -> int:
    return int(row.get("t_ns", 0))


def ended_ns(arrival: Row) -> int:
    return int(arrival.get("ended_ns", at(arrival)))


def answered(arrival: Row) -> int:
    """HTTP status; 0: no answer."""
    return int(arrival.get("status", 0))


def most_at_once(spans: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """(most spans [from, to) that overlap, the instant at which they do). Ends come before beginnings."""
    events = sorted((instant, sign) for begin, end in spans for instant, sign in ((begin, 1), (max(begin, end), -1)))
    now = most = where = 0
    for instant, sign in events:
        now += sign
        if now > most:
            most, where = now, instant
    return most, where


def _frame(trial: Trial) -> Frame:
    evidence = evidence_of(trial)
    frame = Frame(profile_of(trial), time_scale(trial), evidence, {}, {}, {}, {}, stalls_of(trial))
    for row in evidence.decisions:
        run = row.get("run")
        if run is None:
            if row.get("kind") == "circuit":
                frame.circuits.setdefault(str(row.get("dependency")), []).append(row)
            continue
        _run(frame, str(run)).decisions.append(row)
        if row.get("kind") == "run" and row.get("outcome") == "opened" and row.get("parent_run") is not None:
            _run(frame, str(row["parent_run"])).children += 1
        if row.get("kind") == "batch":
            frame.batches.setdefault((str(run), str(row.get("batch"))), []).append(row)
        if row.get("step") is not None and row.get("kind") in _OF_STEP:
            _step(frame, row).decisions.append(row)
    for row in evidence.arrivals:
        if row.get("run") is None or row.get("step") is None:
            continue
        step = _step(frame, row)
        (step.readbacks if is_readback(row) else step.attempts).append(row)
    for row in evidence.effects:
        if row.get("run") is not None and row.get("step") is not None:
            _step(frame, row).effects.append(row)
    return frame


def _run(frame: Frame, run: str) -> RunRows:
    if run not in frame.runs:
        frame.runs[run] = RunRows(run)
    return frame.runs[run]


def _step(frame: Frame, row: Row) -> StepRows:
    run, name = str(row["run"]), str(row["step"])
    key = f"{run}/{name}"
    step = frame.steps.get(key)
    if step is None:
        step = frame.steps[key] = StepRows(run, name)
        _run(frame, run).steps.append(step)
    return step
