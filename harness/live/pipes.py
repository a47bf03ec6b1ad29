"""Lines over the pipes to the parent, without ever making the schedule wait for it."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any

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
