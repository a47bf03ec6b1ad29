"""Somebody else's work on the same machine: a process that never rests, and that ends with whoever started it."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self

_SPIN = (
    "import os, sys, threading\n"
    "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n"
    "while True:\n    sum(range(1000))\n"
)


class Burner:
    """`with Burner():` keeps one core busy. Its standard input ends when its parent does, and so does it."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([sys.executable, "-c", _SPIN], stdin=subprocess.PIPE)
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
