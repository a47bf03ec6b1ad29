"""What the checks of the capacity layer look at: a trial's runs, steps and bulkheads, joined from the ledger's rows.

Who asked for a run is known from the caller's own rows (its credential), what reached a dependency from the arrivals,
and only the rest from what the controller says of itself. Rows may lack any key, and may be from elsewhere: nothing
here raises on them.

Convention: a call holds its slot from its arrival until it ends, and no longer than its bulkhead's timeout; read-backs
hold none of the slots that are counted here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from harness.checks.context import bundled, profile_of
from harness.checks.rules import Rule, at_most
from harness.ledger.evidence import Evidence, Row, evidence_of
from harness.ledger.outcomes import FROM_SERVICE
from harness.ledger.reader import CALLS, Trial, rows_of
from harness.ledger.stalls import WAY_NS, Stalls, stalls_of
from harness.measure.occupancy import Levels, levels
from harness.profile.capacity import Batch, Bulkhead, RunGroup
from harness.profile.model import Profile

READ, WRITE = "read", "write"
FOREGROUND = ("interactive", "approval_resume")
BACKGROUND = ("autonomous", "maintenance")
OPEN_RUN, SUBMIT, CANCEL, FINISH = "open", "submit", "cancel", "finish"
_TIMER_SHARE = 0.05
"""Of a timeout: how much earlier than the dependency sees it a caller may have given up (the way there, and timers)."""

Ints = npt.NDArray[np.int64]
BulkheadKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """One logical action of a run. arrivals: attempts in order of time, read-backs apart. decisions: of kind `step`."""

    run: str
    step: str
    arrivals: tuple[Row, ...] = ()
    readbacks: tuple[Row, ...] = ()
    decisions: tuple[Row, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.run}/{self.step}"

    @property
    def batch(self) -> str:
        """As the decisions name it, else by the convention of step ids, `<batch>.<place>`."""
        named = next((str(row["batch"]) for row in self.decisions if row.get("batch")), None)
        return named if named is not None else self.step.rpartition(".")[0]

    @property
    def end(self) -> Row | None:
        """Its terminal decision; the first, if there are several."""
        return next((row for row in self.decisions if row.get("outcome") in FROM_SERVICE), None)

    @property
    def outcome(self) -> str | None:
        end = self.end
        return str(end["outcome"]) if end else None

    def decided(self, outcome: str) -> Row | None:
        return next((row for row in self.decisions if row.get("outcome") == outcome), None)


@dataclass(frozen=True, slots=True)
class Run:
    """tenant: whose credential opened it, as its caller knows; None if no caller's row names it. group: what it does,
    of the profile; a sub-agent has its root's. opened, ended: decisions of kind `run`. calls: its caller's rows."""

    id: str
    tenant: str | None
    group: RunGroup | None
    parent: str | None
    opened: Row | None
    ended: Row | None
    calls: tuple[Row, ...] = ()

    def told(self, action: str) -> list[str]:
        """Outcomes that its caller was told for calls of this action."""
        return [str(row.get("outcome")) for row in self.calls if row.get("action") == action]


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One trial. steps: by (run, step). calls: rows of calls.jsonl that belong to runs."""

    trial: Trial
    profile: Profile
    evidence: Evidence
    calls: list[Row]
    runs: dict[str, Run]
    steps: dict[tuple[str, str], Step]
    of_run: dict[str, list[Step]] = field(default_factory=dict)

    @property
    def bundled(self) -> bool:
        """Whether the profile's `capacity` is what ran; a target of its own ignores it."""
        return bundled(self.trial)

    @property
    def stalls(self) -> Stalls:
        return stalls_of(self.trial)

    def root(self, run: str) -> str:
        """The run that it descends from; itself if it was opened by its tenant."""
        seen = set()
        while run not in seen and run in self.runs and self.runs[run].parent is not None:
            seen.add(run)
            run = self.runs[run].parent or run
        return run

    def trees(self) -> dict[str, list[str]]:
        """Root -> itself and all that descend from it."""
        found: dict[str, list[str]] = defaultdict(list)
        for run in self.runs:
            found[self.root(run)].append(run)
        return dict(found)

    def of_kind(self, kind: str, *outcomes: str) -> list[Row]:
        return [
            row for row in self.evidence.decisions
            if row.get("kind") == kind and (not outcomes or row.get("outcome") in outcomes)
        ]  # fmt: skip


