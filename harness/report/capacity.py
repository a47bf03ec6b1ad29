"""What a trial of a capacity layer shows beside its calls: classes, refusals, attempts, retries, circuits, bulkheads.

Made of the rows that the controller and the dependencies wrote (harness/ledger/evidence.py), and of the callers' own.
Pure; nothing here judges. What the numbers mean:

- latency: of the callers' batches that were served (`done - due` of submit calls), by the traffic class of their run;
- queue wait: of steps that ended, all their waits together, as the controller tells it;
- attempts of a step: requests that reached its dependency, read-backs apart; 0: none did;
- refused runs: `POST /runs` answered with a refusal, as their callers were told it; they have no step, and no class but
  that of the request, where the layer's decisions of kind `cost` tell it;
- expired: steps that ended so; started late: arrivals after the deadline that their run was promised;
- in use: requests under way at a dependency, read-backs apart, held against the limit of its bulkhead.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import ValidationError

from harness.checks import capacity_frames as frames
from harness.checks.capacity_frames import Frame
from harness.checks.cost_rows import KIND as COST
from harness.ledger.evidence import Row
from harness.ledger.outcomes import EXPIRED, REFUSED, SERVED
from harness.ledger.reader import Ints, Trial
from harness.measure.occupancy import levels
from harness.report.cost import Costs, costs_json, costs_of
from harness.report.series import Series
from harness.report.summary import Times, times_of

CLASSES = (*frames.FOREGROUND, *frames.BACKGROUND)
STATES = {"opened": "open", "half_open": "half-open", "closed": "closed"}
"""State of a circuit after a transition."""
MOST_TRANSITIONS = 200
MOST_BULKHEADS = 12
_OTHER_CLASS = "(not told)"


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One traffic class. outcomes: of its steps, by how they ended."""

    traffic_class: str
    runs: int
    steps: int
    outcomes: dict[str, int]
    latency: Times
    wait: Times


@dataclass(frozen=True, slots=True)
class Bulk:
    """One bulkhead. peak: most in use at once; limit: None if the trial does not tell it. waiting: most at once."""

    dependency: str
    operation: str
    limit: int | None
    peak: int
    waiting: int
    arrivals: int
    failed: int
    effects: int

    @property
    def name(self) -> str:
        return f"{self.dependency} {self.operation}s"


@dataclass(frozen=True, slots=True)
class Transition:
    """state: that the circuit entered."""

    t_ns: int
    dependency: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """refusals: (traffic class, outcome, reason) -> batches and steps so refused, most first. refused_runs: (request or
    traffic class, outcome, reason) -> runs that were not opened, most first. cost: None where it is not counted.
    attempts: how many of a step -> steps. retries: scheduled (a token each); denied: reason -> how often. read_backs:
    looked up before anything was repeated. ceiling: most calls in flight to all dependencies, None if not told."""

    classes: tuple[ClassRow, ...]
    refusals: tuple[tuple[str, str, str, int], ...]
    expired: int
    started_late: int
    attempts: dict[int, int]
    retries: int
    denied: dict[str, int]
    read_backs: int
    transitions: tuple[Transition, ...]
    left_out: int
    bulkheads: tuple[Bulk, ...]
    ceiling: int | None
    peak: int
    steps: int
    runs: int
    refused_runs: tuple[tuple[str, str, str, int], ...] = ()
    cost: Costs | None = None


def capacity_of(trial: Trial) -> Capacity | None:
    """None for a trial without a capacity layer's evidence, or whose manifest holds no valid profile."""
    frame = _frame(trial)
    return None if frame is None else _capacity(frame)


def _frame(trial: Trial) -> Frame | None:
    try:
        frame = frames.frame_of(trial)
    except (ValidationError, KeyError, TypeError, ValueError):
        return None
    return frame if frame.evidence.has_decisions or frame.evidence.has_arrivals else None


def _capacity(frame: Frame) -> Capacity:
    transitions = [
        Transition(_at(row), str(row.get("dependency")), STATES[str(row["outcome"])], str(row.get("reason") or ""))
        for row in frame.of_kind("circuit", *STATES)
    ]
    retries = frame.of_kind("retry")
    capacity = frame.profile.capacity if frame.bundled else None
    return Capacity(
        classes=tuple(_classes(frame)),
        refusals=tuple(_refusals(frame)),
        expired=sum(step.outcome == EXPIRED for step in frame.steps.values()),
        started_late=_started_late(frame),
        attempts=dict(sorted(Counter(len(step.arrivals) for step in frame.steps.values()).items())),
        retries=sum(row.get("outcome") == "scheduled" for row in retries),
        denied=_counted(str(row.get("reason")) for row in retries if row.get("outcome") == "denied"),
        read_backs=sum(frames.is_readback(row) for row in frame.evidence.arrivals),
        transitions=tuple(transitions[:MOST_TRANSITIONS]),
        left_out=max(0, len(transitions) - MOST_TRANSITIONS),
        bulkheads=tuple(_bulkheads(frame)),
        ceiling=capacity.ceiling if capacity else None,
        peak=frames.in_flight(frame, frames.work(frame)).peak().most,
        steps=len(frame.steps),
        runs=len(frame.runs),
        refused_runs=tuple(_refused_runs(frame)),
        cost=costs_of(frame.evidence.decisions),
    )


