"""What is killed: commands of overload, the processes that each is made of, and the moments that matter to them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import orjson

from benchmarks.processes import LIVE, OTHER, PARENT, STUB, WORKER, tree_of
from benchmarks.soak.profile import document

SECONDS, RATE = 4, 100
"""Of a trial whose processes are killed."""
OVERLOAD = (sys.executable, "-m", "harness")
START, DRIVEN, END = "start", "driven", "end"
"""What a moment is counted from: the process is there; a first row is on record; the live driver is gone."""
Moment = tuple[str, float, float]
"""From what, and the earliest and the latest second after it."""


class Started(subprocess.Popen[bytes]):
    """A command in a group of its own, so that a Ctrl-C here is not one there. What it says goes to a file."""

    def __init__(self, arguments: Sequence[str], output: IO[bytes]) -> None:
        self._output = output
        super().__init__(arguments, stdout=output, stderr=output, start_new_session=True)

    @property
    def said(self) -> str:
        self._output.flush()
        return Path(f"/proc/self/fd/{self._output.fileno()}").read_bytes().decode(errors="replace")


@contextmanager
def started(arguments: Sequence[str]) -> Iterator[Started]:
    """The command; killed, with all that descend from it, if it is left."""
    with tempfile.TemporaryFile() as output:
        child = Started(arguments, output)
        try:
            yield child
        finally:
            for one in tree_of(child.pid):
                if one.alive:
                    with suppress(ProcessLookupError):
                        os.kill(one.pid, signal.SIGKILL)
            child.wait()


def run_of(profile: Path, reports: Path, workers: int = 0) -> list[str]:
    more = ["--workers", str(workers)] if workers else []
    return [*OVERLOAD, "run", str(profile), "--reports", str(reports), *more]


def _trial(folder: Path, workers: int = 0) -> list[str]:
    path = folder / "killed.yaml"
    path.write_bytes(orjson.dumps(document(SECONDS, RATE)))
    return run_of(path, folder / "reports", workers)


def _verify(folder: Path) -> list[str]:
    return [*OVERLOAD, "verify", "--only", "v05,coalesced,v06", "--reports", str(folder / "reports")]


def _serve(folder: Path) -> list[str]:
    return [*OVERLOAD, "serve", "--scenario", "refused_once", "--evidence", str(folder / "evidence")]


CALLER = """
import os, time, urllib.request
for _ in range(200):
    try:
        urllib.request.urlopen(os.environ["OVERLOAD_URL"], b"{}", timeout=1)
    except OSError:
        pass
    time.sleep(0.02)
"""


def _judge(folder: Path) -> list[str]:
    asked = ["judge", "--scenario", "refused_once", "--evidence", str(folder / "evidence")]
    return [*OVERLOAD, *asked, "--", sys.executable, "-c", CALLER]


def _pool(folder: Path) -> list[str]:
    path = folder / "ensemble.yaml"
    shared = {key: value for key, value in document(60, RATE).items() if key not in ("capacity", "faults")}
    shared["tenants"] = {name: tenant for name, tenant in shared["tenants"].items() if "runs" not in tenant}
    path.write_bytes(orjson.dumps({**shared, "checks": []}))
    return [*OVERLOAD, "simulate", str(path), "--ensemble", "60", "--jobs", "2"]


def _call_it(child: Started) -> None:
    """One request to what `serve` says it serves."""
    url = re.search(r" at (http://127\.0\.0\.1:\d+)", child.said)
    if url is not None:
        with suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"{url[1]}/service", b"{}", timeout=1)


@dataclass(frozen=True, slots=True)
class Kind:
    """arguments: of the command, given a folder of its own. victim: which of its processes. moments: equally likely.
    each: done again and again while it runs."""

    arguments: Callable[[Path], list[str]]
    victim: str
    moments: Sequence[Moment]
    each: Callable[[Started], None] = lambda child: None


_WHILE: tuple[Moment, ...] = ((START, 0, 2), (DRIVEN, 0, SECONDS + 1), (DRIVEN, 0, SECONDS + 1))
_DRIVER = (*_WHILE, (DRIVEN, SECONDS - 1, SECONDS + 2))
_LONGER = (*_WHILE, (END, 0, 1.5))
_VERIFY: tuple[Moment, ...] = ((START, 0, 2), (DRIVEN, 0, 6), (END, 0, 6))
_STANDS_IN: tuple[Moment, ...] = ((START, 0, 2), (DRIVEN, 0, 4))

KINDS = {
    "stub": Kind(_trial, STUB, _LONGER),
    "live": Kind(_trial, LIVE, _DRIVER),
    "parent": Kind(_trial, PARENT, _LONGER),
    "worker": Kind(lambda folder: _trial(folder, 2), WORKER, _DRIVER),
    "master": Kind(lambda folder: _trial(folder, 2), LIVE, _DRIVER),
    "parent-of-workers": Kind(lambda folder: _trial(folder, 2), PARENT, _LONGER),
    "verify": Kind(_verify, PARENT, _VERIFY),
    "verify-stub": Kind(_verify, STUB, _VERIFY),
    "verify-live": Kind(_verify, LIVE, _VERIFY),
    "serve": Kind(_serve, PARENT, _STANDS_IN, _call_it),
    "judge": Kind(_judge, PARENT, _STANDS_IN),
    "simulate": Kind(_pool, PARENT, ((START, 0, 5),)),
    "simulate-worker": Kind(_pool, OTHER, ((START, 0, 3),)),
}
"""By name: those of `run`, alone and with two workers; of `verify`; the stand-ins; a pool of processes."""
