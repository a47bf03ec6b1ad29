"""Appends ledger rows in batches, and writes the manifest whole.

`JsonLines.add` takes a finished line; lines reach the file in one `write` when the batch is full or `flush` is called
(drivers call it a few times a second). Files are opened for append only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson

from harness.ledger.reader import MANIFEST


class JsonLines:
    """One open file of the ledger."""

    def __init__(self, path: Path, batch: int = 512) -> None:
        self._file = path.open("ab", buffering=0)
        self._lines: list[bytes] = []
        self._batch = batch
        self.written = 0

    def add(self, line: bytes) -> None:
        lines = self._lines
        lines.append(line)
        if len(lines) >= self._batch:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            self.written += len(self._lines)
            data = memoryview(b"".join(self._lines))
            self._lines.clear()
            while data:
                data = data[self._file.write(data) :]

    def close(self) -> None:
        self.flush()
        self._file.close()


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Whole, by rename: a reader never sees half of it."""
    part = folder / (MANIFEST + ".part")
    part.write_bytes(orjson.dumps(manifest, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    os.replace(part, folder / MANIFEST)
