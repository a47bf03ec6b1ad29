"""The one error of this package: what is wrong, where, and what to do about it."""

from __future__ import annotations

from harness.errors import BadInput


class RecordedError(BadInput):
    """Recorded traffic that cannot be used. str() is one printable line: `file:line: rule; remedy`."""

    def __init__(self, where: str, rule: str, remedy: str = "") -> None:
        self.where, self.rule, self.remedy = where, rule, remedy
        super().__init__(
            ": ".join(part for part in (printable(where, 300), rule) if part) + (f"; {remedy}" * bool(remedy))
        )


def printable(text: str, limit: int = 120) -> str:
    """One line that is safe to print: what does not print is escaped, and it is cut after `limit` characters."""
    cut = text[: limit + 1]
    shown = cut if cut.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in cut)
    return shown if len(shown) <= limit else shown[:limit] + "…"


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii") if not 0xD800 <= ord(char) < 0xE000 else f"\\u{ord(char):04x}"
