"""Trials of a capacity layer written row by row: few steps, each at the instants that a rule is about.

Beside verification_trials.py, whose trials are whole ones: here a bound is met to the nanosecond, and one step is
all the evidence that there is. Steps are those of one dependency, `billing`, unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.checks.judge import judge_one
from harness.checks.registry import CHECKS
from harness.checks.verdict import Verdict
from harness.ledger.reader import ARRIVALS, DECISIONS, EFFECTS, read_trial
from harness.ledger.stalls import STALLS
from tests.unit.ledgers import Rows, write_rows, written

MS = 1_000_000
DEADLINE_MS = 20_000
QUEUE = {"limit": 4, "queue": 4, "timeout": "9s"}
CIRCUIT = {
    "window": "1s", "min_calls": 4, "slow": "200ms", "open_for": "1s", "probes": 2, "close_after": 3, "lease": "800ms",
}  # fmt: skip
SERVICE = {"workers": 4, "service_time": "50ms", "reads": QUEUE, "writes": QUEUE, "circuit": CIRCUIT}
CAPACITY = {
    "dependencies": {"billing": SERVICE}, "ceiling": 9, "retry": {"base": "300ms", "most": "600ms", "jitter": 0.1},
    "recovery": {"from_rate": "1/s", "to_rate": "10/s", "ramp": "1s"},
}  # fmt: skip


def ns(at_ms: float) -> int:
    return round(at_ms * MS)


def arrival(run: str, at_ms: float, number: int = 1, status: int = 200, took_ms: float = 0, **more: Any) -> dict:
    """Answered at once, or after so long."""
    told = {"t_ns": ns(at_ms), "ended_ns": ns(at_ms) + ns(took_ms), "dependency": "billing", "operation": "read"}
    return {**told, "status": status, "run": run, "step": "b0.0", "attempt": number, **more}


def opened(run: str, deadline_ms: float = DEADLINE_MS, at_ms: float = 0, **more: Any) -> dict:
    told = {"t_ns": ns(at_ms), "kind": "run", "outcome": "opened", "part": "capacity", "run": run}
    return {**told, "deadline_ns": ns(deadline_ms), **more}


def decided(run: str, at_ms: float, outcome: str = "served", reason: str | None = None, **more: Any) -> dict:
    told = {"t_ns": ns(at_ms), "kind": "step", "outcome": outcome, "reason": reason, "part": "capacity"}
    return {**told, "run": run, "step": "b0.0", "dependency": "billing", "operation": "read", **more}


def turned(at_ms: float, outcome: str, dependency: str = "billing") -> dict:
    """A transition of a circuit."""
    told = {"t_ns": ns(at_ms), "kind": "circuit", "outcome": outcome, "part": "capacity"}
    return {**told, "dependency": dependency}


def judged(
    check: str, folder: Path, arrivals: Rows, decisions: Rows, params: dict[str, Any], *, effects: Rows = (),
    calls: Rows = (), capacity: dict[str, Any] | None = None, faults: Rows = (),
    stalled: Iterable[tuple[float, float]] = (), scale: float = 1.0, target: str = "url",
    says: dict[str, Any] | None = None,
) -> Verdict:  # fmt: skip
    """capacity: beside what CAPACITY says; {}: the profile says nothing of it. stalled: (from, to) in ms. says: what
    else the profile says; its `capacity` is what ran if the target is `stub`."""
    profile: dict[str, Any] = {} if capacity == {} else {"capacity": CAPACITY | (capacity or {})}
    if faults:
        profile["faults"] = list(faults)
    trial = written(folder / "trial", {"agents": list(calls)}, profile | (says or {}), target, time_scale=scale)
    for rows, name in ((arrivals, ARRIVALS), (decisions, DECISIONS), (effects, EFFECTS)):
        write_rows(trial.folder, rows, name)
    write_rows(trial.folder, [{"from_ns": ns(begin), "to_ns": ns(end)} for begin, end in stalled], STALLS)
    return judge_one(read_trial(trial.folder), check, params)


def holds_to_bounds(
    judge: Callable[..., Verdict], check: str, name: str, taken: Iterable[Any], refused: Iterable[Any]
) -> None:
    """A figure of a check is taken up to its bounds, and judged by, and refused beyond them."""
    for value in taken:
        judge(params={name: value})
        assert getattr(CHECKS[check].params(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(ValidationError):
            CHECKS[check].params(**{name: value})
