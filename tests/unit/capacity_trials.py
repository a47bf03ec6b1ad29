"""Trials of the capacity layer for tests of its checks: healthy ones in virtual time, whose rows are then edited.

An edit writes what a defect would have written, and nothing else: so a test says which rows a verdict hangs on.
"""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from harness.checks.judge import judge_one
from harness.checks.verdict import Verdict
from harness.ledger.reader import ARRIVALS, CALLS, DECISIONS, Trial, read_trial
from harness.ledger.stalls import STALLS
from harness.matrix import trial_in_virtual_time
from harness.profile.loader import load
from tests.unit.ledgers import Rows, manifest_edited, rows_of, write_rows, written

PROFILES = Path(__file__).resolve().parents[2] / "profiles" / "verification"
Edit = Callable[[Rows], Rows | None]
ONE_DEPENDENCY: dict[str, Any] = {
    "ceiling": 10,
    "dependencies": {
        "billing": {
            "workers": 4,
            "service_time": "30ms",
            "reads": {"limit": 4, "timeout": "1s"},
            "writes": {"limit": 4, "timeout": "2s"},
            "circuit": {
                "window": "500ms", "min_calls": 10, "failure_share": 0.5, "slow": "150ms", "slow_share": 0.4,
                "open_for": "300ms", "probes": 2, "close_after": 3, "lease": "800ms",
            },
        },
    },
    "retry": {"base": "100ms", "most": "400ms"},
    "recovery": {"from_rate": "4/s", "to_rate": "20/s", "ramp": "200ms"},
}  # fmt: skip
"""`capacity:` of a profile, whose figures are told apart."""


@cache
def document(profile: str) -> dict[str, Any]:
    return load(PROFILES / f"{profile}.yaml").document


@cache
def healthy(profile: str) -> Path:
    """Folder of the profile's healthy trial in virtual time, made once a test process; not to be written to."""
    folder = Path(mkdtemp(prefix=f"overload-{profile}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    trial_in_virtual_time(folder, document(profile))
    return folder


def trial(profile: str, into: Path, **edits: Edit | None) -> Trial:
    """A copy whose `calls`, `decisions` or `arrivals` were edited; None instead of an edit: the file is not there."""
    folder = into / profile
    shutil.copytree(healthy(profile), folder)
    for kind, edit in edits.items():
        name = {"calls": CALLS, "decisions": DECISIONS, "arrivals": ARRIVALS}[kind]
        if edit is None:
            (folder / name).unlink()
            continue
        rows = rows_of(folder, name)
        made = edit(rows)
        write_rows(folder, rows if made is None else made, name)
    return read_trial(folder)


def by_hand(
    folder: Path, decisions: Rows, arrivals: Rows, profile: dict[str, Any] | None = None,
    spans: Iterable[tuple[int, int]] = (), calls: Rows | None = None,
) -> Trial:  # fmt: skip
    """A trial of the bundled service that has these rows and no others. spans: (from_ns, to_ns) when the stub stood
    still."""
    given = {"tenants": {"agents": {"rate": "1/s"}}, "phases": {}, "ordinary": [], **(profile or {})}
    written(folder, {"agents": calls or []}, profile=given, target="simulator")
    write_rows(folder, [{"part": "capacity", **row} for row in decisions], DECISIONS)
    write_rows(folder, arrivals, ARRIVALS)
    write_rows(folder, [{"from_ns": begin, "to_ns": end} for begin, end in spans], STALLS)
    return read_trial(folder)


def judged(profile: str, check: str, into: Path, params: dict[str, Any] | None = None, **edits: Edit | None) -> Verdict:
    """params: instead of those that the profile gives."""
    mine = trial(profile, into, **edits)
    listed = mine.manifest["profile"]["checks"]
    given = next((entry[check] for entry in listed if isinstance(entry, dict) and check in entry), {})
    return judge_one(mine, check, given if params is None else params)


def with_profile(mine: Trial, edit: Callable[[dict[str, Any]], None]) -> Trial:
    return manifest_edited(mine, lambda manifest: edit(manifest["profile"]))


def failed(verdict: Verdict) -> set[str]:
    """Quantities that were broken."""
    return {finding.quantity for finding in verdict.findings if finding.word == "FAIL"}


def open_questions(verdict: Verdict) -> set[str]:
    return {finding.quantity for finding in verdict.findings if finding.word == "INCONCLUSIVE"}


def runs_of(profile: str, *groups: str) -> list[str]:
    """Ids of the runs of these groups, their sub-agents' included, in order."""
    wanted = {name for group in groups for name in (group, f"{group}.child")}
    return [
        row["run"] for row in rows_of(healthy(profile), DECISIONS)
        if row["kind"] == "run" and row["outcome"] == "opened" and row.get("task_class") in wanted
    ]  # fmt: skip


def without_runs(runs: list[str]) -> dict[str, Edit]:
    """Edits that leave out all rows of these runs."""
    gone = set(runs)
    return {
        "decisions": lambda rows: [row for row in rows if row.get("run") not in gone],
        "arrivals": lambda rows: [row for row in rows if row.get("run") not in gone],
        "calls": lambda rows: [row for row in rows if row.get("run_id") not in gone],
    }


def each(rows: Rows, wanted: Callable[[dict[str, Any]], bool], **values: Any) -> None:
    """Sets values on the rows that are wanted; a callable value is given the row."""
    for row in rows:
        if wanted(row):
            row.update({key: value(row) if callable(value) else value for key, value in values.items()})
