"""Trials of a capacity layer, told row by row: for what checks make of single rows. Instants are in milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.ledger.reader import EFFECTS, Trial, read_trial
from tests.unit.cost_trials import Asked, S, document, group, told
from tests.unit.ledgers import Rows, manifest_edited, write_rows

MS = S // 1000
KINDS = {"reads": {"limit": 2, "queue": 50, "timeout": "1s"}, "writes": {"limit": 3, "queue": 50, "timeout": "400ms"}}
BESIDE = {
    "workers": 60, "service_time": "20ms", **KINDS,
    "circuit": {"window": "1s", "min_calls": 100000, "slow": "1s", "open_for": "1s", "lease": "1s"},
}  # fmt: skip
ADAPTIVE = {**BESIDE, "adaptive": {"lowest": 1, "highest": 5, "slow": "1s", "window": "1s"}}
ONE = {"north": [group()]}
CALLS_ONLY = {
    "name": "plain", "duration": "20s", "phases": {}, "ordinary": [], "tenants": {"north": {"rate": "1/s"}},
    "service": {"workers": 1, "service_time": "10ms", "admission": {"policy": "shared_fifo", "queue": 10}},
}  # fmt: skip


def profile(tenants: Mapping[str, Rows] = ONE, **capacity: Any) -> dict[str, Any]:
    """Two dependencies, one of whose limit of reads adapts. capacity: in place of what it has here."""
    return document(None, tenants, **{"dependencies": {"model": BESIDE, "moving": ADAPTIVE}, "ceiling": 4, **capacity})


def trial(
    folder: Path, *, calls: Iterable[dict[str, Any]] = (), arrivals: Iterable[dict[str, Any]] = (),
    decisions: Iterable[dict[str, Any]] = (), effects: Iterable[dict[str, Any]] = (),
    document: dict[str, Any] | None = None, target: str = "simulator",
) -> Trial:  # fmt: skip
    """Of one tenant, `north`. target: `url` for one of its own, which ignores the profile's capacity."""
    asked = Asked("north", list(calls), list(arrivals), list(decisions))
    told(folder / "trial", document or profile(), asked)
    write_rows(folder / "trial", effects, EFFECTS)
    mine = read_trial(folder / "trial")
    if target == "simulator":
        return mine
    return manifest_edited(mine, lambda manifest: manifest["target"].update(kind=target))


def asked(call: str, action: str = "open", run_id: str | None = None, **more: Any) -> dict[str, Any]:
    """A row of a caller."""
    row = {"call": call, "due_ns": 0, "action": action, "outcome": "served", **more}
    return {**row, "run_id": run_id} if run_id else row


def seen(
    begin: float, end: float, dependency: str = "model", operation: str = "read", run: str = "r", step: str = "b0.0",
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """An arrival."""
    return {
        "t_ns": round(begin * MS), "ended_ns": round(end * MS), "dependency": dependency, "operation": operation,
        "run": run, "step": step, "status": 200, **more,
    }  # fmt: skip


def said(at: float, kind: str, outcome: str, run: str = "r", **more: Any) -> dict[str, Any]:
    """A decision."""
    return {"t_ns": round(at * MS), "kind": kind, "outcome": outcome, "run": run, **more}
