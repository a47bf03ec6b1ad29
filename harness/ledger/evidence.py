"""The service's side of a trial as plain rows: decisions of the controller, arrivals and effects of the dependencies.

Small on purpose: trials of the capacity layer have thousands of rows, not millions. Keys are those of
`stub_service/capacity/records.py`; a row from elsewhere may lack any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.ledger.reader import ARRIVALS, EFFECTS, Trial, rows_of

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Evidence:
    """In order of `t_ns`. has_*: whether the ledger has that kind at all (none is not the same as nothing)."""

    decisions: list[Row]
    arrivals: list[Row]
    effects: list[Row]
    has_decisions: bool
    has_arrivals: bool
    has_effects: bool


def evidence_of(trial: Trial) -> Evidence:
    """Read once a trial: nobody changes its rows. Raises LedgerError on a file that is damaged."""
    if "evidence" not in trial.memo:
        trial.memo["evidence"] = _read(trial)
    found: Evidence = trial.memo["evidence"]
    return found


def _read(trial: Trial) -> Evidence:
    folder = trial.folder
    decisions = [row for row in trial.decisions() if row.get("part") == "capacity"]
    return Evidence(
        decisions=_in_time(decisions),
        arrivals=_in_time(list(rows_of(folder / ARRIVALS))),
        effects=_in_time(list(rows_of(folder / EFFECTS))),
        has_decisions=bool(decisions),
        has_arrivals=(folder / ARRIVALS).exists(),
        has_effects=(folder / EFFECTS).exists(),
    )


def _in_time(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: int(row.get("t_ns", -1)))