def frame_of(trial: Trial) -> Frame:
    """Read once a trial. Raises LedgerError on a damaged file."""
    if "capacity" not in trial.memo:
        trial.memo["capacity"] = _frame(trial)
    found: Frame = trial.memo["capacity"]
    return found


def _frame(trial: Trial) -> Frame:
    profile, evidence = profile_of(trial), evidence_of(trial)
    calls = [row for row in rows_of(trial.folder / CALLS) if row.get("action")]
    steps = _steps(evidence)
    of_run: dict[str, list[Step]] = defaultdict(list)
    for step in steps.values():
        of_run[step.run].append(step)
    runs = _runs(profile, evidence, calls, of_run)
    return Frame(trial, profile, evidence, calls, runs, steps, dict(of_run))


def _steps(evidence: Evidence) -> dict[tuple[str, str], Step]:
    arrivals, readbacks, decisions = (defaultdict[tuple[str, str], list[Row]](list) for _ in range(3))
    for row in evidence.arrivals:
        key = (str(row.get("run")), str(row.get("step")))
        (readbacks if is_readback(row) else arrivals)[key].append(row)
    for row in evidence.decisions:
        if row.get("kind") == "step":
            decisions[str(row.get("run")), str(row.get("step"))].append(row)
    keys = dict.fromkeys([*arrivals, *readbacks, *decisions])
    return {
        key: Step(*key, tuple(arrivals.get(key, ())), tuple(readbacks.get(key, ())), tuple(decisions.get(key, ())))
        for key in keys
    }


def is_readback(row: Row) -> bool:
    return bool(row.get("readback")) or row.get("operation") == "readback"


def _runs(profile: Profile, evidence: Evidence, calls: list[Row], of_run: Mapping[str, list[Step]]) -> dict[str, Run]:
    opened: dict[str, Row] = {}
    ended: dict[str, Row] = {}
    parents: dict[str, str] = {}
    for row in evidence.decisions:
        run = row.get("run")
        if run is None:
            continue
        if row.get("parent_run"):
            parents.setdefault(str(run), str(row["parent_run"]))
        if row.get("kind") == "run":
            (opened if row.get("outcome") == "opened" else ended).setdefault(str(run), row)
    asked = _calls_by_run(calls)
    runs: dict[str, Run] = {}
    parents = {**_parents_by_callers(calls), **parents}
    for run in dict.fromkeys([*opened, *ended, *asked, *of_run]):
        mine = asked.get(run, [])
        tenant = str(mine[0]["tenant"]) if mine and mine[0].get("tenant") is not None else None
        runs[run] = Run(run, tenant, None, parents.get(run), opened.get(run), ended.get(run), tuple(mine))
    return {run: _with_group(view, runs, profile) for run, view in runs.items()}


def _parents_by_callers(calls: list[Row]) -> dict[str, str]:
    """A sub-agent's open call points to the open call of its parent: known even where the controller does not say."""
    opens = {
        str(row.get("call")): str(row["run_id"]) for row in calls if row["action"] == OPEN_RUN and row.get("run_id")
    }
    return {
        str(row["run_id"]): opens[str(row["parent"])]
        for row in calls
        if row["action"] == OPEN_RUN and row.get("run_id") and str(row.get("parent")) in opens
    }


def _calls_by_run(calls: list[Row]) -> dict[str, list[Row]]:
    """By the run's id at the service: of the call itself, else of the open call that its row points to. A sub-agent
    that was refused when it opened has no id: its row is its parent's."""
    opens = {str(row.get("call")): row.get("run_id") for row in calls if row["action"] == OPEN_RUN}
    found: dict[str, list[Row]] = defaultdict(list)
    for row in calls:
        tenant = str(row.get("call")).partition(".")[0]
        run = row.get("run_id") or opens.get(f"{tenant}.{row.get('run')}") or opens.get(str(row.get("parent")))
        if run:
            found[str(run)].append(row)
    return found


