"""The HTTP side of the stand-in (aiohttp's low-level server): reads, asks the machine, answers, writes it down.

It decides nothing: which answer a request gets is provider/machine.py, how it is written provider/forms.py. It must
never keep a body or a credential, follow a request anywhere, or read or write without a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import orjson
from aiohttp import web
from aiohttp.web_request import BaseRequest

from stub_service.dependency.faults import imf_fixdate, retry_after
from stub_service.evidence import ARRIVALS, EFFECTS, Evidence
from stub_service.provider import arrivals, forms
from stub_service.provider.machine import Machine, Ticket
from stub_service.provider.scenario import FAILED, HANG, LEAST_HOLD_NS, REFUSED, RESET, SERVED, Answer, Scenario

MANIFEST = "stand_in.json"
MOST_ROWS = 200_000
MOST_BODY_BYTES = 8 << 20
MOST_KEPT_BYTES = 1 << 20
BODY_TIMEOUT_S = 30.0
_MOST_HEADER_BYTES = 16_384
_FLUSH_S = 0.5
_CLOSE_S = 1.0
_EFFECTS = "/effects/"
_READBACK = forms.Asked("readback", _EFFECTS, nature="read")
_NOT_JUDGED = ("/healthz", "/favicon.ico")

log = logging.getLogger("stub_service")


@dataclass(frozen=True, slots=True)
class _Refused(Exception):
    """The request itself is wrong, or asks for what is not stood in for."""

    status: int
    error: str
    message: str


class StandIn:
    """`async with StandIn(scenario, folder) as stand_in: ... stand_in.url ...`

    folder: where arrivals.jsonl, effects.jsonl and stand_in.json are written; it is made. form: serve no other.
    on_broken: told when the evidence cannot be written any more. Raises OSError where folder or port cannot be had.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        form: str | None = None,
        port: int = 0,
        on_broken: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self.scenario, self.folder, self.form, self.port = scenario, folder, form, port
        self.arrived = 0
        self._machine = Machine(scenario)
        self._salt = secrets.token_bytes(32)
        self._on_broken = on_broken
        self._under_way: dict[int, dict[str, Any]] = {}
        self._command: dict[str, Any] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / MANIFEST).exists():
            raise FileExistsError(17, "it holds the evidence of an earlier stand-in; give another", str(self.folder))
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            self._evidence = {kind: Evidence(self.folder, self._on_broken, kind) for kind in (ARRIVALS, EFFECTS)}
        except OSError:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        self._began_ns = time.monotonic_ns()
        self._started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._write_manifest(None)
        # aiohttp would log a traceback of its own for what a hostile caller, or the scenario itself, can provoke.
        logging.getLogger("aiohttp.server").addHandler(logging.NullHandler())
        logging.getLogger("aiohttp.server").propagate = False
        self._http = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=3600.0,
            max_line_size=_MOST_HEADER_BYTES,
            max_field_size=_MOST_HEADER_BYTES,
        )
        self._server = await asyncio.get_running_loop().create_server(self._http, sock=listener, backlog=1024)
        self._flusher = asyncio.create_task(self._flush())
        return self

    async def __aexit__(self, *_: object) -> None:
        ended_ns = self._now_ns()
        self._server.close()
        self._flusher.cancel()
        for row in list(self._under_way.values()):  # still open: the row says so by having no end
            self._keep(row)
        self._under_way.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * _CLOSE_S):
                await self._http.shutdown(_CLOSE_S / 10)
        for file in self._evidence.values():
            file.close()
        self._write_manifest(ended_ns)

    def command_ended(self, words: list[str], exit_code: int | None) -> None:
        """What was run against it. exit_code: None if it had to be stopped."""
        shown = [arrivals.safe(word) for word in words[:20]]
        self._command = {"words": shown, "exit_code": exit_code, "ended_ns": self._now_ns()}

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._began_ns

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            for file in self._evidence.values():
                file.flush()

    def _write_manifest(self, ended_ns: int | None) -> None:
        document = {
            "schema": 1, "scenario": self.scenario.name, "about": self.scenario.about,
            "judges": self.scenario.judges, "form": self.form, "started": self._started, "ended_ns": ended_ns,
            "arrivals": self.arrived, "cut_short": self.arrived > MOST_ROWS, "command": self._command,
            "probes": max((window.probes for window in self.scenario.windows), default=0),
            "windows": [
                {"from_ns": w.from_ns, "to_ns": w.to_ns, "every": w.every, "probes": w.probes}
                for w in self.scenario.windows
            ],
        }  # fmt: skip
        unfinished = self.folder / f".{MANIFEST}.new"
        unfinished.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        os.replace(unfinished, self.folder / MANIFEST)

    def _keep(self, row: dict[str, Any]) -> None:
        if int(row["arrival"][1:]) <= MOST_ROWS:
            self._evidence[ARRIVALS].add(row)

    async def _handle(self, request: BaseRequest) -> web.StreamResponse:
        at_ns = self._now_ns()
        path = request.raw_path.partition("?")[0]
        try:
            if path in _NOT_JUDGED:
                return _json(200, {"service": "overload-stand-in", "scenario": self.scenario.name})
            return await self._judged(request, path, at_ns)
        except _Refused as refused:
            response = _json(refused.status, {"error": {"message": refused.message, "type": refused.error}})
            response.force_close()
            return response
        except ConnectionError:
            raise  # the caller is gone, or was made to believe that we are: aiohttp closes quietly
        except Exception as error:
            log.error("internal error of the stand-in on %s: %r", path[:100], error)
            return _json(500, {"error": {"message": "a fault of the stand-in itself", "type": "internal_error"}})

    async def _judged(self, request: BaseRequest, path: str, at_ns: int) -> web.StreamResponse:
        identity = arrivals.hashed(self._salt, arrivals.credential_of(request.headers))
        if path.startswith(_EFFECTS) and request.method == "GET":
            return await self._read_back(request, path, identity, at_ns)
        target = request.headers.get("X-Amz-Target")
        form = forms.form_of(request.method, path, target, self.form)
        if form is None:
            raise _Refused(404, "not_found", f"the stand-in serves {', '.join(served_paths(self.form))}")
        hash_, kept, length = await _read(request, self._salt)
        asked = forms.read_body(form, request.method, path, target, kept, length)
        heard = arrivals.said(request.headers.items())
        body = arrivals.hashed(self._salt, hash_, request.query_string)
        content = arrivals.hashed(self._salt, identity, request.method, path, asked.operation, body)
        scope = f"{identity}\n{heard['key']}" if "key" in heard else f"{content}\ntoken" if asked.token else None
        ticket = self._machine.arrive(at_ns, content, scope, asked.nature != "read")
        self.arrived += 1
        row = arrivals.row(
            self.arrived, at_ns, _connection(request), identity, request.method, body, asked, heard, ticket
        )
        if ticket.effect is not None and not ticket.replayed:
            effect = {"t_ns": at_ns, "effect": ticket.effect, "arrival": row["arrival"], "body": body}
            if self.arrived <= MOST_ROWS:
                self._evidence[EFFECTS].add(effect)
        return await self._answer(request, asked, ticket, row)

    async def _read_back(self, request: BaseRequest, path: str, identity: str, at_ns: int) -> web.StreamResponse:
        key = unquote(path[len(_EFFECTS) :], errors="replace")
        effect = self._machine.look_up(f"{identity}\n{arrivals.safe(key)}")
        self.arrived += 1
        heard = {"key": arrivals.safe(key)}
        row = arrivals.row(self.arrived, at_ns, _connection(request), identity, "GET", "", _READBACK, heard, Ticket(
            Answer("served", 200 if effect is not None else 404)))  # fmt: skip
        row["answered_ns"] = row["done_ns"] = self._now_ns()
        row["committed"] = effect is not None
        self._keep(row)
        document = {"committed": effect is not None} | ({"effect": effect} if effect is not None else {})
        return _json(200 if effect is not None else 404, document)

    async def _answer(
        self, request: BaseRequest, asked: forms.Asked, ticket: Ticket, row: dict[str, Any]
    ) -> web.StreamResponse:
        delivered = False
        number = self.arrived
        self._under_way[number] = row
        try:
            await asyncio.sleep(max(ticket.answer.hold_ns, LEAST_HOLD_NS) / 1e9)
            row["answered_ns"] = self._now_ns()
            if ticket.answer.kind in (RESET, HANG):
                _cut(request)
                raise ConnectionResetError("as the scenario says")
            response = await self._write(request, asked, ticket, row)
            delivered = ticket.answer.kind == SERVED
            return response
        except asyncio.CancelledError:
            row["hung_up"] = True
            raise
        finally:
            row["done_ns"] = self._now_ns()
            self._machine.ended(ticket, delivered)
            if self._under_way.pop(number, None) is not None:
                self._keep(row)

    async def _write(
        self, request: BaseRequest, asked: forms.Asked, ticket: Ticket, row: dict[str, Any]
    ) -> web.StreamResponse:
        epoch_s, name = int(time.time()), f"{row['arrival']}-{self.scenario.name}"
        headers = _headers(asked.form, ticket, epoch_s, name)
        row["told"] = {
            key.lower(): arrivals.safe(value) for key, value in headers.items() if key.lower() in arrivals.TOLD_HEADERS
        }
        if ticket.answer.kind == SERVED and asked.stream:
            return await _write_stream(request, forms.stream(asked, name, epoch_s), headers)
        if ticket.answer.kind in (REFUSED, FAILED):
            document = forms.error(asked.form, ticket.answer)
        else:
            document = forms.success(asked, name, epoch_s, ticket.effect, ticket.replayed)
        response = web.Response(status=ticket.answer.status, body=orjson.dumps(document), headers=headers)
        await response.prepare(request)
        await response.write_eof()
        return response


