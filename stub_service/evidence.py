"""The service's side of the ledger: rows of decisions.jsonl and its like, appended in batches, read back by cursor.

A cursor is a byte offset; only whole lines are ever handed out. Memory is bounded: a full batch is written at once, and
the shell flushes what is left on a timer. Writing is plain blocking I/O into the page cache, some tens of microseconds
a batch, because a thread would cost the loop more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

DECISIONS, ARRIVALS, EFFECTS, STALLS = "decisions", "arrivals", "effects", "stalls"
"""Kinds of evidence; the file of each is `<kind>.jsonl`."""
_BATCH = 1024
READ_BYTES = 1 << 20


class Evidence:
    """One append-only file. Opening it raises OSError; a write that fails later is told to `on_broken`, once, and ends
    all writing: a hole in the middle would be worse than a file that is too short."""

    def __init__(self, folder: Path, on_broken: Callable[[OSError], None], kind: str = DECISIONS) -> None:
        self.path = folder / f"{kind}.jsonl"
        self._file = self.path.open("ab", buffering=0)
        self._lines: list[bytes] = []
        self._on_broken = on_broken
        self._broken = False

    def add(self, row: dict[str, Any]) -> None:
        """Keys without a value (None) must not be in the row."""
        self._lines.append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        if len(self._lines) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        if not self._lines:
            return
        data = memoryview(b"".join(self._lines))
        self._lines.clear()
        if self._broken:
            return
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._broken = True
            self._on_broken(error)

    def size(self) -> int:
        """Bytes so far: the cursor of what comes next."""
        self.flush()
        return self.path.stat().st_size

    def read(self, cursor: int, limit: int = READ_BYTES) -> tuple[bytes, int]:
        """(whole lines from byte `cursor` on, the next cursor). Raises ValueError on a cursor outside the file."""
        self.flush()
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            if not 0 <= cursor <= size:
                raise ValueError(f"the cursor must be between 0 and {size}, the size of the evidence so far")
            file.seek(cursor)
            data = file.read(limit)
        whole = data[: data.rfind(b"\n") + 1]
        return whole, cursor + len(whole)

    def close(self) -> None:
        self.flush()
        self._file.close()
