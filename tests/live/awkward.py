"""Servers that misbehave, and count what they saw; and one call to drive a live trial against any of them.

A server is a behaviour: a coroutine that is given each request that was read completely, and the connection. It runs on
an asyncio loop in a thread of the test process. What it counts is what a service would count: requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.ledger.outcomes import TERMINAL
from harness.target.driver_process import LiveProcess
from harness.target.tls import Tls


@dataclass
class Seen:
    """One request. number: of its connection, in order of acceptance."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    number: int


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    served: int = 0
    request: Seen | None = None

    async def answer(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def end(self) -> None:
        """Waits until the caller has hung up."""
        while await self.reader.read(65536):
            pass


Behaviour = Callable[[Connection], Awaitable[bool | None]]
"""Serves one request; True keeps the connection for another."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def always(data: bytes, keep: bool = True) -> Behaviour:
    async def behave(connection: Connection) -> bool:
        await connection.answer(data)
        return keep

    return behave


async def drop(connection: Connection) -> None:
    """Reads the request, says nothing, closes."""


async def never(connection: Connection) -> None:
    await connection.end()


@dataclass
class Server:
    """What it saw. `stop()` closes the listening socket and every connection at once."""

    port: int = 0
    scheme: str = "http"
    seen: list[Seen] = field(default_factory=list)
    accepted: int = 0
    stop: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def attempts(self) -> list[str]:
        return [seen.headers["overload-attempt"] for seen in self.seen]


async def _read_request(connection: Connection) -> Seen | None:
    try:
        head = await connection.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, path, _ = first.split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await connection.reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Seen(method, path, headers, body, connection.number)


@contextlib.contextmanager
def serving(behave: Behaviour, die_after: int | None = None, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server on a free port of loopback. die_after: it goes away, listening socket and all, at that request."""
    server = Server(scheme="https" if tls is not None else "http")
    loop = asyncio.new_event_loop()
    tasks: set[asyncio.Task[Any]] = set()
    over = asyncio.Event()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        tasks.add(task)
        server.accepted += 1
        connection = Connection(reader, writer, server.accepted)
        try:
            while (request := await _read_request(connection)) is not None:
                server.seen.append(request)
                connection.request = request
                if die_after is not None and len(server.seen) >= die_after:
                    over.set()
                if not await behave(connection):
                    break
                connection.served += 1
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def main(started: threading.Event) -> None:
        listening = await asyncio.start_server(on_connection, "127.0.0.1", 0, limit=1 << 20, ssl=tls)
        server.port = listening.sockets[0].getsockname()[1]
        server.stop = lambda: loop.call_soon_threadsafe(over.set)
        started.set()
        await over.wait()
        listening.close()
        while tasks:
            for task in list(tasks):
                task.cancel()
            await asyncio.wait(list(tasks))

    started = threading.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(main(started),), daemon=True)
    thread.start()
    started.wait()
    try:
        yield server
    finally:
        with contextlib.suppress(RuntimeError):  # it has died already
            server.stop()
        thread.join()
        loop.close()


def manifest_of(profile: dict[str, Any], url: str, kind: str = "url", time_scale: float = 1.0) -> dict[str, Any]:
    target = {"kind": kind, "url": url}
    return {"schema": 1, "profile": {"name": "test", **profile}, "time_scale": time_scale, "target": target}


@dataclass
class Driven:
    """A trial that has ended."""

    rows: list[dict[str, Any]]
    done: dict[str, Any]
    progress: list[dict[str, Any]]
    stderr: str

    def outcomes(self, tenant: str | None = None) -> Counter[tuple[str, str | None]]:
        return Counter(
            (row["outcome"], row.get("reason")) for row in self.rows if tenant is None or row["tenant"] == tenant
        )

    def late_ms(self) -> list[float]:
        return sorted((row["sent_ns"] - row["due_ns"]) / 1e6 for row in self.rows if row["attempt"])


def drive(
    folder: Path,
    profile: dict[str, Any],
    url: str,
    *,
    kind: str = "url",
    time_scale: float = 1.0,
    environment: dict[str, str] | None = None,
    during: Callable[[LiveProcess, dict[str, Any]], None] | None = None,
    tls: Tls | None = None,
    **target: Any,
) -> Driven:
    """Drives a trial to its end. during: called at each progress event. target: more of the manifest's `target`."""
    manifest = manifest_of(profile, url, kind, time_scale)
    manifest["target"] |= target | ({"tls": tls.to_json()} if tls is not None else {})
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with LiveProcess(folder, environment) as driver:
        driver.ready()
        driver.begin(time.monotonic_ns() + 20_000_000)
        events = []
        for event in driver.events():
            events.append(event)
            if during and event["event"] == "progress":
                during(driver, event)
        assert driver.wait() == 0
    return Driven(rows_of(folder), events[-1], events[:-1], driver.stderr)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


def audit(driven: Driven, planned: int, attempts: Iterable[str] | None = None) -> None:
    """What holds of every trial: each planned call and each re-plan has one terminal outcome, and nothing is re-sent.

    attempts: ids that the server saw; None where it cannot know.
    """
    rows = driven.rows
    assert driven.done["reason"] in ("completed", "interrupted", "parent_gone"), (driven.done, driven.stderr)
    assert driven.done["calls"] == len(rows)
    assert len({row["call"] for row in rows}) == len(rows)
    assert sum(row["round"] == 0 for row in rows) == planned
    assert all(row["outcome"] in TERMINAL for row in rows)
    assert all(row["done_ns"] >= row.get("sent_ns", row["due_ns"]) >= row["due_ns"] for row in rows)
    if attempts is not None:
        seen = Counter(attempts)
        assert max(seen.values(), default=1) == 1, f"sent more than once: {seen.most_common(3)}"
        ours = {f"{row['call']}.{row['attempt']}": row["outcome"] for row in rows if row["attempt"]}
        assert set(seen) <= set(ours)
        unseen = [outcome for attempt, outcome in ours.items() if attempt not in seen]
        assert set(unseen) <= {"failed", "abandoned"}, unseen
