"""A witness and the calls beside it: its rows, the call whose failure led to it, the calls that it led to, what the
service decided about it and what reached a dependency for it. What a reader looks at to believe a verdict.

Embedded for witnesses only, and bounded. Pure (given the trial's folder).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.ledger.reader import Trial
from harness.report.decision_log import Log, Row

MOST_STORIES = 150
MOST_LED_TO, MOST_ARRIVALS, MOST_CALLS = 8, 8, 8
_SEQ_BITS = 44
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Story:
    """kind: `call`, `step`, `run` or `dependency`. calls: (how it is related, row); of the witness itself `this`.
    left_out: what -> how many more there are."""

    id: str
    kind: str
    calls: tuple[tuple[str, Row], ...]
    decisions: tuple[Row, ...]
    arrivals: tuple[Row, ...]
    left_out: Mapping[str, int]


def key_of(call_id: str) -> Key | None:
    """`3.141` or, of an attempt, `3.141.1` -> (3, 141). None: it is the id of no call."""
    parts = call_id.split(".")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) < 13 for part in parts):
        return None
    tenant, seq = int(parts[0]), int(parts[1])
    return (tenant, seq) if tenant < 1 << 18 else None


def stories_of(
    trial: Trial, ids: Sequence[str], log: Log | None, of_runs: Iterable[Row] = (), arrivals: Iterable[Row] = ()
) -> dict[str, Story]:
    """Of the first MOST_STORIES ids those of which the ledger knows something, in their order. of_runs: the callers'
    rows that belong to agent runs. arrivals: what reached the dependencies."""
    ids = list(dict.fromkeys(ids))[:MOST_STORIES]
    related = _related(trial, [id_ for id_ in ids if key_of(id_) is not None])
    asked = _calls_of_runs(of_runs, {id_.partition("/")[0] for id_ in ids if key_of(id_) is None})
    reached = _arrivals(arrivals, {id_ for id_ in ids if key_of(id_) is None})
    found = {}
    for id_ in ids:
        decisions = tuple(log.of_witness.get(id_, ())) if log else ()
        here: list[Row] = []
        if key_of(id_) is not None:
            if id_ not in related:
                continue
            kind, (calls, left_out) = "call", related[id_]
        else:
            kind, calls, here, left_out = _of_service(id_, asked, reached, decisions)
        if calls or decisions or here:
            more = {**left_out, "decisions": log.more_of.get(id_, 0) if log else 0}
            told = {what: number for what, number in more.items() if number}
            found[id_] = Story(id_, kind, tuple(calls), decisions, tuple(here), told)
    return found


def _of_service(
    id_: str, of_runs: Mapping[str, list[Row]], reached: Mapping[str, list[Row]], decisions: Sequence[Row]
) -> tuple[str, list[tuple[str, Row]], list[Row], dict[str, int]]:
    """Of a step, a run or a dependency, which the service's evidence names: (kind, calls, arrivals, left out)."""
    run, _, step = id_.partition("/")
    mine, arrived = of_runs.get(run, []), reached.get(id_, [])
    if step:
        mine = [row for row in mine if row.get("action") in ("open", "submit")]
    kind = "step" if step else "run" if mine or any(row.get("run") == id_ for row in decisions) else "dependency"
    calls = [(str(row.get("action")), row) for row in mine[:MOST_CALLS]]
    more = {"calls of its run": len(mine) - len(calls), "arrivals": max(0, len(arrived) - MOST_ARRIVALS)}
    return kind, calls, arrived[:MOST_ARRIVALS], more


def _related(trial: Trial, ids: Sequence[str]) -> dict[str, tuple[list[tuple[str, Row]], dict[str, int]]]:
    """Call id -> ((relation, row), what is left out), by the callers' own rows."""
    whole = trial.by_attempt()
    calls = whole.calls
    keys = {id_: _packed(found) for id_ in ids if (found := key_of(id_)) is not None}
    wanted = np.array(sorted(set(keys.values())), dtype=np.int64)
    own = (calls.tenant << _SEQ_BITS) | calls.seq
    itself = _places(own, wanted)
    parent = np.where(calls.parent >= 0, (calls.tenant << _SEQ_BITS) | np.maximum(calls.parent, 0), -1)
    led_to = _places(parent, wanted)
    parents = {key: int(parent[places[0]]) for key, places in itself.items()}
    above = _places(own, np.array(sorted({key for key in parents.values() if key >= 0}), dtype=np.int64))
    stories = {}
    for id_, packed in keys.items():
        if packed not in itself:
            continue
        after = [place for place in led_to.get(packed, []) if calls.attempt[place] <= 1]
        rows = [("led to this", whole.row(place)) for place in above.get(parents[packed], [])[-1:]]
        rows += [("this", whole.row(place)) for place in itself[packed][:MOST_CALLS]]
        rows += [("it led to", whole.row(place)) for place in after[:MOST_LED_TO]]
        stories[id_] = rows, {"calls that it led to": max(0, len(after) - MOST_LED_TO)}
    return stories


def _packed(key: Key) -> int:
    return (key[0] << _SEQ_BITS) | key[1]


def _places(column: Any, wanted: Any) -> dict[int, list[int]]:
    """Value -> the places at which the column has it, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for place in np.flatnonzero(np.isin(column, wanted)).tolist():
        found[int(column[place])].append(place)
    return found


def _calls_of_runs(rows: Iterable[Row], runs: set[str]) -> dict[str, list[Row]]:
    """Run -> its callers' rows."""
    found: dict[str, list[Row]] = defaultdict(list)
    if runs:
        for row in rows:
            if str(row.get("run_id")) in runs:
                found[str(row["run_id"])].append(row)
    return found


def _arrivals(rows: Iterable[Row], ids: set[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    if ids:
        for row in rows:
            for id_ in (f"{row.get('run')}/{row.get('step')}", str(row.get("run"))):
                if id_ in ids:
                    found[id_].append(row)
    return found
