"""One simulated trial for the lab, whole and in memory: the table, the series, the verdicts and the decision trace.

The simulator, the caller models, the policies and the checks are those of every other trial; the columns are a ledger's
(harness/ledger/reader.py), filled as calls end instead of from a file. Figures over time are the report's own
(harness/report/series.py). Plain functions that return JSON text: they run in a pool of processes. Writes no file.

A run is bounded by the calls that it makes, original ones and re-plans: one that would make more is stopped and
refused, so that no setting keeps a core for longer than some seconds.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from harness import checks
from harness.checks.verdict import Verdict
from harness.lab.inputs import Errors, Inputs, read
from harness.ledger import manifest as manifests
from harness.ledger.call import Call
from harness.ledger.outcomes import HELD_BACK, OPEN, REPLANNED, TERMINAL
from harness.ledger.reader import Calls, Ints, Strings, Trial
from harness.measure.tally import Tally, TenantTally
from harness.profile.demand import calls_within
from harness.profile.loader import Loaded
from harness.profile.model import Profile
from harness.report.frame import frame_of
from harness.report.series import Series, series_of
from harness.simulate.driver import DecisionSink, Simulation
from harness.simulate.ensemble import with_phases, worker_seconds
from harness.workload.plan import planned

MOST_CALLS = 150_000
MOST_TRACED = 120_000
"""Decisions that an answer holds: beyond these the trace ends early, and says so. The figures never do."""
MOST_MEMBERS = 200
JUDGED = "fairness.ordinary_unmoved"
"""What each trial of an ensemble is judged by."""
KINDS = ("queued", "started", "served", "refused", "abandoned", "held_back", "open")
TRACE_COLUMNS = ("t_us", "kind", "tenant", "seq", "round", "parent", "waiting", "running")
_CODES = {name: code for code, name in enumerate(TERMINAL)}
_KIND_OF = {"queued": 0, "started": 1, "served": 2, "throttled": 3, "expired": 4, "cancelled": 4}
_OF_CALLER = {HELD_BACK: 5, OPEN: 6}
_ROW = 12
"""Integers that are kept of each call, in the order of `trial_of`."""
_NOWHERE = Path(os.devnull)
"""The folder of a ledger that is in no folder: no file can be in it."""


class TooLong(Exception):
    """The run would make more calls than the lab allows."""


@dataclass(slots=True)
class Collected:
    """What a trial left, flat: _ROW integers a call, and an event as TRACE_COLUMNS has it (its instant in ns)."""

    profile: Profile
    tally: Tally
    rows: array[int] = field(default_factory=lambda: array("q"))
    events: array[int] = field(default_factory=lambda: array("q"))
    ended_ns: int = 0

    @property
    def calls(self) -> int:
        return len(self.rows) // _ROW

    def columns(self) -> Ints:
        """Of the events, one row a column."""
        flat = np.frombuffer(self.events, dtype=np.int64) if self.events else np.zeros(0, dtype=np.int64)
        return flat.reshape(-1, len(TRACE_COLUMNS)).T


def collect(profile: Profile) -> Collected:
    """Runs the trial. Raises TooLong."""
    made = Collected(profile, Tally(list(profile.tenants)))
    simulation = Simulation(profile, _call_sink(made), _decision_sink(made.events))
    made.ended_ns = simulation.run()
    return made


def _call_sink(made: Collected) -> Callable[[Call], None]:
    profile, add, event, count = made.profile, made.rows.extend, made.events.extend, made.tally.add
    rules = [tenant.replans for tenant in profile.tenants.values()]
    left = MOST_CALLS - sum(calls_within(profile, tenant) or 0 for tenant in profile.tenants.values())
    if left < 0:
        raise TooLong

    def on_call(call: Call) -> None:
        nonlocal left
        count(call)
        outcome = str(call.outcome)
        parent = int(call.parent.rpartition(".")[2]) if call.parent is not None else -1
        add((
            call.tenant_index, call.seq, call.round, call.run, parent, call.due_ns, call.sent_ns, call.done_ns,
            call.queue_wait_ns, call.service_ns, call.status, _CODES[outcome],
        ))  # fmt: skip
        if outcome in _OF_CALLER:
            event((call.done_ns, _OF_CALLER[outcome], call.tenant_index, call.seq, call.round, parent, -1, -1))
        rule = rules[call.tenant_index]
        if rule is not None and outcome in REPLANNED and call.round < rule.rounds:
            left -= rule.calls
            if left < 0:
                raise TooLong

    return on_call


def _decision_sink(events: array[int]) -> DecisionSink:
    add = events.extend

    def on_decision(service: Any, ticket: Any, outcome: str, reason: str | None, now_ns: int) -> None:
        call: Call = ticket.ref
        parent = int(call.parent.rpartition(".")[2]) if call.parent is not None else -1
        kind, waiting = _KIND_OF[outcome], service.policy.waiting
        add((now_ns, kind, call.tenant_index, call.seq, call.round, parent, waiting, service.running))

    return on_decision


def trial_of(made: Collected, document: dict[str, Any]) -> Trial:
    """The trial as a ledger that was never written."""
    table = np.array(made.rows, dtype=np.int64).reshape(-1, _ROW).T
    none = Strings([], np.full(table.shape[1], -1, dtype=np.int32))
    unknown = np.full(table.shape[1], -1, dtype=np.int64)
    tenant, seq, round_, run, parent, due, sent, done, wait, service, status, outcome = table
    calls = Calls(
        tenant=tenant, seq=seq, attempt=(sent >= 0).astype(np.int64), round=round_, run=run, parent=parent, due_ns=due,
        sent_ns=sent, done_ns=done, queue_wait_ns=wait, service_ns=service, status=status,
        untyped=np.zeros_like(due), outcome=outcome, offset=unknown, again_ns=unknown,
        reason=none, retry_after=none, action=none, tool=none,
    )  # fmt: skip
    begun = manifests.begin(
        trial_id=made.profile.name, created="1970-01-01T00:00:00Z", driver="simulated", document=document,
        time_scale=1.0, seed=made.profile.seed, variant=None, target={"kind": "simulator"}, clock_domain="virtual",
        plan=planned(made.profile), evidence={"decisions": False},
    )  # fmt: skip
    manifest = manifests.end(begun, "completed", made.ended_ns, made.calls, None)
    retried = np.zeros(len(due), dtype=np.bool_)
    return Trial(_NOWHERE, manifest, tuple(made.profile.tenants), calls, 0, calls, retried)


def run(inputs: Inputs) -> bytes:
    """The whole answer to a setting: JSON, or the errors of its fields."""
    found = read(inputs)
    if found.loaded is None:
        return refused(found.errors)
    try:
        made = collect(found.loaded.profile)
    except TooLong:
        return refused(_too_long(found.loaded.profile))
    trial = trial_of(made, found.loaded.document)
    series = _series(trial)
    return orjson.dumps(
        {
            **_figures(made, series, found.loaded),
            "verdicts": [_verdict(verdict) for verdict in checks.judge_all(trial)],
            "trace": _trace(made),
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def members(inputs: Inputs, numbers: tuple[int, ...]) -> bytes:
    """Trials of the ensemble by their numbers: the same setting with each tenant's phase drawn anew. The same draws as
    `overload simulate --ensemble`."""
    found = read(inputs)
    if found.loaded is None:
        return refused(found.errors)
    profile, answers = found.loaded.profile, []
    for number in numbers:
        shifted = with_phases(profile, Random(f"{profile.seed}:{number}:phases"))
        try:
            made = collect(shifted)
        except TooLong:
            return refused(_too_long(profile))
        trial = trial_of(made, found.loaded.document)
        word = checks.judge_all(trial, [JUDGED])[0].word.value
        answers.append({**_figures(made, _series(trial), found.loaded), "word": word})
    return orjson.dumps({"members": answers})


def _series(trial: Trial) -> Series:
    """A line for every tenant, however many the lab takes."""
    return series_of(trial, frame_of(trial), most=len(trial.tenants))


def refused(errors: Errors) -> bytes:
    return orjson.dumps({"errors": errors})


def _too_long(profile: Profile) -> Errors:
    original = sum(calls_within(profile, tenant) or 0 for tenant in profile.tenants.values())
    limit = f"a run in the lab makes at most {MOST_CALLS:,} calls"
    if original > MOST_CALLS:
        return {"duration": [f"{limit}, and the rates ask for {original:,}; make it shorter, or use overload simulate"]}
    remedy = "fewer rounds or new calls, a shorter burst, or overload simulate, which has no bound"
    return {"replans.rounds": [f"{limit}, and with its re-plans this one makes more; {remedy}"]}


def _figures(made: Collected, series: Series, loaded: Loaded) -> dict[str, Any]:
    ordinary = set(made.profile.ordinary)
    rows = [_row(row, row.tenant in ordinary) for row in made.tally.tenants]
    waiting, running, most = _occupancy(made, series)
    return {
        "calls": made.calls,
        "ended_s": made.ended_ns / 1e9,
        "tenants": rows,
        "summary": _summary(made, most),
        "phases": [
            {"name": name, "from": window.from_ns / 1e9, "to": window.to_ns / 1e9}
            for name, window in made.profile.phases.items()
        ],
        "series": {
            "width_s": series.width_s,
            "starts": series.starts_s,
            "end": series.end_s,
            "lines": [
                {"name": line.tenant, "ordinary": line.ordinary, "offered": line.offered_per_s,
                 "served": line.served_per_s, "refused": line.refused_per_s, "wait": line.wait_ms,
                 "replans": line.replan_share}
                for line in series.lines
            ],
            "waiting": waiting,
            "running": running,
        },
    }  # fmt: skip


def _row(row: TenantTally, ordinary: bool) -> dict[str, Any]:
    wait = row.mean_wait_ns
    return {
        "name": row.tenant, "ordinary": ordinary, "due": row.due, "offered": row.offered, "served": row.served,
        "refused": row.refused, "abandoned": row.abandoned, "replans": row.replans, "held_back": row.held_back,
        "open": row.open, "served_share": row.served_share, "wait_ms": None if wait is None else wait / 1e6,
    }  # fmt: skip


def _summary(made: Collected, most_waiting: tuple[int, int]) -> dict[str, Any]:
    tallies, ordinary = made.tally.tenants, set(made.profile.ordinary)
    ours = [row for row in tallies if row.tenant in ordinary]
    agents = [row for row in tallies if row.tenant not in ordinary]
    ended = sum(row.offered - row.open for row in ours)
    worst_row = min((row for row in ours if row.served_share is not None), key=_share, default=None)
    at, *_, waiting, _ = made.columns()
    before_end = np.flatnonzero((at <= made.profile.duration) & (waiting >= 0))
    return {
        "ordinary_served": sum(row.served for row in ours) / ended if ended else None,
        "ordinary_lost": ended - sum(row.served for row in ours),
        "ordinary_offered": sum(row.offered for row in ours),
        "worst": {"name": worst_row.tenant, "share": worst_row.served_share} if worst_row else None,
        "agent_due": sum(row.due for row in agents),
        "agent_offered": sum(row.offered for row in agents),
        "agent_replans": sum(row.replans for row in agents),
        "agent_held_back": sum(row.held_back for row in agents),
        "most_waiting": most_waiting[0],
        "most_waiting_s": most_waiting[1] / 1e9,
        "waiting_at_end": int(waiting[before_end[-1]]) if len(before_end) else 0,
        "open": sum(row.open for row in tallies),
        "worker_s": worker_seconds(made.profile),
    }


def _share(row: TenantTally) -> float:
    return row.served_share or 0.0


def _occupancy(made: Collected, series: Series) -> tuple[list[int], list[int], tuple[int, int]]:
    """(most calls waiting and running in each bin of the series, and the most of all with its instant [ns])."""
    bins = len(series.starts_s)
    columns = made.columns()
    at, *_, waiting, running = columns[:, columns[-2] >= 0]
    if not len(at):
        return [0] * bins, [0] * bins, (0, 0)
    place = np.minimum(at // round(series.width_s * 1e9), bins - 1)
    top = int(waiting.argmax())
    highest = (int(waiting[top]), int(at[top]))
    return _highest(place, waiting, bins), _highest(place, running, bins), highest


def _highest(place: Ints, values: Ints, bins: int) -> list[int]:
    """The highest value in each bin, what held at its begin included."""
    last = np.full(bins, -1, dtype=np.int64)
    last[place] = np.arange(len(place))
    before = np.maximum.accumulate(last)[:-1]
    most: npt.NDArray[np.int64] = np.zeros(bins, dtype=np.int64)
    most[1:] = np.where(before >= 0, values[np.maximum(before, 0)], 0)
    np.maximum.at(most, place, values)
    return [int(value) for value in most]


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {"check": verdict.check, "word": verdict.word.value, "sentence": verdict.sentence, "add": verdict.add}


def _trace(made: Collected) -> dict[str, Any]:
    table = made.columns()
    shown = np.ascontiguousarray(table[:, :MOST_TRACED])
    shown[0] //= 1_000
    columns = dict(zip(TRACE_COLUMNS, shown, strict=True))
    return {"kinds": KINDS, "total": table.shape[1], "columns": columns}
