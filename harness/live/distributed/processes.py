"""Master and worker as processes: options, pipes, signals, and the worker processes that a master starts itself.

    python -m harness.live --trial DIR --workers N [--remote-workers M --listen HOST:PORT]    the master, for the parent
    python -m harness.live --worker --master HOST:PORT                                      a worker

The master is the parent's child as a trial in one process is (same pipes, same events), and the workers on its machine
are its own children: each holds the read end of a pipe from it, and stops at once when that closes.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
import orjson
from gevent.event import Event
from locust.env import Environment
from locust.event import Events
from locust.exception import RPCError

from harness.errors import BadInput
from harness.ledger.reader import CALLS
from harness.ledger.writer import JsonLines
from harness.live.distributed import wire
from harness.live.distributed.master import Master
from harness.live.distributed.worker import Worker
from harness.live.manifest import CannotBegin, Manifest, read_manifest, recordings
from harness.live.pipes import LineReader, LineWriter, epoch_in, on_signals
from harness.live.trial import PARENT_GONE
from harness.live.users import UserTask, user_classes
from harness.live.web_ui import opened
from harness.workload.plan import planned

LOCALHOST = "127.0.0.1"
GO_S = 5.0
"""How long a worker may take to end once it may."""
LOST = 4
"""Exit code of a worker whose trial came to nothing: as that of INVALID."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="be a master, with so many workers here")
    parser.add_argument(
        "--remote-workers", type=int, default=0, metavar="N", help="and so many that join by themselves"
    )
    parser.add_argument("--listen", default="", metavar="HOST:PORT", help="where a master listens for workers")
    parser.add_argument(
        "--join-within-s", type=float, default=60.0, metavar="S", help="how long to wait for the others"
    )
    parser.add_argument("--worker", action="store_true", help="be a worker")
    parser.add_argument("--master", default="", metavar="HOST:PORT", help="of a worker: where its master listens")
    parser.add_argument("--name", default="", help="of a worker: what it is called in the record")
    parser.add_argument("--local", action="store_true", help="of a worker: a child of its master, and on its clock")


def address(text: str, default_host: str, default_port: int) -> tuple[str, int]:
    """HOST, HOST:PORT, :PORT or [IPv6]:PORT. Raises CannotBegin."""
    host, colon, port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", "")
    if colon and not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise CannotBegin(f"{text!r} is not an address; give HOST or HOST:PORT, such as 10.0.0.5:{wire.DEFAULT_PORT}")
    return host.strip("[]") or default_host, int(port) if colon else default_port


# The master.


def master(options: argparse.Namespace) -> int:
    """Raises BadInput as long as nothing was sent."""
    folder: Path = options.trial
    manifest = read_manifest(folder)
    recorded = recordings(manifest.profile, folder, manifest.time_scale)
    remote = options.remote_workers > 0
    host, port = address(options.listen, "0.0.0.0" if remote else LOCALHOST, wire.DEFAULT_PORT if remote else 0)
    try:
        rows = JsonLines(folder / CALLS, 1)
    except OSError as error:
        raise CannotBegin(f"{folder / CALLS}: {error.strerror}; the ledger cannot be written") from None
    runner = _bound(host, port, manifest)
    made = Master(runner, manifest, recorded, folder, rows, options.workers + options.remote_workers)
    runner.environment.dispatcher_class = made.dispatcher
    made.listen()
    children = Children(made.process_ended)
    try:
        code = _conduct(options, made, children, runner, rows, planned(manifest.profile, recorded))
        if made.begun:
            children.wait()
        return code
    except BadInput as error:
        made.dismiss(str(error))
        raise
    finally:
        children.end()
        _unplug(runner)
        runner.server.close(linger=int(GO_S * 1000))


def _bound(host: str, port: int, manifest: Manifest) -> Any:
    """Locust's master runner, listening."""
    nothing = user_classes(list(manifest.profile.tenants), lambda place: UserTask([]))
    environment = Environment(user_classes=nothing, events=Events(), host=manifest.target_url)
    try:
        return environment.create_master_runner(host, port)
    except (RPCError, SystemExit, OSError) as error:
        why = "that port is taken" if isinstance(error, SystemExit) else str(error)
        raise CannotBegin(f"cannot listen for workers on {host}:{port} ({why}); give --listen another") from None


