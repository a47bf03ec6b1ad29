"""The HTTP side of the stub (aiohttp, its low-level server): one handler, a table of endpoints, no application router.

It decides nothing: who the caller is comes from identity.py, what becomes of a call from live.py and
capacity_shell.py. It must never show a traceback, believe a tenant header, or read a body without a bound.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import orjson
from aiohttp import web
from aiohttp.web_request import BaseRequest

from stub_service.capacity.ports import WRITE
from stub_service.capacity_shell import CapacityShell
from stub_service.clock import Clock
from stub_service.dependency.faults import OPERATIONS
from stub_service.dependency.visits import read_visit
from stub_service.evidence import DECISIONS, Evidence
from stub_service.exposition import OPENMETRICS, TEXT, text, wants_openmetrics
from stub_service.identity import Identify
from stub_service.lag import LoopLag
from stub_service.live import LiveService, Told
from stub_service.metrics import Metrics
from stub_service.requests import read_headers

MOST_BODY_BYTES = 8 << 20
BODY_TIMEOUT_S = 30.0
KEEPALIVE_S = 7 * 24 * 3600.0
MOST_KEPT_BYTES = 1 << 20
_SMALL_BODY_BYTES = 4096
_HOUR_NS = 3_600_000_000_000
_JSON = "application/json"

log = logging.getLogger("stub_service")


class Refused(Exception):
    """The request itself is wrong: answered with this status and message, and the connection is closed if asked."""

    def __init__(self, status: int, error: str, message: str, close: bool = False) -> None:
        super().__init__(message)
        self.status, self.error, self.message, self.close = status, error, message, close


@dataclass(frozen=True, slots=True)
class Parts:
    """What the endpoints work on."""

    live: LiveService | None
    capacity: CapacityShell | None
    identify: Identify
    metrics: Metrics
    lag: LoopLag
    evidence: Mapping[str, Evidence]
    clock: Clock


Handler = Callable[[BaseRequest], Awaitable[web.StreamResponse]]
Endpoint = Callable[[Parts, BaseRequest], Awaitable[web.StreamResponse]]


def make_server(parts: Parts) -> web.Server:
    """The protocol factory for `loop.create_server`. A caller that disconnects cancels its handler."""
    # aiohttp would log a traceback of its own for what a hostile client can provoke.
    logging.getLogger("aiohttp.server").addHandler(logging.NullHandler())
    logging.getLogger("aiohttp.server").propagate = False
    return web.Server(
        handler(parts),
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
        max_line_size=16_384,
        max_field_size=16_384,
    )


def handler(parts: Parts) -> Handler:
    async def handle(request: BaseRequest) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        try:
            first = path[1:].partition("/")[0]
            if first == "service" and parts.live is not None:
                return await _service(parts, parts.live, request)
            if first == "runs" and parts.capacity is not None:
                return await _runs(parts, parts.capacity, request, path)
            if first == "dependencies" and parts.capacity is not None:
                return await _dependency(parts.capacity, request, path)
            return await _other(parts, request, path)
        except Refused as refused:
            parts.metrics.bad_requests += 1
            response = _json(refused.status, {"error": refused.error, "message": refused.message})
            if refused.close:
                response.force_close()
            return response
        except ConnectionError:
            raise  # the caller is gone: aiohttp closes quietly
        except Exception as error:  # no traceback may reach a caller; the log has one line
            log.error("internal error on %s: %r", path[:100], error)
            return _json(500, {"error": "internal_error", "message": "a fault of the stub itself; its log says more"})

    return handle


async def _service(parts: Parts, live: LiveService, request: BaseRequest) -> web.StreamResponse:
    if request.body_exists:
        await _drain(request)
    headers = request.headers
    tenant = parts.identify(headers.get("Authorization"))
    if tenant is None:
        response = _unknown_token(parts)
        response.headers["Server-Timing"] = _timing(0, 0)
        return response
    asked = read_headers(headers)
    if isinstance(asked, str):
        raise Refused(400, "bad_header", asked)
    met = live.arrive(tenant, asked)
    if isinstance(met, Told):
        if met.hold_ns:
            await asyncio.sleep(met.hold_ns / 1e9)
        return _told(met)
    try:
        told = await met.answer
    except asyncio.CancelledError:
        live.hang_up(met)
        raise
    return _told(told)


async def _runs(parts: Parts, capacity: CapacityShell, request: BaseRequest, path: str) -> web.StreamResponse:
    body = await _drain(request, MOST_KEPT_BYTES) if request.body_exists else b""
    tenant = parts.identify(request.headers.get("Authorization"))
    if tenant is None:
        return _unknown_token(parts)
    answer = await capacity.answer(tenant, request.method, path, body, request.headers)
    if answer is None:
        raise Refused(404, "no_controller", "this stub serves dependencies only, for a controller of your own")
    if answer.status == 400:
        parts.metrics.bad_requests += 1
    headers = {"Content-Type": _JSON, **answer.headers}
    return web.Response(status=answer.status, body=orjson.dumps(answer.body), headers=headers)


async def _dependency(capacity: CapacityShell, request: BaseRequest, path: str) -> web.StreamResponse:
    if request.body_exists:
        await _drain(request)
    names = [unquote(name, errors="replace") for name in path.split("/")[2:]]
    if len(names) != 2 or names[0] not in capacity.dependencies.by_name or names[1] not in OPERATIONS:
        known = ", ".join(capacity.dependencies.by_name)
        message = f"there is /dependencies/<name>/<{', '.join(OPERATIONS)}>, with the names {known}"
        raise Refused(404, "unknown_dependency", message)
    methods = ("POST",) if names[1] == WRITE else ("GET", "POST")
    if request.method not in methods:
        return _wrong_method(methods)
    visit = read_visit(names[0], names[1], request.headers)
    if isinstance(visit, str):
        raise Refused(400, "bad_header", visit)
    answer = await capacity.visit(visit)
    headers = {"Content-Type": _JSON}
    if answer.retry_after is not None:
        headers["Retry-After"] = answer.retry_after
    if answer.date is not None:
        headers["Date"] = answer.date  # the one that the date in Retry-After was counted from
    return web.Response(status=answer.status, body=orjson.dumps(answer.body), headers=headers)


def _unknown_token(parts: Parts) -> web.Response:
    parts.metrics.unauthenticated += 1
    response = _json(401, {"error": "unknown_token"})
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


async def _drain(request: BaseRequest, kept_bytes: int = _SMALL_BODY_BYTES) -> bytes:
    """Reads the body to its end; keeps one of at most `kept_bytes`. Too much, or too slow, is refused."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    length = request.content_length
    if length is not None and length > MOST_BODY_BYTES:
        raise Refused(413, "body_too_large", f"a body is at most {MOST_BODY_BYTES} bytes", close=True)
    seen, kept = 0, b""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while chunk := await request.content.readany():
                seen += len(chunk)
                if seen > MOST_BODY_BYTES:
                    raise Refused(413, "body_too_large", f"a body is at most {MOST_BODY_BYTES} bytes", close=True)
                if seen <= kept_bytes:
                    kept += chunk
    except TimeoutError:
        raise Refused(408, "body_too_slow", f"the body did not end within {BODY_TIMEOUT_S:.0f} s", close=True) from None
    except (web.RequestPayloadError, ValueError):
        raise Refused(400, "bad_body", "the body is not well-formed", close=True) from None
    if seen > kept_bytes:
        if kept_bytes == MOST_KEPT_BYTES:
            raise Refused(413, "body_too_large", f"a body is at most {MOST_KEPT_BYTES} bytes here")
        return b""
    return kept


