"""What a check returns: a verdict with its number, its bound, its evidence and its witnesses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Word(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"


EXIT_CODES = {Word.PASS: 0, Word.FAIL: 1, Word.INCONCLUSIVE: 3, Word.INVALID: 4}
"""2 is bad input: nothing was sent."""

_WORST_FIRST = (Word.INVALID, Word.FAIL, Word.INCONCLUSIVE, Word.PASS)


@dataclass(frozen=True, slots=True)
class Finding:
    """One measured quantity held against one bound. margin: bound - upper end (positive: room left), same unit."""

    subject: str
    quantity: str
    word: Word
    measured: float | None
    low: float | None
    high: float | None
    bound: float | None
    unit: str
    samples: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """measured, bound and unit are those of the finding that decided; samples: how much evidence it had.

    sentence: one sentence for people. add: what to add when INCONCLUSIVE. witnesses: call ids, at most 20.
    """

    check: str
    word: Word
    measured: float | None
    bound: float | None
    unit: str
    samples: int
    sentence: str
    witnesses: tuple[str, ...] = ()
    add: str = ""
    findings: tuple[Finding, ...] = field(default=())


def worst(words: Iterable[Word]) -> Word:
    """The word that counts for all of them. No verdict at all is INCONCLUSIVE: nothing was judged."""
    present = set(words)
    return next((word for word in _WORST_FIRST if word in present), Word.INCONCLUSIVE)


def exit_code(words: Iterable[Word]) -> int:
    return EXIT_CODES[worst(words)]
