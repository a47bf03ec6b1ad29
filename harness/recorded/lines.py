"""Bounded lines out of open files: gzip by content, a byte order mark, CRLF, no end of the last line, endless lines.

Never holds more than one line of at most MAX_LINE_BYTES, whatever the file is.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from harness.recorded.errors import RecordedError

MAX_LINE_BYTES = 1 << 20
BOMB_RATIO = 200
BOMB_FROM_BYTES = 256 << 20
_SKIP_BYTES = 1 << 16
_BOMS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))


@dataclass(frozen=True, slots=True)
class Source:
    """An open file. name: for messages. size: bytes, None for a pipe. tenant: its name with `--tenant file`."""

    name: str
    stream: BinaryIO
    size: int | None = None
    tenant: str = ""


class Unpacked:
    """A source as plain bytes: unpacked if it is gzip. Read it once, by `lines` or in pieces (`read`)."""

    def __init__(self, source: Source) -> None:
        self.source = source
        raw = source.stream if isinstance(source.stream, io.BufferedReader) else _buffered(source.stream)
        with damage_told(source):
            self.packed = raw.peek(2)[:2] == b"\x1f\x8b"
        self.stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if self.packed else cast(BinaryIO, raw)
        self._read_bytes = 0

    @property
    def most_bytes(self) -> int:
        """Beyond this a packed file is a bomb."""
        return max(BOMB_FROM_BYTES, BOMB_RATIO * (self.source.size or 0)) if self.packed else 1 << 62

    def peek(self, least: int) -> bytes:
        """Some of what comes next, at most what one read brings, without taking it. Raises RecordedError."""
        with damage_told(self.source):
            return bytes(cast(io.BufferedReader, self.stream).peek(least))

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end. Raises RecordedError."""
        with damage_told(self.source):
            piece = self.stream.read(size)
        self._read_bytes += len(piece)
        _stop_bomb(self._read_bytes, self.most_bytes, self.source)
        return piece


@contextmanager
def damage_told(source: Source) -> Iterator[None]:
    """What can go wrong while reading becomes a RecordedError."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordedError(
            source.name, f"damaged gzip ({error})", "fetch the file again, or unpack what is left"
        ) from None
    except OSError as error:
        raise RecordedError(source.name, f"cannot be read ({error.strerror or error})") from None


def lines(source: Source | Unpacked) -> Iterator[bytes | None]:
    """Every line without its end; None for one longer than MAX_LINE_BYTES. Raises RecordedError."""
    unpacked = source if isinstance(source, Unpacked) else Unpacked(source)
    with damage_told(unpacked.source):
        yield from _lines(unpacked.stream, unpacked.source, unpacked.most_bytes)


def _buffered(stream: BinaryIO) -> io.BufferedReader:
    return io.BufferedReader(cast(io.RawIOBase, stream))


def _lines(stream: BinaryIO, source: Source, bomb_bytes: int) -> Iterator[bytes | None]:
    line = stream.readline(MAX_LINE_BYTES + 1)
    for bom, name in _BOMS:
        if line.startswith(bom):
            raise RecordedError(source.name, f"is {name} text", "convert it to UTF-8 first (iconv -t UTF-8)")
    line = line.removeprefix(b"\xef\xbb\xbf")
    read_bytes = 0
    while line:
        read_bytes += len(line)
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(_SKIP_BYTES)
                read_bytes += len(line)
                _stop_bomb(read_bytes, bomb_bytes, source)
            yield None
        else:
            yield line.rstrip(b"\r\n")
        _stop_bomb(read_bytes, bomb_bytes, source)
        line = stream.readline(MAX_LINE_BYTES + 1)


def _stop_bomb(read_bytes: int, bomb_bytes: int, source: Source) -> None:
    if read_bytes > bomb_bytes and source.size is not None:
        raise RecordedError(
            source.name, f"unpacks to more than {BOMB_RATIO} times its size: no log does", "unpack it yourself and look"
        )