async def _other(parts: Parts, request: BaseRequest, path: str) -> web.StreamResponse:
    found = _ENDPOINTS.get(path)
    if found is None:
        served = ["/service"] if parts.live is not None else []
        served += ["/runs", "/dependencies"] if parts.capacity is not None else []
        raise Refused(404, "not_found", f"the stub serves {', '.join((*served, *_ENDPOINTS))}")
    methods, endpoint = found
    if request.method not in methods:
        return _wrong_method(methods)
    return await endpoint(parts, request)


def _wrong_method(methods: tuple[str, ...]) -> web.Response:
    response = _json(405, {"error": "method_not_allowed", "message": f"use {' or '.join(methods)}"})
    response.headers["Allow"] = ", ".join(methods)
    return response


async def _health(parts: Parts, _: BaseRequest) -> web.StreamResponse:
    document: dict[str, object] = {"service": "overload-stub", "tenants_waiting": parts.metrics.tenants_waiting()}
    if parts.live is not None:
        service = parts.live.service
        document |= {"waiting": service.policy.waiting, "running": service.running, "workers": service.workers}
    if parts.capacity is not None:
        in_flight = parts.capacity.dependencies.in_flight()
        document["dependencies"] = {name: {"in_use": n, "waiting": w} for name, (n, w) in in_flight.items()}
        controller = parts.capacity.controller
        document["controller"] = controller is not None
        if controller is not None:
            document["leftovers"] = controller.leftovers()
    document |= {
        "evidence": list(parts.evidence),
        "now_ns": parts.clock.now_ns(),
        "loop_lag": parts.lag.figures(),
    }
    return _json(200, document)