def _with_group(view: Run, runs: Mapping[str, Run], profile: Profile) -> Run:
    """A run's group: that of its root's tenant which its task class names, else that tenant's only one."""
    root, seen = view, {view.id}
    while root.parent in runs and root.parent not in seen:
        seen.add(str(root.parent))
        root = runs[str(root.parent)]
    tenant = profile.tenants.get(root.tenant or str((root.opened or {}).get("tenant")))
    groups = tenant.runs if tenant else []
    task = (root.opened or {}).get("task_class")
    named = [group for group in groups if group.name == task]
    group = named[0] if named else groups[0] if len(groups) == 1 else None
    return Run(view.id, view.tenant, group, view.parent, view.opened, view.ended, view.calls)


# Batches as the profile has them


def size_of(batch: Batch) -> int:
    """How many calls it asks for."""
    return sum(step.repeat for step in batch.steps)


def batches_of(group: RunGroup) -> list[Batch]:
    """Those that a run of the group submits for certain, its sub-agents' included; re-plans are not."""
    return [*group.batches, *(batch for child, count, _ in group.sub_agents() for batch in child.batches * count)]


def envelope_limit(frame: Frame, run: Run, name: str) -> int | None:
    """`attempts` or `retry_tokens` of a run that its tenant opened: as the profile asks for it, else as the profile's
    capacity has it where that is what ran, else as the controller opened it; None: not known."""
    asked = getattr(run.group.envelope, name) if run.group else None
    if asked is None and frame.bundled and frame.profile.capacity:
        asked = getattr(frame.profile.capacity.envelope, name)
    if asked is None and run.opened is not None:
        asked = run.opened.get(f"remaining_{name}")
    return int(asked) if isinstance(asked, int) else None


def budgets_of(frame: Frame, run: Run) -> dict[str, int]:
    """Calls of each dependency that the run may make; one without a budget is not named."""
    own = run.group.envelope.budgets if run.group else None
    common = frame.profile.capacity.envelope.budgets if frame.bundled and frame.profile.capacity else None
    return {**(common or {}), **(own or {})}


# Bulkheads


def bulkheads(frame: Frame) -> dict[BulkheadKey, Bulkhead]:
    """(dependency, read | write) -> its bulkhead, at the trial's scale; nothing for a target of its own."""
    if frame.profile.capacity is None or not frame.bundled:
        return {}
    return {
        (name, kind): bulkhead
        for name, dependency in frame.profile.capacity.dependencies.items()
        for kind, bulkhead in ((READ, dependency.reads), (WRITE, dependency.writes))
    }


def limit_of(frame: Frame, key: BulkheadKey) -> int | None:
    """Most calls that may run there; an adaptive limit counts at its highest."""
    bulkhead = bulkheads(frame).get(key)
    if bulkhead is None or frame.profile.capacity is None:
        return None
    adaptive = frame.profile.capacity.dependencies[key[0]].adaptive
    return max(bulkhead.limit, adaptive.highest) if adaptive and key[1] == READ else bulkhead.limit


def held(frame: Frame, rows: Iterable[Row]) -> tuple[Ints, Ints]:
    """(from, to) of the slot that each arrival holds at the controller."""
    known = bulkheads(frame)
    begins, ends = [], []
    for row in rows:
        begin, end = int(row["t_ns"]), int(row["ended_ns"])
        bulkhead = known.get((str(row.get("dependency")), str(row.get("operation"))))
        if bulkhead is not None:
            timeout = bulkhead.timeout if row.get("status") else int(bulkhead.timeout * (1 - _TIMER_SHARE))
            end = min(end, begin + timeout)
        begins.append(begin)
        ends.append(end)
    return np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64)


def in_flight(frame: Frame, rows: Iterable[Row]) -> Levels:
    return levels(*held(frame, rows))


def work(frame: Frame) -> Iterator[Row]:
    """Arrivals that hold a slot: all but read-backs."""
    return (row for row in frame.evidence.arrivals if not is_readback(row))


