"""Puts records in order of time in bounded memory: sorted runs in temporary files, merged.

An external merge sort (Knuth, TAOCP 3, 5.4). At most `chunk` records are held at once, and a batch of each open run; at
MERGE_RUNS runs these are merged into one, so that the number of open files is bounded too. What fits into one chunk
never touches the disk.
"""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from harness.recorded.record import Record

CHUNK = 100_000
MERGE_RUNS = 64
_BATCH = 1_000


def in_order(records: Iterable[Record], chunk: int = CHUNK) -> Iterator[Record]:
    """The same records by (t_ns, place)."""
    stream = iter(records)
    held = sorted(islice(stream, chunk))
    if len(held) < chunk:
        yield from held
        return
    with tempfile.TemporaryDirectory(prefix="overload-sort-") as folder:
        runs: list[Path] = []
        made = 0
        while held:
            made += 1
            runs.append(write_run(Path(folder) / str(made), held))
            if len(runs) >= MERGE_RUNS:
                made += 1
                merged = write_run(Path(folder) / str(made), heapq.merge(*map(read_run, runs)))
                for run in runs:
                    run.unlink()
                runs = [merged]
            held = sorted(islice(stream, chunk))
        yield from heapq.merge(*map(read_run, runs))


class Spool:
    """Records kept for a second reading: in memory while few, else in one temporary file."""

    def __init__(self, records: Iterable[Record], folder: Path, chunk: int = CHUNK) -> None:
        stream = iter(records)
        self._held = list(islice(stream, chunk))
        self._run: Path | None = None
        if len(self._held) == chunk:
            self._run = write_run(folder / "spool", stream)

    def __iter__(self) -> Iterator[Record]:
        yield from self._held
        if self._run is not None:
            yield from read_run(self._run)


def write_run(path: Path, records: Iterable[Record]) -> Path:
    """In batches, in Python's own marshal format: these files live as long as the process and are read by it alone."""
    stream = iter(records)
    with path.open("wb") as file:
        while batch := [tuple(record) for record in islice(stream, _BATCH)]:
            marshal.dump(batch, file)
    return path


def read_run(path: Path) -> Iterator[Record]:
    make = Record._make
    with path.open("rb") as file:
        while file.peek(1):
            yield from map(make, marshal.load(file))