async def _epoch(parts: Parts, request: BaseRequest) -> web.StreamResponse:
    body = await _drain(request)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    instant = document.get("monotonic_ns") if isinstance(document, dict) else None
    if type(instant) is not int or not 0 <= instant <= time.monotonic_ns() + _HOUR_NS:
        message = 'expected {"monotonic_ns": n}, an instant of CLOCK_MONOTONIC of this machine, at most an hour ahead'
        raise Refused(400, "bad_epoch", message)
    parts.clock.set_epoch(instant)
    if parts.live is not None:
        parts.live.set_epoch(instant)
    if parts.capacity is not None:
        parts.capacity.restart()
    parts.lag.restart()
    parts.metrics.restart()
    return _json(200, {"now_ns": parts.clock.now_ns()})


async def _metrics(parts: Parts, request: BaseRequest) -> web.StreamResponse:
    lag = parts.lag
    workers = parts.live.service.workers if parts.live else 0
    families = parts.metrics.families(workers, lag.figures(), lag.histogram.sum)
    if parts.capacity is not None:
        families += parts.capacity.metric_families()
    openmetrics = wants_openmetrics(request.headers.get("Accept"))
    content_type = OPENMETRICS if openmetrics else TEXT
    return web.Response(body=text(families, openmetrics), headers={"Content-Type": content_type})


async def _evidence(parts: Parts, request: BaseRequest) -> web.StreamResponse:
    query = request.query
    evidence = parts.evidence.get(query.get("kind", DECISIONS))
    if evidence is None:
        raise Refused(404, "unknown_kind", f"there is evidence of kind {', '.join(parts.evidence)} only")
    cursor = query.get("cursor", "0")
    if cursor != "end" and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise Refused(400, "bad_cursor", "cursor must be a whole number of bytes, 0 at first, or 'end'")
    try:
        lines, after = (b"", evidence.size()) if cursor == "end" else evidence.read(int(cursor))
    except ValueError as error:
        raise Refused(400, "bad_cursor", str(error)) from None
    return web.Response(body=lines, headers={"Content-Type": "application/jsonl", "Overload-Cursor": str(after)})


async def _faults(parts: Parts, request: BaseRequest) -> web.StreamResponse:
    if parts.capacity is None:
        raise Refused(404, "no_dependencies", "this stub serves no dependencies, so there are no faults to set")
    if request.method == "POST":
        try:
            document = orjson.loads(await _drain(request, MOST_KEPT_BYTES))
        except orjson.JSONDecodeError as error:
            raise Refused(400, "bad_faults", f"the body is not JSON: {error.msg} (line {error.lineno})") from None
        if wrong := parts.capacity.set_faults(document):
            raise Refused(400, "bad_faults", wrong)
    return _json(200, parts.capacity.faults_document())


_ENDPOINTS: dict[str, tuple[tuple[str, ...], Endpoint]] = {
    "/healthz": (("GET", "HEAD"), _health),
    "/metrics": (("GET", "HEAD"), _metrics),
    "/evidence": (("GET", "HEAD"), _evidence),
    "/epoch": (("POST",), _epoch),
    "/faults": (("GET", "HEAD", "POST"), _faults),
}


def served_paths() -> tuple[str, ...]:
    """What a stub with all its parts serves; of the first three, also what is below them."""
    return ("/service", "/runs", "/dependencies", *_ENDPOINTS)


def _told(told: Told) -> web.Response:
    headers = {"Content-Type": _JSON, "Server-Timing": _timing(told.queue_ns, told.service_ns)}
    if told.retry_after is not None:
        headers["Retry-After"] = told.retry_after
    return web.Response(status=told.status, body=orjson.dumps(told.body), headers=headers)


def _timing(queue_ns: int, service_ns: int) -> str:
    return f"queue;dur={queue_ns / 1e6:.3f}, service;dur={service_ns / 1e6:.3f}"


def _json(status: int, document: dict[str, object]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), headers={"Content-Type": _JSON})
