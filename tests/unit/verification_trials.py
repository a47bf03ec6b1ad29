"""Trials of the profiles in profiles/verification, healthy, in virtual time, whose rows a test then edits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import checks
from harness.checks.verdict import Verdict
from harness.ledger.reader import ARRIVALS, CALLS, DECISIONS, EFFECTS, Trial, read_trial
from harness.matrix import trial_in_virtual_time
from harness.profile.loader import load
from tests.conftest import ROOT
from tests.unit.ledgers import rows_of, write_rows

Rows = list[dict[str, Any]]
Edit = Callable[[dict[str, Any]], dict[str, Any] | None]
PROFILES = ROOT / "profiles" / "verification"


@cache
def _kept(name: str, time_scale: float) -> tuple[TemporaryDirectory[str], Path]:
    """Simulated once a process; the folder goes with the process."""
    keeper = TemporaryDirectory()
    folder = Path(keeper.name)
    document = load(PROFILES / f"{name}.yaml", checks=checks.PARAMETERS).document
    trial_in_virtual_time(folder, document, time_scale=time_scale)
    return keeper, folder


def healthy(name: str, folder: Path, time_scale: float = 1.0) -> Trial:
    """A copy that a test may edit."""
    target = folder / "trial"
    shutil.copytree(_kept(name, time_scale)[1], target, dirs_exist_ok=True)
    return read_trial(target)


def edited(trial: Trial, file: str, edit: Edit) -> Trial:
    """Each row replaced by what `edit` makes of it; None leaves it out."""
    rows = [made for row in rows_of(trial.folder, file) if (made := edit(row)) is not None]
    write_rows(trial.folder, rows, file)
    return read_trial(trial.folder)


def arrivals(trial: Trial, edit: Edit) -> Trial:
    return edited(trial, ARRIVALS, edit)


def decisions(trial: Trial, edit: Edit) -> Trial:
    return edited(trial, DECISIONS, edit)


def more(trial: Trial, file: str, rows: Rows) -> Trial:
    write_rows(trial.folder, [*rows_of(trial.folder, file), *rows], file)
    return read_trial(trial.folder)


def without(trial: Trial, file: str) -> Trial:
    (trial.folder / file).unlink()
    return read_trial(trial.folder)


def verdict(trial: Trial, check: str) -> Verdict:
    return checks.judge_all(trial, [check])[0]


def read(trial: Trial, file: str) -> Rows:
    return rows_of(trial.folder, file)


__all__ = ["ARRIVALS", "CALLS", "DECISIONS", "EFFECTS", "Rows", "arrivals", "decisions", "edited", "healthy", "more",
           "read", "verdict", "without"]  # fmt: skip
