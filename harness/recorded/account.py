"""What became of every line: counts that must add up, and the first few broken lines for the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from harness.recorded.errors import RecordedError, printable

MAX_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that could not be read. text: cut and escaped."""

    where: str
    reason: str
    text: str


@dataclass(slots=True)
class Account:
    """lines = blank + header + aside + broken + read;  read = outside + kept;  planned = kept + amplified + runaway.

    formats: file -> what it was read as. folded: calls (among the kept) that went into the tenant of the rest.
    without_tenant: calls (among the read) whose line named nobody. aside: entries that never reached a server (from a
    cache, or of another scheme than HTTP). bodies_left: bodies that were too large, or no text, to be kept.
    """

    lines: int = 0
    blank: int = 0
    header: int = 0
    aside: int = 0
    bodies_left: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    read: int = 0
    outside: int = 0
    kept: int = 0
    folded: int = 0
    without_tenant: int = 0
    amplified: int = 0
    runaway: int = 0
    squeezed_gaps: int = 0
    squeezed_ns: int = 0
    formats: dict[str, str] = field(default_factory=dict)
    samples: list[Broken] = field(default_factory=list)
    show_text: bool = True

    @property
    def broken_lines(self) -> int:
        return sum(self.broken.values())

    @property
    def planned(self) -> int:
        return self.kept + self.amplified + self.runaway

    def add_broken(self, name: str, line_no: int, reason: str, line: bytes | None, entry: bool = False) -> None:
        """entry: it is the entry of that number, and its text is not shown."""
        self.broken[reason] = self.broken.get(reason, 0) + 1
        if len(self.samples) < MAX_SAMPLES:
            text = (
                printable(line[:400].decode("utf-8", "backslashreplace"))
                if line and self.show_text and not entry
                else ""
            )
            where = f"{printable(name)}: entry {line_no}" if entry else f"{printable(name)}:{line_no}"
            self.samples.append(Broken(where, reason, text))

    def check_broken(self, most: float) -> None:
        """Raises RecordedError if more than the share `most` of the lines with content is broken."""
        content = self.broken_lines + self.read
        if not content or self.broken_lines <= most * content:
            return
        first, what = self.samples[0], "entries" if set(self.formats.values()) == {"har"} else "lines"
        raise RecordedError(
            first.where,
            f"{self.broken_lines:,} of {content:,} {what} are broken, more than --max-broken {most:g}; "
            f"the first: {first.reason}" + (f": {first.text}" if first.text else ""),
            "say which --format it is, or allow more with --max-broken",
        )

    def balanced(self) -> bool:
        return (
            self.lines == self.blank + self.header + self.aside + self.broken_lines + self.read
            and self.read == self.outside + self.kept
        )

    def as_json(self) -> dict[str, Any]:
        shown = asdict(self)
        del shown["show_text"]
        return shown | {"broken_lines": self.broken_lines, "planned": self.planned}
