"""A file that grows, line by line: what was added since the last look, over rotation and truncation.

`poll` never waits and never blocks: whoever calls it owns the clock. A file that was replaced under its name (another
inode) is first read to its end, then the new one from its beginning; one that became shorter was truncated in place
and is read from its beginning. Holds at most one unfinished line. A file that is gone for a moment, as in a rotation,
is waited for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.recorded.errors import RecordedError
from harness.recorded.lines import MAX_LINE_BYTES

_PIECE_BYTES = 1 << 20


class Follower:
    """path: read from its beginning, or (`from_end`) from what is added from now on. Raises RecordedError if it cannot
    be opened at first."""

    def __init__(self, path: Path, from_end: bool = False) -> None:
        self._path = path
        self._rest = bytearray()
        self._too_long = False
        self._skip_first = False
        self.rotations = self.truncations = 0
        try:
            self._file: BinaryIO | None = path.open("rb")
        except OSError as error:
            raise RecordedError(str(path), f"cannot be read ({error.strerror})", "is it the right file?") from None
        if from_end:
            end = self._file.seek(0, os.SEEK_END)
            if end:  # a line may be under way: what is left of it is no line
                self._file.seek(end - 1)
                self._skip_first = self._file.read(1) != b"\n"

    def poll(self) -> Iterator[bytes | None]:
        """Whole lines since the last poll; None for one longer than MAX_LINE_BYTES."""
        yield from self._read()
        if self._changed():
            yield from self._read()  # what was written between the last read and the rotation
            yield from self._last_line()
            self._reopen()
            yield from self._read()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> Iterator[bytes | None]:
        file = self._file
        if file is None:
            self._reopen()
            file = self._file
            if file is None:
                return
        try:
            if os.fstat(file.fileno()).st_size < file.tell():
                self.truncations += 1
                file.seek(0)
                self._rest.clear()
                self._too_long = False
            while piece := file.read(_PIECE_BYTES):
                yield from self._lines(piece)
        except OSError as error:
            raise RecordedError(str(self._path), f"cannot be read ({error.strerror})", "") from None

    def _lines(self, piece: bytes) -> Iterator[bytes | None]:
        self._rest += piece
        whole, newline, rest = bytes(self._rest).rpartition(b"\n")
        if newline:
            for line in whole.split(b"\n"):
                if self._skip_first:
                    self._skip_first = False
                elif self._too_long or len(line) > MAX_LINE_BYTES:
                    self._too_long = False
                    yield None
                else:
                    yield line.rstrip(b"\r")
        self._rest = bytearray(rest)
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest.clear()
            self._too_long = True

    def _last_line(self) -> Iterator[bytes | None]:
        """A file that was rotated away grows no more: its last line is whole, even without its end."""
        if self._rest or self._too_long:
            line = None if self._too_long else bytes(self._rest).rstrip(b"\r\n")
            self._rest.clear()
            self._too_long = False
            yield line

    def _changed(self) -> bool:
        if self._file is None:
            return False
        try:
            there, own = os.stat(self._path), os.fstat(self._file.fileno())
        except OSError:
            return False  # gone for a moment
        return (there.st_ino, there.st_dev) != (own.st_ino, own.st_dev)

    def _reopen(self) -> None:
        had = self._file is not None
        self.close()
        try:
            self._file = self._path.open("rb")
        except OSError:
            self._file = None
        self.rotations += had