def may_have_timed_out(frame: Frame, row: Row) -> bool:
    """Whether the controller may have given a call up that the dependency answered: with the stalls just before it
    arrived and just after it had ended, it took the bulkhead's timeout."""
    bulkhead = bulkheads(frame).get((str(row.get("dependency")), str(row.get("operation"))))
    if bulkhead is None:
        return False
    begin, end = int(row["t_ns"]), int(row["ended_ns"])
    longest = frame.stalls.longest(begin, end, WAY_NS)
    return longest > end - begin and longest >= bulkhead.timeout * (1 - _TIMER_SHARE)


def by_bulkhead(frame: Frame) -> dict[BulkheadKey, list[Row]]:
    found: dict[BulkheadKey, list[Row]] = defaultdict(list)
    for row in work(frame):
        found[str(row.get("dependency")), str(row.get("operation"))].append(row)
    return dict(found)


def id_of(row: Row) -> str:
    """`<run>/<step>`"""
    return f"{row.get('run')}/{row.get('step')}"


def running_at(frame: Frame, rows: Iterable[Row], at_ns: int) -> list[str]:
    """Ids of those that hold a slot at the instant."""
    rows = list(rows)
    begins, ends = held(frame, rows)
    return [id_of(rows[int(i)]) for i in np.flatnonzero((begins <= at_ns) & (at_ns < ends))]


def limited(frame: Frame) -> Iterator[tuple[str, str, list[Row], int]]:
    """(subject, what bounds it, arrivals, bound): of each bulkhead with calls, and of the ceiling above them."""
    for key, rows in sorted(by_bulkhead(frame).items()):
        limit = limit_of(frame, key)
        if limit is not None:
            yield f"{key[0]} {key[1]}s", "limit", rows, limit
    if frame.profile.capacity is not None and frame.bundled:
        yield "all dependencies", "ceiling", list(work(frame)), frame.profile.capacity.ceiling


def within_limits(frame: Frame) -> list[Rule]:
    """Never more calls in flight than each bulkhead's limit and the ceiling, as the dependencies saw it."""
    return [within(frame, *bounded) for bounded in limited(frame)]


def within(frame: Frame, subject: str, what: str, rows: list[Row], bound: int) -> Rule:
    peak = in_flight(frame, rows).peak()
    sentence = f"{subject}: {peak.most} calls in flight at once where the {what} is {bound}"
    named = running_at(frame, rows, peak.at_ns) if peak.most > bound else ()
    return at_most(subject, f"calls in flight, {what}", peak.most, bound, "calls", len(rows), sentence, named)


def was_full(frame: Frame, key: BulkheadKey | None, from_ns: int = 0, to_ns: int = 2**62) -> bool:
    """Whether a bulkhead (None: the ceiling) was full in the window. Evidence, never a judgement: between the end of a
    call and the arrival of the next a slot looks free from outside, so the controller's own count is believed, too."""
    capacity = frame.profile.capacity
    bound = limit_of(frame, key) if key else capacity.ceiling if capacity is not None and frame.bundled else None
    if bound is None:
        return False
    rows = by_bulkhead(frame).get(key, []) if key else list(work(frame))
    told = [
        int(row.get("in_use" if key else "total_in_use") or 0)
        for row in frame.of_kind("step", "admitted")
        if from_ns <= int(row["t_ns"]) < to_ns and key in (None, (row.get("dependency"), row.get("operation")))
    ]
    return max(in_flight(frame, rows).peak(from_ns, to_ns).most, max(told, default=0)) >= bound


# Waiting


def bulkhead_of(step: Step) -> BulkheadKey:
    row = (step.arrivals or step.decisions)[0]
    return str(row.get("dependency")), str(row.get("operation"))


def waits_of(steps: Iterable[Step]) -> dict[BulkheadKey, list[tuple[int, int, Step]]]:
    """Bulkhead -> (from, to, step): from when a step was queued to when it started or ended, whichever came first."""
    found: dict[BulkheadKey, list[tuple[int, int, Step]]] = defaultdict(list)
    for step in steps:
        queued = step.decided("queued")
        if queued is None:
            continue
        begin = int(queued["t_ns"])
        after = [step.decided("admitted"), step.end, *step.arrivals[:1]]
        until = min((int(row["t_ns"]) for row in after if row is not None and int(row["t_ns"]) >= begin), default=begin)
        found[bulkhead_of(step)].append((begin, until, step))
    return dict(found)
