"""Agent runs at a described target: what our callers ask in the words of its file, and what it answers in ours.

    open     -> `runs.open`      the run's id stands at `runs.run`
    submit   -> `runs.submit`    {steps}, each made from `runs.step`; the batch ends as its worst step does
             -> `runs.read`      again and again, while the answer is `queued`
    cancel   -> `runs.cancel`, finish -> `runs.finish`

Callers speak as the bundled capacity layer is spoken to (docs/runs.md). Pure. What a target answers is untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.ledger.outcomes import (
    BUDGET_EXHAUSTED,
    CANCELLED,
    COALESCED,
    DEPENDENCY_UNAVAILABLE,
    EXPIRED,
    FAILED,
    FROM_SERVICE,
    NEEDS_PERSON,
    QUEUED,
    SERVED,
    THROTTLED,
)
from harness.target.model import Request, Runs, StepAnswers
from harness.target.templates import RUN_NAMES, STEP_NAMES, value_of
from harness.target.understanding import MISSING, at_pointer, duration_ns

OPEN_RUN, SUBMIT, CANCEL, FINISH = "open", "submit", "cancel", "finish"
WORST_LAST = (
    SERVED, COALESCED, THROTTLED, DEPENDENCY_UNAVAILABLE, EXPIRED, BUDGET_EXHAUSTED, CANCELLED, FAILED, NEEDS_PERSON,
    QUEUED,
)  # fmt: skip
"""A batch ends as the last of these that one of its steps has; while one is queued, it has not ended."""
UNKNOWN_WORD = "unknown_step_outcome"
_BADNESS = {outcome: place for place, outcome in enumerate(WORST_LAST)}
assert set(_BADNESS) == {QUEUED, *FROM_SERVICE}


def request_for(runs: Runs, action: str) -> Request | None:
    """None: the service has no such thing."""
    found: Request | None = {
        OPEN_RUN: runs.open, SUBMIT: runs.submit, CANCEL: runs.cancel, FINISH: runs.finish,
    }[action]  # fmt: skip
    return found


def values_of(runs: Runs, run: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What templates of runs may name. asked: the body that a caller would send to the bundled capacity layer."""
    values: dict[str, Any] = {name: asked.get(name) for name in RUN_NAMES}
    values["run"] = run
    if "steps" in asked:
        values["steps"] = [_step(runs.step, step, values) for step in asked["steps"]]
    return values


def _step(form: Any, step: Mapping[str, Any], of_run: Mapping[str, Any]) -> Any:
    if form is None:
        return dict(step)
    own = {name: step.get(name) for name in STEP_NAMES}
    return value_of(form, {**own, "run": of_run["run"], "batch": of_run["batch"]})


def run_id_of(runs: Runs, document: Any) -> str | None:
    """The id of a run that was opened."""
    found = at_pointer(document, runs.run)
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    return str(found)


@dataclass(frozen=True, slots=True)
class BatchTold:
    """outcome: None if the answer does not tell of steps. queue_wait_ns: the longest; -1 unknown."""

    outcome: str | None
    reason: str | None = None
    queue_wait_ns: int = -1


def batch_of(form: StepAnswers, document: Any, asked: Mapping[str, Any]) -> BatchTold:
    """How the steps of a batch stand."""
    listed = at_pointer(document, form.pointer)
    steps = [step for step in listed if isinstance(step, dict)] if isinstance(listed, list) else []
    if form.step is not None:
        ours = {step.get("step") for step in asked.get("steps", ())}
        steps = [step for step in steps if _text_at(step, form.step) in ours]
    if not steps:
        return BatchTold(None)
    told = [_outcome_of(form, step) for step in steps]
    waits = [duration_ns(at_pointer(step, form.queue_wait), form.unit) for step in steps] if form.queue_wait else [-1]
    worst = max(told, key=lambda one: _BADNESS[one[0]])
    if worst[0] == COALESCED and any(outcome == SERVED for outcome, _ in told):
        worst = SERVED, None
    return BatchTold(worst[0], worst[1], max(waits))


def _outcome_of(form: StepAnswers, step: dict[str, Any]) -> tuple[str, str | None]:
    word = _text_at(step, form.outcome)
    outcome = form.outcomes.get(word or "", word)
    return (outcome, None) if outcome in _BADNESS else (FAILED, UNKNOWN_WORD)


def _text_at(step: dict[str, Any], pointer: str) -> str | None:
    value = at_pointer(step, pointer)
    return None if value is MISSING or not isinstance(value, str | int) else str(value)