def _conduct(
    options: argparse.Namespace, made: Master, children: Children, runner: Any, rows: JsonLines, plan: Any
) -> int:
    out, loop = LineWriter(1), gevent.get_hub().loop
    ready, told = Event(), Event()

    def on_line(line: bytes) -> None:
        epoch = epoch_in(line)
        told.set()
        if epoch is None:
            gevent.spawn(made.halt, "error")
        elif ready.is_set():
            gevent.spawn(made.begin, epoch)

    def on_end() -> None:
        told.set()
        gevent.spawn(made.halt, PARENT_GONE)

    reader = LineReader(loop, 0, on_line, on_end)
    on_signals(made.interrupt)
    here = f"{LOCALHOST if runner.master_bind_host == '0.0.0.0' else runner.master_bind_host}:{runner.server.port}"
    for place in range(options.workers):
        children.start(f"worker-{place + 1}", here, options.trial)
    where = here if not options.remote_workers else f"{_seen_as(runner.master_bind_host)}:{runner.server.port}"
    expected = options.workers + options.remote_workers

    def waiting(names: list[str]) -> None:
        said = {"event": "waiting", "joined": names, "expected": expected, "address": where}
        if options.remote_workers:
            out.offer(orjson.dumps(said))

    if options.web_port is not None:
        page = opened(runner.environment, options.web_port, made)
        out.offer(orjson.dumps({"event": "page", "url": page}))
    made.join(options.join_within_s, waiting, where)
    made.prepare(plan)
    made.spawn()
    out.offer(orjson.dumps({"event": "ready", "workers": children.pids}))
    ready.set()
    gevent.spawn(_show, made, out)
    made.finished.wait()
    told.wait(GO_S)  # over before it began: the parent still says when it is to begin, and then hears why it does not
    reader.close()
    made.measure_again()
    rows.close()
    out.offer(orjson.dumps(made.progress()))
    out.finish(orjson.dumps(made.done()))
    made.release()
    return 0


def _unplug(runner: Any) -> None:
    """Ends Locust's own greenlets, which would ask a closed socket for ever. Its `quit` waits half a second for reports
    that nobody needs here."""
    runner.greenlet.kill(block=True)


def _show(made: Master, out: LineWriter) -> None:
    while not made.finished.wait(wire.BEAT_S):
        if made.begun:
            out.offer(orjson.dumps(made.progress()))


def _seen_as(host: str) -> str:
    return socket.gethostname() if host in ("0.0.0.0", "*", "::") else host


class Children:
    """The workers that this master starts on its own machine. ended: told of each that ends, and how."""

    def __init__(self, ended: Callable[[str, str], None]) -> None:
        self._ended = ended
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._started.items()}

    def start(self, name: str, master_address: str, folder: Path) -> None:
        command = [sys.executable, "-m", "harness.live", "--worker", "--local", "--name", name]
        command += ["--master", master_address, "--trial", str(folder)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self._started[name] = process
        gevent.spawn(self._wait, name, process)

    def _wait(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        how = f"its process was killed by signal {-code}" if code < 0 else f"its process ended with code {code}"
        self._ended(name, how)

    def wait(self) -> None:
        """For those that may go."""
        with gevent.Timeout(GO_S, False):
            for process in self._started.values():
                process.wait()

    def end(self) -> None:
        """Those that are still there: closing its standard input ends a worker at once."""
        for process in self._started.values():
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        self.wait()
        for process in self._started.values():
            if process.poll() is None:
                process.kill()
                process.wait()


# A worker.


def work(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Raises BadInput before it has joined."""
    if not options.master:
        raise CannotBegin("a worker needs its master's address: --master HOST:PORT")
    host, port = address(options.master, LOCALHOST, wire.DEFAULT_PORT)
    name = options.name or f"{socket.gethostname()}-{os.getpid()}"
    if options.local:
        # Nobody keeps a record once the master is gone: there is nothing to put in order.
        LineReader(gevent.get_hub().loop, 0, lambda line: None, lambda: os._exit(LOST))
    else:
        gevent.signal_handler(signal.SIGINT, os._exit, 130)
    runner = _connected(host, port, options.join_within_s)
    worker = Worker(runner, environment, name, local=options.local, folder=options.trial)
    on_signals(worker.leave)
    worker.join()
    worker.gone.wait()
    _unplug(runner)
    runner.client.close(linger=0)
    if worker.failed is not None:
        print(f"overload worker: {worker.failed}", file=sys.stderr)
        return 2 if worker.never_began else LOST
    return 0


def _connected(host: str, port: int, within_s: float) -> Any:
    """Locust's worker runner, which has heard of its master."""
    try:
        with gevent.Timeout(within_s):
            return Environment(user_classes=[], events=Events()).create_worker_runner(host, port)
    except (gevent.Timeout, ConnectionError, RPCError, OSError, ValueError):
        raise CannotBegin(
            f"no master answers at {host}:{port} within {within_s:g} s; is it running "
            "(overload run ... --remote-workers N), and may this machine reach that port?"
        ) from None
