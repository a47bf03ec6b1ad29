"""What is wrong with a profile, all of it at once, each with its place, its rule and a remedy.

These are the only errors that reading a profile may raise: whatever the text, a caller gets a Loaded or a ProfileError.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.errors import BadInput

MOST_SHOWN = 50
MOST_FOUND = 200
"""More problems of one kind than this are not even looked at: a wall of text helps nobody, and takes long to make."""


@dataclass(frozen=True, slots=True)
class Problem:
    """file: a file, or the `--set` that is to blame. line and column count from 1; None where there is no text.

    path: dotted, as `--set` takes it. value: what was written. rule: what was broken. hint: what to do. variant: the
    variant that brought the value in.
    """

    file: str
    line: int | None
    column: int | None
    path: str
    value: str | None
    rule: str
    hint: str = ""
    variant: str | None = None

    def __str__(self) -> str:
        file = printable(self.file)
        parts = [
            file if self.line is None else f"{file}:{self.line}:{self.column}",
            f"variant {printable(self.variant)}" if self.variant is not None else "",
            self.path,
            "" if self.value is None else short(repr(self.value)),
            self.rule,
        ]
        hint = self.hint if not self.hint or self.hint.startswith("(") else f"; {self.hint}"
        return ": ".join(part for part in parts if part) + (f" {hint}" if hint.startswith("(") else hint)


class ProfileError(BadInput):
    """At least one problem; `str()` is every one of them, a line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        shown = [str(problem) for problem in self.problems[:MOST_SHOWN]]
        if len(self.problems) > MOST_SHOWN:
            shown.append(f"... and at least {len(self.problems) - MOST_SHOWN} more")
        super().__init__("\n".join(shown))


def short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(names: Iterable[str], most: int = 14) -> str:
    """`a, b, c`, at most `most` of them."""
    all_names = list(names)
    shown = ", ".join(short(printable(name), 40) for name in all_names[:most])
    return shown + (f" and {len(all_names) - most} more" if len(all_names) > most else "")


def did_you_mean(word: str, known: Sequence[str], what: str = "known") -> str:
    """`did you mean 'rate'? (known: rate, pace)`; only the list where nothing is close."""
    # Only short words and a bounded list: the comparison is quadratic.
    close = difflib.get_close_matches(word[:100], list(known[:2000]), n=1, cutoff=0.6)
    options = f"({what}: {listed(known) or 'none'})"
    return f"did you mean '{printable(close[0])}'? {options}" if close else options


def printable(text: str) -> str:
    """The text, with whatever could move a terminal's cursor or fake a line escaped."""
    return text if text.isprintable() else repr(text)[1:-1]
