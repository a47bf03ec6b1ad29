"""How ledger rows go from a worker to the master, so that none is lost unseen and none is written twice.

Go-back-N with cumulative acknowledgements (A. Tanenbaum, "Computer Networks", section 3.4): batches count from 0; the
master takes just the next one, and acknowledges the last it has written; what is not acknowledged in time is sent
again, from the oldest on. Without clock or socket: time is an argument.

What was acknowledged is in the file. Never acknowledges what was not written.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import orjson

ROWS_A_BATCH = 512
BYTES_A_BATCH = 256 << 10
WINDOW = 16
"""Batches under way at once: far below what ZeroMQ holds (1,000 messages) before it refuses or drops any."""
AGAIN_NS = 1_000_000_000
LARGEST_BATCH = 16 << 20
MOST_HELD_BYTES = 256 << 20
"""Of rows that wait in a worker's memory. A master that falls back by more is not keeping up at all."""


class NotInOrder(ValueError):
    """A message that this protocol does not have: whoever sent it is no worker of this trial."""


@dataclass(frozen=True, slots=True)
class Batch:
    """data: so many whole lines."""

    seq: int
    count: int
    data: bytes


class Outbox:
    """The worker's side. `add` lines; `due` says which batches to send now; `acknowledged` forgets what is safe."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._bytes = 0
        self._batches: deque[Batch] = deque()
        self._next_seq = 0
        self._sent = 0  # of self._batches, from the left
        self._oldest_sent_ns = 0
        self.rows = 0
        self.held_bytes = 0

    def add(self, line: bytes) -> None:
        self._lines.append(line)
        self._bytes += len(line)
        if len(self._lines) >= ROWS_A_BATCH or self._bytes >= BYTES_A_BATCH:
            self.close_batch()

    def close_batch(self) -> None:
        """What was added so far is to be sent, though the batch is not full."""
        if self._lines:
            data = b"".join(self._lines)
            self._batches.append(Batch(self._next_seq, len(self._lines), data))
            self._next_seq += 1
            self.rows += len(self._lines)
            self.held_bytes += len(data)
            self._lines.clear()
            self._bytes = 0

    def due(self, now_ns: int) -> list[Batch]:
        """Batches to send now, in order: new ones as the window allows, or all of the window again."""
        if self._sent and now_ns - self._oldest_sent_ns >= AGAIN_NS:
            self._sent = 0
        until = min(WINDOW, len(self._batches))
        batches = [self._batches[place] for place in range(self._sent, until)]
        if batches and not self._sent:
            self._oldest_sent_ns = now_ns
        self._sent = max(self._sent, until)
        return batches

    def acknowledged(self, seq: int, now_ns: int) -> None:
        """All batches up to `seq` are written. An old or foreign number changes nothing."""
        while self._batches and self._batches[0].seq <= seq < self._next_seq:
            self.held_bytes -= len(self._batches.popleft().data)
            self._sent = max(0, self._sent - 1)
            self._oldest_sent_ns = now_ns

    @property
    def empty(self) -> bool:
        """Everything that was added is acknowledged."""
        return not self._batches and not self._lines


class Inbox:
    """The master's side of one worker. rows: written so far; original: original calls among them."""

    def __init__(self) -> None:
        self.next_seq = 0
        self.rows = 0
        self.original = 0

    def expects(self, batch: Batch) -> bool:
        """Whether to write it: it is the next. One that was written already, or one behind a gap, is not; either way
        `acknowledge` is what the worker should hear. Raises NotInOrder."""
        if not 0 < batch.count <= len(batch.data) <= LARGEST_BATCH or batch.seq < 0:
            raise NotInOrder(f"a batch of {batch.count} rows in {len(batch.data)} bytes, number {batch.seq}")
        if not batch.data.endswith(b"\n") or batch.data.count(b"\n") != batch.count:
            raise NotInOrder(f"batch {batch.seq} does not hold the {batch.count} lines that it says")
        return batch.seq == self.next_seq

    def written(self, batch: Batch, original: int) -> None:
        """It is in the file. original: of its rows (`originals`)."""
        self.next_seq += 1
        self.rows += batch.count
        self.original += original

    @property
    def acknowledge(self) -> int:
        """The last batch that is written; -1: none yet."""
        return self.next_seq - 1


def originals(data: bytes) -> int:
    """Original calls among the rows, each counted once, however often it was tried. Raises NotInOrder."""
    try:
        rows = orjson.loads(b"[" + data[:-1].replace(b"\n", b",") + b"]")
        return sum(row["round"] == 0 and row["attempt"] <= 1 for row in rows)
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise NotInOrder(f"rows that are not of a ledger ({type(error).__name__})") from None
