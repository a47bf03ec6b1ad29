"""The HTTP side of the stub (aiohttp, its low-level server): one handler, a table of endpoints, no application router.

It decides nothing: who the caller is comes from identity.py, what becomes of a call from live.py. It must never show a
traceback, believe a tenant header, or read a body without a bound.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import orjson
from aiohttp import web
from aiohttp.web_request import BaseRequest

from stub_service.evidence import Evidence
from stub_service.identity import Identify
from stub_service.lag import LoopLag
from stub_service.live import LiveService, Told
from stub_service.metrics import CONTENT_TYPE, Metrics
from stub_service.requests import read_headers

MOST_BODY_BYTES = 8 << 20
BODY_TIMEOUT_S = 30.0
KEEPALIVE_S = 7 * 24 * 3600.0
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

    live: LiveService
    identify: Identify
    metrics: Metrics
    lag: LoopLag
    evidence: Evidence
    holding: set[asyncio.Task[None]] = field(default_factory=set)


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
            if path == "/service" or path.startswith("/service/"):
                return await _service(parts, request)
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


async def _service(parts: Parts, request: BaseRequest) -> web.StreamResponse:
    if request.body_exists:
        await _drain(request)
    headers = request.headers
    tenant = parts.identify(headers.get("Authorization"))
    if tenant is None:
        parts.metrics.unauthenticated += 1
        response = _json(401, {"error": "unknown_token"})
        response.headers["WWW-Authenticate"] = "Bearer"
        response.headers["Server-Timing"] = _timing(0, 0)
        return response
    asked = read_headers(headers)
    if isinstance(asked, str):
        raise Refused(400, "bad_header", asked)
    met = parts.live.arrive(tenant, asked)
    if isinstance(met, Told):
        if met.hold_ns:
            await asyncio.sleep(met.hold_ns / 1e9)
        return _told(met)
    try:
        told = await met.answer
    except asyncio.CancelledError:
        parts.live.hang_up(met)
        raise
    return _told(told)


async def _drain(request: BaseRequest) -> bytes:
    """Reads the body to its end; keeps only a small one. A caller that sends too much, or too slowly, is refused."""
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
                if seen <= _SMALL_BODY_BYTES:
                    kept += chunk
    except TimeoutError:
        raise Refused(408, "body_too_slow", f"the body did not end within {BODY_TIMEOUT_S:.0f} s", close=True) from None
    except (web.RequestPayloadError, ValueError):
        raise Refused(400, "bad_body", "the body is not well-formed", close=True) from None
    if seen > _SMALL_BODY_BYTES:
        return b""
    return kept


async def _other(parts: Parts, request: BaseRequest, path: str) -> web.StreamResponse:
    found = _ENDPOINTS.get(path)
    if found is None:
        known = ", ".join(("/service", *_ENDPOINTS))
        raise Refused(404, "not_found", f"the stub serves {known}")
    methods, endpoint = found
    if request.method not in methods:
        response = _json(405, {"error": "method_not_allowed", "message": f"use {' or '.join(methods)}"})
        response.headers["Allow"] = ", ".join(methods)
        return response
    return await endpoint(parts, request)


async def _health(parts: Parts, _: BaseRequest) -> web.StreamResponse:
    service = parts.live.service
    return _json(
        200,
        {
            "service": "overload-stub",
            "tenants_waiting": parts.metrics.tenants_waiting(),
            "waiting": service.policy.waiting,
            "running": service.running,
            "workers": service.workers,
            "now_ns": parts.live.now_ns(),
            "loop_lag": parts.lag.figures(),
        },
    )


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
    parts.live.set_epoch(instant)
    parts.lag.restart()
    parts.metrics.restart()
    return _json(200, {"now_ns": parts.live.now_ns()})


async def _metrics(parts: Parts, _: BaseRequest) -> web.StreamResponse:
    lag = parts.lag
    text = parts.metrics.render(parts.live.service.workers, lag.figures(), lag.histogram.sum)
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


async def _evidence(parts: Parts, request: BaseRequest) -> web.StreamResponse:
    query = request.query
    if query.get("kind", "decisions") != "decisions":
        raise Refused(404, "unknown_kind", "there is evidence of kind decisions only")
    cursor = query.get("cursor", "0")
    if cursor != "end" and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise Refused(400, "bad_cursor", "cursor must be a whole number of bytes, 0 at first, or 'end'")
    try:
        lines, after = (b"", parts.evidence.size()) if cursor == "end" else parts.evidence.read(int(cursor))
    except ValueError as error:
        raise Refused(400, "bad_cursor", str(error)) from None
    return web.Response(body=lines, headers={"Content-Type": "application/jsonl", "Overload-Cursor": str(after)})


async def _faults(_parts: Parts, _: BaseRequest) -> web.StreamResponse:
    return _json(501, {"error": "not_implemented", "message": "this stub has no dependencies yet, so no faults to set"})


_ENDPOINTS: dict[str, tuple[tuple[str, ...], Endpoint]] = {
    "/healthz": (("GET", "HEAD"), _health),
    "/metrics": (("GET", "HEAD"), _metrics),
    "/evidence": (("GET", "HEAD"), _evidence),
    "/epoch": (("POST",), _epoch),
    "/faults": (("GET", "HEAD", "POST", "PUT", "DELETE"), _faults),
}


def _told(told: Told) -> web.Response:
    headers = {"Content-Type": _JSON, "Server-Timing": _timing(told.queue_ns, told.service_ns)}
    if told.retry_after is not None:
        headers["Retry-After"] = told.retry_after
    return web.Response(status=told.status, body=orjson.dumps(told.body), headers=headers)


def _timing(queue_ns: int, service_ns: int) -> str:
    return f"queue;dur={queue_ns / 1e6:.3f}, service;dur={service_ns / 1e6:.3f}"


def _json(status: int, document: dict[str, object]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), headers={"Content-Type": _JSON})
