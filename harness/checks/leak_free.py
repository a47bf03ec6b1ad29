"""trial.leak_free: permits, tokens, reservations, sockets and tasks are back at zero when the trial has ended.

The last word is the target's: what it still held once nothing was on its way (`ended.leftovers` of the manifest, a
number for each kind of thing). It is held against the ledger: a step that was admitted and has no end, or an attempt
without a step that ended, holds something, whatever the target says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from harness.checks import rules
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule
from harness.checks.rulings import Breach, never
from harness.checks.step_rows import Frame, frame_of
from harness.checks.verdict import Verdict
from harness.ledger.outcomes import OPEN
from harness.ledger.reader import Trial
from harness.profile.base import Part

NAME = "trial.leak_free"


class Params(Part):
    """most: of each kind of thing that may be left; 0 unless a target keeps something on purpose. least: steps that
    must have come and gone, for a leak to show."""

    most: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    least: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 20


def judge(trial: Trial, params: Params) -> Verdict:
    ended = trial.manifest.get("ended") or {}
    told = ended.get("leftovers")
    left = dict(_flat(told)) if isinstance(told, Mapping) else {}
    if not left:
        what = "the target does not say what it still held when the trial had ended"
        return rules.withheld(NAME, what, "a target that tells its leftovers, such as the bundled stub")
    frame = frame_of(trial)
    still_open = int(trial.calls.is_outcome(OPEN).sum())
    found = [*_held(left, params), _without_end(frame, params)]
    if still_open:
        add = "a longer `drain`, so that everything has ended before it is counted"
        found.append(rules.enough("calls", "ended before the drain limit", 0, 1, f"of {still_open} open calls", add))
    passed = f"Nothing is left of {len(frame.steps)} steps: {', '.join(sorted(left))} are back at zero."
    return rules.verdict(NAME, found, passed)


def _held(left: dict[str, float], params: Params) -> Iterator[Rule]:
    for name, n in sorted(left.items()):
        sentence = f"{n:g} {name} still held when nothing was on its way"
        yield rules.at_most(name, "left at the end", n, params.most, name, 1, sentence)


def _without_end(frame: Frame, params: Params) -> Rule:
    breaches: list[Breach] = [
        (step.id, f"{len(step.attempts)} attempts, no outcome")
        for step in frame.steps.values()
        if not step.ends and (step.attempts or step.decided("step", "admitted"))
    ]
    add = "more steps"
    return never("steps", "started and never ended", breaches, len(frame.steps), params.least, add)


def _flat(told: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Numbers by name; what is nested is joined by dots. Anything but a number is not a count of things."""
    for name, value in told.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


CHECKS[NAME] = Check(
    NAME,
    "permits, tokens, reservations, sockets and tasks are back at zero at the end",
    "what the target still held at the end (`ended.leftovers` of the manifest)",
    Params,
    judge,
)
