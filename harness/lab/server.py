"""The lab's web server: loopback only, a page, its parts, and the JSON that it asks for. It keeps nothing of them.

Who may ask. The socket is bound to 127.0.0.1, and the Host header must name this machine's loopback: a page of
elsewhere whose name was made to point here (DNS rebinding) has another. A request that says where it comes from
(Origin, Sec-Fetch-Site) must come from this very page, and only JSON is taken, which no foreign form can send without
being asked about first (CORS), and nobody answers that. So no secret in the address is needed.

Trials run in processes of their own, so that a long one blocks neither the page nor a short one. They end with this
process, whatever kills it.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.resources import files
from typing import Any

import orjson
import yaml
from aiohttp import web

from harness.cli.interrupting import begin_worker
from harness.lab import run
from harness.lab.inputs import DEFAULTS, read
from harness.lab.page import page
from harness.machine import usable_cores

MOST_BYTES = 64 * 1024
MOST_AT_ONCE = 8
LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
_SCRIPTS = ("lab.js", "settings.js", "view.js", "charts.js", "trace.js", "files.js", "dom.js")
ASSETS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(_SCRIPTS, ("harness.lab", "text/javascript")),
    "lab.css": ("harness.lab", "text/css"),
    "report.css": ("harness.report", "text/css"),
    "uPlot.iife.min.js": ("harness.report", "text/javascript"),
    "uPlot.min.css": ("harness.report", "text/css"),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Pools:
    """One for what somebody waits for, one for the ensembles behind it: they never wait for each other."""

    def __init__(self) -> None:
        self._sizes = {"run": 2, "ensemble": max(1, min(4, usable_cores() - 1))}
        self._pools: dict[str, ProcessPoolExecutor] = {}

    async def ask(self, which: str, work: Callable[..., bytes], *arguments: Any) -> bytes:
        """What the work answers. A process that was killed (out of memory, say) is told of, and replaced next time."""
        pool = self._pools.get(which)
        if pool is None:
            pool = self._pools[which] = _pool(self._sizes[which])
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
        except BrokenProcessPool:
            if self._pools.get(which) is pool:
                del self._pools[which]
            return run.refused(
                {"": ["the process of this run was ended from outside; change something to run it again"]}
            )

    def close(self) -> None:
        for pool in self._pools.values():
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:  # a run that nobody waits for any more
                process.terminate()


POOLS = web.AppKey("pools", Pools)


def app() -> web.Application:
    """The whole application; its processes begin with it and end with it."""
    made = web.Application(middlewares=[_guard], client_max_size=MOST_BYTES)
    made.cleanup_ctx.append(_with_pools)
    made.on_response_prepare.append(_headers)
    made.router.add_get("/", _page)
    made.router.add_get("/assets/{name}", _asset)
    made.router.add_post("/api/run", _run)
    made.router.add_post("/api/ensemble", _ensemble)
    made.router.add_post("/api/profile", _profile)
    return made


def _pool(size: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(size, multiprocessing.get_context("spawn"), initializer=_begin_worker)


def _begin_worker() -> None:
    begin_worker()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)  # a run makes very many small objects and no cycles


async def _with_pools(application: web.Application) -> AsyncIterator[None]:
    pools = application[POOLS] = Pools()
    warm = asyncio.ensure_future(pools.ask("run", run.run, DEFAULTS))  # the first answer then waits for no import
    yield
    pools.close()
    await asyncio.gather(warm, return_exceptions=True)


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    host = request.headers.get("Host", "")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name.lower() not in LOOPBACK:
        return _text(403, "the lab answers on this machine's own address only: http://127.0.0.1:<port>/")
    origin = request.headers.get("Origin")
    foreign = request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
    asked = request.path.startswith("/api/") or request.path.startswith("/assets/")
    if (origin is not None and origin != f"http://{host}") or (foreign and asked):
        return _text(403, "the lab answers its own page only")
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return _text(413, f"at most {MOST_BYTES} bytes")
    except web.HTTPException as error:
        return _text(error.status, error.reason)


def _text(status: int, words: str) -> web.Response:
    return web.Response(status=status, text=words + "\n")


async def _headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


async def _page(_: web.Request) -> web.Response:
    return web.Response(text=page(), content_type="text/html")


async def _asset(request: web.Request) -> web.Response:
    found = ASSETS.get(request.match_info["name"])
    if found is None:
        raise web.HTTPNotFound
    package, kind = found
    text = (files(package) / "assets" / request.match_info["name"]).read_text("utf-8")
    return web.Response(text=text, content_type=kind)


class _Malformed(web.HTTPBadRequest):
    """No request of this page; the reason says what was expected."""


async def _body(request: web.Request) -> dict[str, Any]:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(reason="expected application/json")
    try:
        body = orjson.loads(await request.read())
    except orjson.JSONDecodeError:
        raise _Malformed(reason="not readable as JSON") from None
    inputs = body.get("inputs") if isinstance(body, dict) else None
    if not isinstance(inputs, dict) or not all(isinstance(value, str) for value in inputs.values()):
        raise _Malformed(reason='expected {"inputs": {name: text}}')
    return dict(body)


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


async def _run(request: web.Request) -> web.Response:
    body = await _body(request)
    return _json(await request.app[POOLS].ask("run", run.run, body["inputs"]))


async def _ensemble(request: web.Request) -> web.Response:
    body = await _body(request)
    first, count = body.get("from"), body.get("count")
    if type(first) is not int or type(count) is not int or not 1 <= count <= MOST_AT_ONCE:
        raise _Malformed(reason=f"expected from and count, a count of 1 to {MOST_AT_ONCE}")
    if not 0 <= first <= run.MOST_MEMBERS - count:
        raise _Malformed(reason=f"an ensemble has at most {run.MOST_MEMBERS} trials here")
    numbers = tuple(range(first, first + count))
    return _json(await request.app[POOLS].ask("ensemble", run.members, body["inputs"], numbers))


async def _profile(request: web.Request) -> web.Response:
    """The setting as a profile: the text of a YAML file that `overload profile check` takes."""
    found = read((await _body(request))["inputs"])
    if found.loaded is None:
        return _json(run.refused(found.errors))
    text = yaml.safe_dump(
        found.loaded.document, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
    )
    head = "# Made in the lab (overload lab). What it does, before anything is sent: overload profile check FILE\n"
    return _json(orjson.dumps({"yaml": head + text}))