def rows_beside(trial: Trial) -> tuple[Sequence[Row], Sequence[Row]]:
    """(the callers' rows that belong to runs, what reached the dependencies); nothing without a capacity layer."""
    frame = _frame(trial)
    return (frame.calls, frame.evidence.arrivals) if frame is not None else ((), ())


def _at(row: Row) -> int:
    return int(row.get("t_ns", 0))


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    return dict(Counter(reasons).most_common())


def class_of_runs(frame: Frame) -> dict[str, str]:
    """Run -> traffic class, as its opening told it."""
    told = {name: (run.opened or {}).get("traffic_class") for name, run in frame.runs.items()}
    return {name: str(value) if value is not None else _OTHER_CLASS for name, value in told.items()}


def _classes(frame: Frame) -> Iterable[ClassRow]:
    of_run = class_of_runs(frame)
    latency: dict[str, list[int]] = defaultdict(list)
    for run in frame.runs.values():
        for call in run.calls:
            if call.get("action") == frames.SUBMIT and call.get("outcome") == SERVED:
                latency[of_run[run.id]].append(int(call["done_ns"]) - int(call["due_ns"]))
    steps: dict[str, list[frames.Step]] = defaultdict(list)
    for step in frame.steps.values():
        steps[of_run.get(step.run, _OTHER_CLASS)].append(step)
    runs = Counter(of_run.values())
    order = {name: place for place, name in enumerate(CLASSES)}
    for name in sorted({*runs, *steps}, key=lambda name: (order.get(name, len(order)), name)):
        ends = [step.end for step in steps[name] if step.end is not None]
        waits = [int(end["queue_wait_ns"]) for end in ends if end.get("queue_wait_ns") is not None]
        outcomes = Counter(str(end["outcome"]) for end in ends)
        yield ClassRow(
            name, runs[name], len(steps[name]), dict(outcomes.most_common()), _times(latency[name]), _times(waits)
        )  # fmt: skip


def _times(values: Sequence[int]) -> Times:
    return times_of(np.array(values, dtype=np.int64))


def _refusals(frame: Frame) -> list[tuple[str, str, str, int]]:
    """Of batches refused whole, and of steps; a step of a batch that was refused whole has no decision of its own."""
    of_run = class_of_runs(frame)
    found: Counter[tuple[str, str, str]] = Counter()
    for row in [*frame.of_kind("step", *REFUSED), *frame.of_kind("batch", *REFUSED)]:
        what = str(row.get("reason") or "no reason given")
        found[of_run.get(str(row.get("run")), _OTHER_CLASS), str(row["outcome"]), what] += 1
    return [(*key, number) for key, number in found.most_common()]


def _refused_runs(frame: Frame) -> list[tuple[str, str, str, int]]:
    decided = [*frame.of_kind("run", *REFUSED), *frame.of_kind(COST, "refused")]
    told = ((row.get("request"), row.get("request_class") or row.get("traffic_class")) for row in decided)
    classes = {str(request): str(name) for request, name in told if name}
    found: Counter[tuple[str, str, str]] = Counter()
    for call in frame.calls:
        if call.get("action") == frames.OPEN_RUN and call.get("outcome") in REFUSED and not call.get("retried"):
            who = classes.get(f"{call.get('call')}.{call.get('attempt')}")
            who = who or _only_class(frame, str(call.get("tenant")))
            found[who, str(call["outcome"]), str(call.get("reason") or "no reason given")] += 1
    return [(*key, number) for key, number in found.most_common()]


def _only_class(frame: Frame, tenant: str) -> str:
    """The traffic class of a tenant all of whose runs have one."""
    of = frame.profile.tenants.get(tenant)
    classes = {group.traffic_class for group in of.runs} if of else set()
    return str(classes.pop()) if len(classes) == 1 else _OTHER_CLASS


def _started_late(frame: Frame) -> int:
    late = 0
    for row in frames.work(frame):
        run = frame.runs.get(str(row.get("run")))
        deadline = (run.opened or {}).get("deadline_ns") if run else None
        late += deadline is not None and _at(row) >= int(deadline)
    return late


def _bulkheads(frame: Frame) -> Iterable[Bulk]:
    waits = frames.waits_of(frame.steps.values())
    effects = Counter(str(row.get("dependency")) for row in frame.evidence.effects)
    arrived = frames.by_bulkhead(frame)
    for key in sorted({*arrived, *(key for key in waits if key[1] in (frames.READ, frames.WRITE))}):
        rows = arrived.get(key, [])
        spans = [(begin, end) for begin, end, _ in waits.get(key, [])]
        yield Bulk(
            *key,
            limit=frames.limit_of(frame, key),
            peak=frames.in_flight(frame, rows).peak().most,
            waiting=_levels(spans),
            arrivals=len(rows),
            failed=sum(not 200 <= int(row.get("status", 0)) < 400 for row in rows),
            effects=effects[key[0]] if key[1] == frames.WRITE else 0,
        )


