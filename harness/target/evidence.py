"""Where the service's side of a trial is read: its own decision log, and dependencies that are ours.

A source is told when the trial is about to begin (`mark`: what is there now is none of ours) and asked for the rest
when it has ended (`lines`). Every source passes one conformance suite. Whatever is read is untrusted: bounded, and a
row that cannot be understood is counted and told, never guessed at.

Times of another host are brought to ours by an offset that the joined rows themselves bound (harness/measure/
clock_offset.py); the error goes into the manifest.
"""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from harness.target.decision_rows import MOST_LINE, DecisionRows
from harness.target.driver import reason_of
from harness.target.errors import TargetGone, TargetUnusable
from harness.target.model import DecisionFields, DecisionLog

MOST_BYTES = 4 << 30
"""Of one log in one trial."""
_CHUNK = 1 << 20


class LogSource(Protocol):
    """Whole lines of a log that grows, from a mark on."""

    def mark(self) -> None:
        """Raises TargetUnusable if it cannot be read."""

    def lines(self) -> Iterator[bytes]:
        """Lines since the mark, without their ends; one that is not whole yet is left. Raises TargetGone."""


class FileLog:
    """A file, also one that is rotated away (read to its end) or cut to nothing (read from its beginning)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._inode = -1

    def mark(self) -> None:
        try:
            with self._path.open("rb") as file:
                self._at = file.seek(0, os.SEEK_END)
                self._inode = os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            self._at = 0  # it may be made by the first call
        except OSError as error:
            raise TargetUnusable(
                f"{self._path}: the decision log cannot be read ({error.strerror}); mend evidence.decisions.file"
            ) from None

    def lines(self) -> Iterator[bytes]:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._at:
                    self._at = 0
                file.seek(self._at)
                yield from _whole_lines(iter(lambda: file.read(_CHUNK), b""))
        except FileNotFoundError:
            return
        except OSError as error:
            raise TargetGone(f"{self._path}: the decision log cannot be read ({error.strerror})") from None


class Asking(Protocol):
    """One exchange with the log's host that must succeed: method, path with query -> headers, body."""

    def __call__(self, method: str, path: str) -> tuple[http.client.HTTPMessage, bytes]: ...


class HttpLog:
    """A URL that takes `?cursor=N` (`end`: from now on), answers with whole lines, and says `Overload-Cursor`."""

    def __init__(self, ask: Asking, path: str) -> None:
        self._ask = ask
        self._path = path + ("&" if "?" in path else "?") + "cursor="
        self._cursor = "0"

    def mark(self) -> None:
        try:
            headers, _ = self._ask("GET", f"{self._path}end")
            self._cursor = self._next(headers)
        except TargetGone as error:
            raise TargetUnusable(f"the decision log does not answer: {error}; mend evidence.decisions.url") from None

    def lines(self) -> Iterator[bytes]:
        read = 0
        while read < MOST_BYTES:
            headers, body = self._ask("GET", f"{self._path}{self._cursor}")
            if not body:
                return
            read += len(body)
            yield from _whole_lines(iter((body,)))
            before, self._cursor = self._cursor, self._next(headers)
            if self._cursor == before:
                raise TargetGone("the decision log answered with lines and the cursor that it was asked with")

    @staticmethod
    def _next(headers: http.client.HTTPMessage) -> str:
        cursor = headers.get("Overload-Cursor", "")
        if not (0 < len(cursor) <= 100 and cursor.isascii() and cursor.isalnum()):
            raise TargetGone(f"the decision log came with the cursor {cursor[:40]!r}; expected Overload-Cursor: <next>")
        return cursor


DRIVER_ROWS = DecisionLog(
    url="driver:",
    time="unix_ns",
    fields=DecisionFields(
        time="/time_unix_ns", attempt="/attempt", tenant="/tenant", reason="/reason", queue_wait="/queue_wait_ms",
        service_time="/service_time_ms", waiting="/waiting", running="/running", workers="/workers",
    ),
)  # fmt: skip
"""How rows of a Python driver are read (harness/target/driver.py)."""


class DriverLog:
    """What the `evidence` of a Python driver gives."""

    def __init__(self, evidence: Callable[[int], Iterable[Mapping[str, Any]]]) -> None:
        self._evidence = evidence
        self._since_ns = 0

    def mark(self) -> None:
        self._since_ns = time.time_ns()

    def lines(self) -> Iterator[bytes]:
        try:
            for row in self._evidence(self._since_ns):
                yield orjson.dumps(row, default=str)
        except Exception as error:
            raise TargetGone(f"the driver's evidence cannot be read ({reason_of(error)})") from None


@dataclass(frozen=True, slots=True)
class Collected:
    """rows: of this trial, times by the log's clock. told: what became of its lines, for the manifest."""

    rows: list[dict[str, Any]]
    told: dict[str, Any]


def read_log(source: LogSource, log: DecisionLog, epoch_ns: int) -> Collected:
    """epoch_ns: the trial's beginning on the log's own clock. Raises TargetGone."""
    mapped = DecisionRows(log, epoch_ns)
    rows = [row for line in source.lines() if (row := mapped.of(line)) is not None]
    read = mapped.read
    told = {"rows": read.rows, "foreign": read.foreign, "unreadable": read.unreadable, "words": dict(read.words)}
    return Collected(rows, told)


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """A line longer than the limit is passed over, in pieces: memory is bounded."""
    rest, too_long = b"", False
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if not too_long and line.strip():
                yield line
            too_long = False
        if len(rest) > MOST_LINE:
            rest, too_long = b"", True