def served_paths(form: str | None) -> tuple[str, ...]:
    """What somebody may ask for, as a person would write it."""
    paths = {
        forms.SERVICE: ("/service",),
        forms.OPENAI: (f"POST {forms.CHAT}", f"POST {forms.RESPONSES}", f"GET {forms.MODELS}"),
        forms.ANTHROPIC: (f"POST {forms.MESSAGES}",),
        forms.AWS: ("POST / with X-Amz-Target",),
    }
    return tuple(path for name in forms.FORMS if form in (None, name) for path in paths[name])


def _headers(form: str, ticket: Ticket, epoch_s: int, name: str) -> dict[str, str]:
    own = {forms.AWS: "x-amzn-RequestId", forms.ANTHROPIC: "request-id"}.get(form, "x-request-id")
    told = {key: retry_after(value, epoch_s) for key, value in ticket.answer.headers}
    return {"Content-Type": forms.content_type(form), "Date": imf_fixdate(epoch_s), own: name, **told}


async def _write_stream(request: BaseRequest, events: list[bytes], headers: Mapping[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={**headers, "Content-Type": forms.EVENTS, "Cache-Control": "no-cache"})
    await response.prepare(request)
    for event in events:
        await response.write(event)
    await response.write_eof()
    return response


async def _read(request: BaseRequest, salt: bytes) -> tuple[str, bytes, int]:
    """(hash of the whole body, the body if it is short enough to be read, its length)."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts: list[bytes] = []
    length = 0
    digest = arrivals.hasher(salt)
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while chunk := await request.content.readany():
                length += len(chunk)
                if length > MOST_BODY_BYTES:
                    raise _Refused(413, "body_too_large", f"a body is at most {MOST_BODY_BYTES} bytes")
                digest.update(chunk)
                if length <= MOST_KEPT_BYTES:
                    parts.append(chunk)
    except TimeoutError:
        raise _Refused(408, "body_too_slow", f"the body did not end within {BODY_TIMEOUT_S:.0f} s") from None
    except (web.RequestPayloadError, ValueError):
        raise _Refused(400, "bad_body", "the body is not well-formed") from None
    return digest.hexdigest(), b"".join(parts) if length <= MOST_KEPT_BYTES else b"", length


def _connection(request: BaseRequest) -> int:
    """The port of the caller's side: one for each connection that is open."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return int(peer[1]) if peer else 0


def _cut(request: BaseRequest) -> None:
    """Closes with a reset, not with an orderly end."""
    transport = request.transport
    if transport is None:
        return
    own = transport.get_extra_info("socket")
    if own is not None:
        with contextlib.suppress(OSError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _json(status: int, document: dict[str, Any]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), headers={"Content-Type": forms.JSON})
