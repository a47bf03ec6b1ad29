"""Small ledgers for tests: simulated ones that are then edited, and ones written row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson

from harness.ledger.reader import CALLS, DECISIONS, MANIFEST, Trial, read_trial
from harness.ledger.writer import write_manifest
from harness.matrix import trial_in_virtual_time
from tests.conftest import WORKED_EXAMPLE, with_values

Rows = list[dict[str, Any]]


def simulated(folder: Path, values: dict[str, Any] | None = None, **options: Any) -> Trial:
    """The worked example in virtual time, with values set at dotted paths."""
    folder.mkdir(exist_ok=True)
    return trial_in_virtual_time(folder, with_values(WORKED_EXAMPLE, values or {}), **options)


def rows_of(folder: Path, name: str = CALLS) -> Rows:
    return [orjson.loads(line) for line in (folder / name).read_bytes().splitlines()]


def write_rows(folder: Path, rows: Iterable[dict[str, Any]], name: str = CALLS) -> None:
    (folder / name).write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))


def edited(trial: Trial, edit: Callable[[Rows], Rows | None], name: str = CALLS) -> Trial:
    """The trial read again after its rows were edited in place, or replaced by what `edit` returns."""
    rows = rows_of(trial.folder, name)
    made = edit(rows)
    write_rows(trial.folder, rows if made is None else made, name)
    if name == CALLS:
        manifest_edited(trial, lambda manifest: manifest["ended"].update(calls=len(rows if made is None else made)))
    return read_trial(trial.folder)


def manifest_edited(trial: Trial, edit: Callable[[dict[str, Any]], None]) -> Trial:
    manifest = orjson.loads((trial.folder / MANIFEST).read_bytes())
    edit(manifest)
    write_manifest(trial.folder, manifest)
    return read_trial(trial.folder)


def without_decisions(trial: Trial) -> Trial:
    """As from a target that tells nothing of its own."""
    (trial.folder / DECISIONS).unlink()
    return manifest_edited(trial, lambda manifest: manifest.update(evidence={"decisions": False}))


def written(
    folder: Path, tenants: dict[str, Rows], profile: dict[str, Any] | None = None, target: str = "url", **more: Any
) -> Trial:
    """A trial of these original calls: rows with due_ns and outcome, and whatever else they say."""
    folder.mkdir(exist_ok=True)
    document = {
        "name": "written",
        "duration": "100s",
        "phases": {"calm": ["0s", "40s"], "burst": ["40s", "80s"]},
        "tenants": {name: {"rate": "1/s"} for name in tenants},
        "ordinary": list(tenants),
        **(profile or {}),
    }
    rows: Rows = []
    for index, (name, calls) in enumerate(tenants.items()):
        for seq, call in enumerate(sorted(calls, key=lambda call: call["due_ns"])):
            base = {"call": f"{index}.{seq}", "attempt": 1, "tenant": name, "round": 0, "run": seq}
            rows.append({**base, "sent_ns": call["due_ns"], "done_ns": call["due_ns"], **call})
    write_rows(folder, rows)
    manifest = {
        "schema": 1, "trial_id": "written", "profile": document, "time_scale": 1.0, "seed": 1, "plan": {},
        "target": {"kind": target}, "evidence": {"decisions": False},
        "ended": {"reason": "completed", "at_ns": 0, "calls": len(rows), "stub_loop_lag": None}, **more,
    }  # fmt: skip
    write_manifest(folder, manifest)
    return read_trial(folder)


def steady(n: int, from_s: float, to_s: float, **call: Any) -> Rows:
    """n served calls evenly over [from, to), each with a wait of 1 ms and a service time of 200 ms unless told."""
    step = (to_s - from_s) / n
    told = {"outcome": "served", "status": 200, "queue_wait_ns": 1_000_000, "service_ns": 200_000_000, **call}
    rows = [{"due_ns": int((from_s + i * step) * 1e9), **told} for i in range(n)]
    for row in rows:
        row.setdefault("done_ns", row["due_ns"] + row.get("queue_wait_ns", 0) + row.get("service_ns", 0))
    return rows
