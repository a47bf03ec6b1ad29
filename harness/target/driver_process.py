"""The live driver as the parent sees it: a child process that is started, told when to begin, and listened to.

Never imports harness.live: importing it patches the process. The write end of the child's standard input stays open
for as long as this process lives, however it ends; the child stops when it closes.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from harness.errors import BadInput, TrialBroken

STDERR_LIMIT = 16 * 1024
READY_TIMEOUT_S = 60.0
EXIT_TIMEOUT_S = 10.0
DEFAULT_PORT = 5557
"""Where a master listens for workers of other machines, unless told otherwise: Locust's own."""


class DriverDied(TrialBroken):
    """The live driver ended without saying `done`. The message holds the end of what it wrote on standard error."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Who drives a trial. here: worker processes of this machine; elsewhere: those that join by themselves (overload
    worker). Neither: one process does it all. listen: where the master does, HOST:PORT. join_within_s: how long to wait
    for them all before it is given up, with nothing sent. page: the port of Locust's web page, if there is to be one.
    """

    here: int = 0
    elsewhere: int = 0
    listen: str = ""
    join_within_s: float = 60.0
    page: int | None = None

    @property
    def arguments(self) -> list[str]:
        """For `python -m harness.live`."""
        page = ["--web-port", str(self.page)] if self.page is not None else []
        if not (self.here or self.elsewhere):
            return page
        said = ["--workers", str(self.here), "--remote-workers", str(self.elsewhere)]
        said += ["--join-within-s", f"{self.join_within_s:g}", *page]
        return [*said, "--listen", self.listen] if self.listen else said


ALONE = Workers()


class LiveProcess:
    """One trial's driver. In order: `ready`, `begin`, iterate `events` (the last is `done`), `wait`.

    Its own session: a Ctrl-C at the terminal reaches the parent only, which decides (`interrupt`). workers: it is then
    the master of these, which keeps the record and says how the whole of them gets on.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None, workers: Workers = ALONE) -> None:
        self.folder = folder
        self.workers = workers
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.live", "--trial", str(folder), *workers.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ if environment is None else environment),
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors = b""
        self._threads = [
            threading.Thread(target=self._read_events, name="live-driver-events", daemon=True),
            threading.Thread(target=self._read_errors, name="live-driver-errors", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        """The last that it wrote on standard error, bounded."""
        return self._errors.decode("utf-8", "replace")

    def ready(
        self, timeout_s: float = READY_TIMEOUT_S, on_waiting: Callable[[dict[str, Any]], None] = lambda event: None
    ) -> dict[str, Any]:
        """Returns once the driver has spawned its tenants, what it said then. Raises DriverDied, or BadInput if nothing
        could be begun. on_waiting: told whenever a worker has joined, while others have not, and of the web page."""
        if self.workers.here or self.workers.elsewhere:
            timeout_s += self.workers.join_within_s + READY_TIMEOUT_S
        while (event := self._next(timeout_s)).get("event") in ("waiting", "page"):
            on_waiting(event)
        if event.get("event") != "ready":
            raise DriverDied(f"the live driver said {event!r} instead of being ready")
        return event

    def begin(self, epoch_monotonic_ns: int) -> None:
        """Tells when the trial begins: ns of CLOCK_MONOTONIC. Of a driver that has ended in order meanwhile, `events`
        has the last word. Raises DriverDied."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps({"epoch_monotonic_ns": epoch_monotonic_ns}).encode() + b"\n")
            stdin.flush()
        except OSError:
            if self.wait() != 0:
                raise self._died() from None

    def events(self) -> Iterator[dict[str, Any]]:
        """Progress as it comes; ends after `done`. Raises DriverDied if the driver ends without it."""
        while True:
            event = self._next(None)
            yield event
            if event.get("event") == "done":
                return

    def interrupt(self) -> None:
        """Asks it to stop: no new call, drain, write. A second time: at once."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self, timeout_s: float = EXIT_TIMEOUT_S) -> int:
        """Its exit code; it is killed if it does not end in time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def close(self) -> None:
        """Ends the driver, whatever it is doing: closing its standard input makes it write what it has, and stop."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        self.wait()
        for thread in self._threads:
            thread.join()
        process.stdout.close()
        process.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _next(self, timeout_s: float | None) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise DriverDied(f"the live driver was not ready within {timeout_s:.0f} s") from None
        if line is None:
            self._lines.put(None)
            raise self._died()
        try:
            event = json.loads(line)
        except ValueError:
            raise DriverDied(f"the live driver wrote a line that is not JSON: {line[:200]!r}") from None
        if not isinstance(event, dict):
            raise DriverDied(f"the live driver wrote a line that is not an object: {line[:200]!r}")
        return event

    def _died(self) -> DriverDied | BadInput:
        code = self.wait()
        self._threads[1].join()
        if code == 2:
            return BadInput(self.stderr.strip().removeprefix("harness.live: "))
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        said = self.stderr.strip()
        return DriverDied(f"the live driver {how} before it was done" + (f":\n{said}" if said else ""))

    def _read_events(self) -> None:
        stdout: IO[bytes] | None = self._process.stdout
        assert stdout is not None
        for line in stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        stderr: IO[bytes] | None = self._process.stderr
        assert stderr is not None
        while data := os.read(stderr.fileno(), 4096):
            self._errors = (self._errors + data)[-STDERR_LIMIT:]