def _levels(spans: Sequence[tuple[int, int]]) -> int:
    ends = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return levels(ends[:, 0], ends[:, 1]).peak().most


# Over time


@dataclass(frozen=True, slots=True)
class BulkLine:
    """A bulkhead in the bins of the trial's series: most in use, most waiting, and the limit that held at their ends.

    circuit: spans of its dependency's circuit that was not closed, as (state, from_s, to_s).
    """

    name: str
    in_use: tuple[int, ...]
    waiting: tuple[int, ...]
    limit: tuple[int | None, ...]
    circuit: tuple[tuple[str, float, float], ...]


def lines_of(trial: Trial, series: Series) -> tuple[BulkLine, ...]:
    """The busiest bulkheads over time, at most MOST_BULKHEADS; none without a capacity layer's evidence."""
    frame = _frame(trial)
    if frame is None:
        return ()
    edges = np.array([*series.starts_s, series.end_s]) * 1e9
    arrived = frames.by_bulkhead(frame)
    busiest = sorted(arrived, key=lambda key: -len(arrived[key]))[:MOST_BULKHEADS]
    waits = frames.waits_of(frame.steps.values())
    changes: dict[frames.BulkheadKey, list[Row]] = defaultdict(list)
    for row in frame.of_kind("limit"):
        changes[str(row.get("dependency")), str(row.get("operation") or frames.READ)].append(row)
    found = []
    for key in sorted(busiest):
        begins, ends = frames.held(frame, arrived[key])
        spans = np.array([(begin, end) for begin, end, _ in waits.get(key, [])], dtype=np.int64).reshape(-1, 2)
        found.append(
            BulkLine(
                f"{key[0]} {key[1]}s",
                most_in_bins(begins, ends, edges),
                most_in_bins(spans[:, 0], spans[:, 1], edges),
                _limits(frame, key, changes[key], edges),
                circuit_spans(frame, key[0], series.end_s),
            )
        )
    return tuple(found)


def most_in_bins(begins: Ints, ends: Ints, edges: Any) -> tuple[int, ...]:
    """Most spans [begin, end) that overlap at one instant of each bin [edges[i], edges[i + 1])."""
    times = np.concatenate((begins, ends))
    signs = np.concatenate((np.ones(len(begins), dtype=np.int64), -np.ones(len(ends), dtype=np.int64)))
    order = np.lexsort((signs, times))  # ends come before beginnings
    times, level = times[order], np.cumsum(signs[order])
    most = []
    for low, high in pairwise(edges):
        first, last = np.searchsorted(times, low, side="right"), np.searchsorted(times, high, side="left")
        within = [int(level[first - 1])] if first else [0]
        most.append(max([*within, int(level[first:last].max()) if last > first else 0]))
    return tuple(most)


def _limits(frame: Frame, key: frames.BulkheadKey, changes: Sequence[Row], edges: Any) -> tuple[int | None, ...]:
    limit = frames.bulkheads(frame).get(key)
    now: int | None = limit.limit if limit is not None else None
    found: list[int | None] = []
    place = 0
    for high in edges[1:]:
        while place < len(changes) and _at(changes[place]) < high:
            now = changes[place].get("limit", now)
            place += 1
        found.append(now)
    return tuple(found)


def circuit_spans(frame: Frame, dependency: str, end_s: float) -> tuple[tuple[str, float, float], ...]:
    """(state, from, to) [s] of a circuit while it was not closed."""
    spans: list[tuple[str, float, float]] = []
    state, since = "closed", 0.0
    for row in frame.of_kind("circuit", *STATES):
        if row.get("dependency") != dependency:
            continue
        if state != "closed":
            spans.append((state, since, _at(row) / 1e9))
        state, since = STATES[str(row["outcome"])], _at(row) / 1e9
    return tuple([*spans, (state, since, end_s)] if state != "closed" else spans)


# As JSON


def capacity_json(capacity: Capacity) -> dict[str, Any]:
    """Keys as in `Capacity`; a reader that knows the fields knows the document."""
    return {
        "runs": capacity.runs,
        "steps": capacity.steps,
        "classes": [asdict(row) for row in capacity.classes],
        "refusals": [
            {"traffic_class": who, "outcome": outcome, "reason": reason, "count": number}
            for who, outcome, reason, number in capacity.refusals
        ],
        "refused_runs": [
            {"class": who, "outcome": outcome, "reason": reason, "count": number}
            for who, outcome, reason, number in capacity.refused_runs
        ],
        "cost": costs_json(capacity.cost) if capacity.cost else None,
        "expired": {"steps": capacity.expired, "started_late": capacity.started_late},
        "attempts": {str(number): steps for number, steps in capacity.attempts.items()},
        "retries": {"tokens_spent": capacity.retries, "denied": capacity.denied, "read_backs": capacity.read_backs},
        "circuits": [asdict(one) for one in capacity.transitions],
        "circuits_left_out": capacity.left_out,
        "bulkheads": [asdict(one) for one in capacity.bulkheads],
        "in_flight": {"ceiling": capacity.ceiling, "peak": capacity.peak},
    }
