"""The stub as a running process: the event loop, its signals, its parent, and an orderly end.

Ends on SIGTERM, SIGINT, the end of standard input (if asked to watch it), or evidence that cannot be written. Every
call that is open then gets its terminal row, and evidence is flushed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from stub_service import app
from stub_service.admission.service import SharedService
from stub_service.capacity.config import CapacityConfig
from stub_service.capacity_shell import CapacityShell, LayDefect
from stub_service.clock import Clock
from stub_service.evidence import ARRIVALS, DECISIONS, EFFECTS, STALLS, Evidence
from stub_service.identity import Identify
from stub_service.lag import LoopLag, busy_clock
from stub_service.live import LiveService
from stub_service.metrics import Metrics
from stub_service.timers import Timers

log = logging.getLogger("stub_service")

_FLUSH_NS = 100_000_000
_CLOSE_S = 1.0
_BACKLOG = 4096
_MOST_FILES = 65_536


@dataclass(frozen=True, slots=True)
class Layer:
    """A capacity layer to be served. lay: a defect for its controller. with_controller: false: dependencies alone."""

    config: CapacityConfig
    lay: LayDefect | None
    with_controller: bool


def kinds(with_capacity: bool) -> tuple[str, ...]:
    """The kinds of evidence that a stub writes."""
    return (DECISIONS, ARRIVALS, EFFECTS, STALLS) if with_capacity else (DECISIONS, STALLS)


def serve(
    listener: socket.socket,
    service: SharedService | None,
    layer: Layer | None,
    identify: Identify,
    folder: Path,
    watch_parent: bool,
    tls: ssl.SSLContext | None = None,
) -> int:
    """Serves until told to stop. Returns the exit code."""
    return _run(_serve(listener, service, layer, identify, folder, watch_parent, tls))


def _run(main: Coroutine[Any, Any, int]) -> int:
    try:
        from stub_service import exact_loop
    except ImportError:  # no uvloop
        return asyncio.run(main)
    return exact_loop.run(main) if sys.platform == "linux" else asyncio.run(main)


async def _serve(
    listener: socket.socket,
    service: SharedService | None,
    layer: Layer | None,
    identify: Identify,
    folder: Path,
    watch_parent: bool,
    tls: ssl.SSLContext | None = None,
) -> int:
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not stop.done():
            stop.set_result(code)

    def evidence_broke(error: OSError) -> None:
        print(f"stub: evidence cannot be written ({error.strerror}): {folder}", file=sys.stderr, flush=True)
        end(1)

    loop.set_exception_handler(_say_in_one_line)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, 0)
    if watch_parent:
        threading.Thread(target=_wait_for_parent, args=(loop, end), name="parent-pipe", daemon=True).start()
    timers, metrics, clock = Timers(loop), Metrics(), Clock()
    evidence = {kind: Evidence(folder, evidence_broke, kind) for kind in kinds(layer is not None)}
    live = LiveService(service, timers, metrics, evidence[DECISIONS].add, loop) if service is not None else None
    capacity = CapacityShell(layer.config, clock, evidence, layer.lay, layer.with_controller) if layer else None

    def stalled(from_ns: int, to_ns: int) -> None:
        evidence[STALLS].add({"from_ns": clock.since_epoch(from_ns), "to_ns": clock.since_epoch(to_ns)})

    lag = LoopLag(timers, time.monotonic_ns(), stalled, busy_clock())
    http = app.make_server(app.Parts(live, capacity, identify, metrics, lag, evidence, clock))
    _prepare_process()
    server = await loop.create_server(http, sock=listener, backlog=_BACKLOG, ssl=tls)
    # Who started the stub, and its own controller, need no certificate: a plain port of loopback is theirs.
    own = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) if tls is not None else listener
    inner = await loop.create_server(http, sock=own, backlog=_BACKLOG) if tls is not None else server

    if capacity is not None:
        capacity.start(_own_url(own))

    def flush(_: None, _due_ns: int, now_ns: int) -> None:
        for file in evidence.values():
            file.flush()
        timers.at(now_ns + _FLUSH_NS, 9, flush, None)

    flush(None, 0, time.monotonic_ns())
    ports = {"port": listener.getsockname()[1]} | ({"own_port": own.getsockname()[1]} if tls is not None else {})
    _say({"event": "ready", **ports})
    code = await stop
    server.close()
    inner.close()
    await _close(live, capacity, http)
    timers.close()
    for file in evidence.values():
        file.close()
    return stop.result() or code


def _say_in_one_line(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A fault of the stub itself, where nobody waits for its answer: no traceback, but not silence either."""
    log.error("internal error: %s: %r", context.get("message"), context.get("exception"))


def _own_url(listener: socket.socket) -> str:
    """Where this very process can be reached from itself, also if it listens on all addresses."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _close(live: LiveService | None, capacity: CapacityShell | None, http: web.Server) -> None:
    """Ends what is open, and gives the last answers a moment to leave."""
    if live is not None:
        live.stop()
    if capacity is not None:
        await capacity.close()
    try:
        async with asyncio.timeout(2 * _CLOSE_S):
            await http.shutdown(_CLOSE_S)
    except TimeoutError:
        pass  # a caller that does not read its answer cannot keep the stub alive


def _wait_for_parent(loop: asyncio.AbstractEventLoop, end: Any) -> None:
    """In a thread, because standard input need not be something that a loop can watch."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    with contextlib.suppress(RuntimeError):  # the loop may have ended first
        loop.call_soon_threadsafe(end, 0)


def _prepare_process() -> None:
    """Room for many connections, and no long garbage collections in the middle of a trial."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 20, 100)


def _say(event: dict[str, Any]) -> None:
    # If nobody listens, that is no reason to end: whoever needs the stub keeps its standard input open.
    with contextlib.suppress(BrokenPipeError):
        print(orjson.dumps(event).decode(), flush=True)
