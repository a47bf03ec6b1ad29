"""Trials of runs that cost something, told row by row: for rules of the checks of cost and trees at their bounds.

Instants are in seconds. The profile has one dependency, and no figure of it is drawn or measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.checks.verdict import Finding, Verdict
from harness.ledger.reader import ARRIVALS, DECISIONS, Trial, read_trial
from harness.ledger.stalls import STALLS
from tests.unit.ledgers import Rows, manifest_edited, write_rows, written

S = 1_000_000_000


def ns(seconds: float) -> int:
    return round(seconds * S)


@dataclass
class Asked:
    """Rows of one request for a run, and of what became of it."""

    tenant: str
    calls: Rows = field(default_factory=list)
    arrivals: Rows = field(default_factory=list)
    decisions: Rows = field(default_factory=list)


def group(tokens: int = 100, **more: Any) -> dict[str, Any]:
    """A group of runs of one batch of one call that uses so many tokens."""
    step = {"dependency": "model", "tool": f"of_{tokens}", "usage": {"tokens": tokens}}
    return {"name": "chat", "rate": "1/s", "batches": [[step]], **more}


def document(
    cost: Mapping[str, Any] | None, tenants: Mapping[str, list[dict[str, Any]]], **capacity: Any
) -> dict[str, Any]:
    """tenants: groups of runs of each. capacity: in place of what it has here."""
    model = {
        "workers": 60, "service_time": "20ms", "quota": {"rate": "1000000/s", "burst": 1_000_000},
        "reads": {"limit": 60, "queue": 50, "timeout": "1s"}, "writes": {"limit": 60, "queue": 50, "timeout": "1s"},
        "circuit": {"window": "1s", "min_calls": 100000, "slow": "1s", "open_for": "1s", "lease": "1s"},
    }  # fmt: skip
    told = {
        "ceiling": 100,
        "dependencies": {"model": model},
        "envelope": {"deadline": "3s", "attempts": 50, "parallel": 3, "retry_tokens": 0},
        "retry": {"base": "100ms", "most": "400ms", "jitter": 0.5},
        "recovery": {"from_rate": "100/s", "to_rate": "1000/s", "ramp": "1s"},
        **({} if cost is None else {"cost": dict(cost)}),
        **capacity,
    }
    return {
        "duration": "20s", "phases": {}, "ordinary": [], "capacity": told,
        "tenants": {name: {"runs": groups} for name, groups in tenants.items()},
    }  # fmt: skip


def opened(
    tenant: str, run: str, at: float, *, answered: float | None = None, used: Iterable[tuple[float, Any]] = (),
    closed: float | None = None, how: str = "finish", task: str | None = None, parent: str | None = None, **call: Any,
) -> Asked:  # fmt: skip
    """A run that was opened. used: (when a call of it ended, its tokens). closed: when that was asked and answered.
    task: the group that the layer says it is of. parent: the open call of the run above it. call: of its open call."""
    told = ns(at if answered is None else answered)
    row = {"due_ns": ns(at), "done_ns": told, "outcome": "served", "action": "open", "run_id": run, **call}
    one = Asked(tenant, [row if parent is None else {**row, "parent": parent}])
    if closed is not None:
        end = {"due_ns": ns(closed), "outcome": "served", "action": how, "run_id": run}
        one.calls.append(end)
    for place, (ended, tokens) in enumerate(used):
        one.arrivals.append(
            {"t_ns": ns(ended) - 1, "ended_ns": ns(ended), "dependency": "model", "operation": "read", "status": 200,
             "run": run, "tenant": tenant, "step": f"b{place}.0", "tokens": tokens}
        )  # fmt: skip
    if task is not None:
        one.decisions.append({"t_ns": told, "kind": "run", "outcome": "opened", "run": run, "task_class": task})
    return one


def turned_away(
    tenant: str, at: float, reason: str | None = "tokens", outcome: str = "throttled", answered: float | None = None,
    **call: Any,
) -> Asked:  # fmt: skip
    done = ns(at if answered is None else answered)
    return Asked(
        tenant, [{"due_ns": ns(at), "done_ns": done, "outcome": outcome, "reason": reason, "action": "open", **call}]
    )


def said(one: Asked, outcome: str, at: float, **row: Any) -> Asked:
    """With a decision of kind `cost` of its run."""
    base = {"t_ns": ns(at), "kind": "cost", "outcome": outcome, "tenant": one.tenant}
    run = one.calls[0].get("run_id")
    one.decisions.append({**base, **({} if run is None else {"run": run}), **row})
    return one


def told(
    folder: Path, profile: dict[str, Any], *asked: Asked, stalls: Iterable[tuple[float, float]] = (), **ended: Any
) -> Trial:
    """The trial of these. ended: of the manifest's."""
    tenants: dict[str, Rows] = {name: [] for name in profile["tenants"]}
    for one in asked:
        tenants.setdefault(one.tenant, []).extend(one.calls)
    folder.parent.mkdir(exist_ok=True)
    mine = written(folder, tenants, profile, "simulator")
    write_rows(folder, (row for one in asked for row in one.arrivals), ARRIVALS)
    write_rows(folder, ({"part": "capacity", **row} for one in asked for row in one.decisions), DECISIONS)
    write_rows(folder, ({"from_ns": ns(begin), "to_ns": ns(end)} for begin, end in stalls), STALLS)
    if ended:
        mine = manifest_edited(mine, lambda manifest: manifest["ended"].update(ended))
    return read_trial(folder)


def found(verdict: Verdict, quantity: str, subject: str | None = None) -> Finding:
    return next(
        one for one in verdict.findings if one.quantity == quantity and (subject is None or one.subject == subject)
    )
