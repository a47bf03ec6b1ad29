"""The bracket of `fairness.recovers`: what a metastable service must recover from, and what it must not.

A check that every trial passes says nothing. So a badly protected service is driven with triggers from small to large,
in virtual time: it must recover from the smaller ones and collapse under the largest, with one and the same load before
and after. That this load is carried after a small trigger shows that capacity is not what is missing; and the healthy
service must recover from all of them.

Source: Bronson et al. 2021, "Metastable failures in distributed systems": the trigger is not the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import checks
from harness.checks.verdict import Verdict, Word
from harness.matrix import judge_in_virtual_time, numbered
from harness.profile.loader import load
from harness.shipped import VERIFICATION

CHECK = "fairness.recovers"
BADLY_PROTECTED = "replans_keep_overload_alive"
PROFILE = VERIFICATION / "defects" / f"{BADLY_PROTECTED}.yaml"
TRIGGERS: tuple[str | None, ...] = ("trigger_small", "trigger_medium", None)
"""Variants of the profile, from the smallest on; None: as it is written, which is the largest."""


@dataclass(frozen=True, slots=True)
class Step:
    """One trigger: what became of the healthy service, and of the badly protected one."""

    trigger: str
    healthy: Verdict
    unprotected: Verdict


@dataclass(frozen=True, slots=True)
class Bracket:
    """From the smallest trigger to the largest."""

    steps: tuple[Step, ...]

    def broken(self) -> tuple[str, ...]:
        """A sentence for each step that is not as it must be; none: the bracket holds."""
        found = []
        for step in self.steps:
            wanted = Word.FAIL if step is self.steps[-1] else Word.PASS
            if step.healthy.word is not Word.PASS:
                found.append(f"{step.trigger}: the healthy service did not recover ({step.healthy.sentence})")
            if step.unprotected.word is not wanted:
                must = "collapse" if wanted is Word.FAIL else "recover"
                found.append(f"{step.trigger}: the badly protected one did not {must} ({step.unprotected.sentence})")
        return tuple(found)


def bracket(
    path: Path = PROFILE,
    triggers: Sequence[str | None] = TRIGGERS,
    defect: str = BADLY_PROTECTED,
    number: int = 0,
) -> Bracket:
    """Runs it. number: of the seed and phases (matrix.numbered)."""
    return Bracket(tuple(_step(path, trigger, defect, number) for trigger in triggers))


def bracket_numbered(number: int) -> Bracket:
    """A plain function, for a pool of processes."""
    return bracket(number=number)


def _step(path: Path, trigger: str | None, defect: str, number: int) -> Step:
    document = numbered(load(path, variant=trigger, checks=checks.PARAMETERS).document, number)
    healthy, bad = (judge_in_virtual_time(document, name, [CHECK]).of(CHECK) for name in (None, defect))
    return Step(trigger or "as written", healthy, bad)
