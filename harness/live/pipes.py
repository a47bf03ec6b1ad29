"""Lines over the pipes to the parent, without ever making the schedule wait for it; and signals."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

import gevent

_READ = 1
_LINE_LIMIT = 64 * 1024
_LAST_WORD_S = 2.0


class LineReader:
    """Calls `on_line` for each line on a descriptor, and `on_end` once, at its end."""

    def __init__(self, loop: Any, fd: int, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._fd = fd
        self._on_line = on_line
        self._on_end = on_end
        self._buffer = b""
        self._watcher = loop.io(fd, _READ)
        self._watcher.start(self._on_readable)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._fd, _LINE_LIMIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._on_line(line)
        if not data or len(self._buffer) > _LINE_LIMIT:
            self.close()
            self._on_end()

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None


class LineWriter:
    """`offer` drops a line while an earlier one is stuck in the pipe; `finish` waits a moment for the last one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._stuck = b""
        os.set_blocking(fd, False)

    def offer(self, line: bytes) -> None:
        if self._push():
            self._stuck = line + b"\n"
            self._push()

    def _push(self) -> bool:
        """True once nothing is left. A reader that is gone takes everything."""
        while self._stuck:
            try:
                self._stuck = self._stuck[os.write(self._fd, self._stuck) :]
            except BlockingIOError:
                return False
            except OSError:
                self._stuck = b""
        return True

    def finish(self, line: bytes) -> None:
        self._stuck += line + b"\n"
        while not self._push() and select.select([], [self._fd], [], _LAST_WORD_S)[1]:
            pass


def epoch_in(line: bytes) -> int | None:
    """The instant that the parent says; None, with a word on standard error, if the line is not one."""
    try:
        return int(json.loads(line)["epoch_monotonic_ns"])
    except (ValueError, KeyError, TypeError):
        wanted = '{"epoch_monotonic_ns": 123}'
        print(f"harness.live: standard input: expected one line such as {wanted}", file=sys.stderr)
        return None


def on_signals(act: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, act)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
