"""How the controller reaches its dependencies in the stub: one HTTP request an attempt, over kept connections.

One attempt is one physical request. aiohttp's client would send a request of an idempotent method once more when a kept
connection breaks; every call here is a POST, and that is switched off besides. It follows no redirect, keeps no cookie,
reads a bounded answer, and gives up exactly at the call's own timeout, by closing the connection.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from stub_service.capacity.ports import DependencyAnswer, DependencyCall
from stub_service.dependency.model import NO_ANSWER
from stub_service.dependency.visits import headers_of

_MOST_ANSWER_BYTES = 1 << 20
_KEEPALIVE_S = 3600.0
_TURNS = 6
"""Of the loop: close, end of file, cancel, and some to spare."""


class Outbound:
    """`await outbound.call(...)` is a `CallDependency`. Belongs to the loop that it is made in."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            auto_decompress=False,
            trust_env=False,
        )
        self._session._retry_connection = False

    async def call(self, asked: DependencyCall) -> DependencyAnswer:
        """The answer; status 0 where none came in time, or none that is HTTP."""
        path = f"/dependencies/{quote(asked.dependency, safe='')}/{asked.operation}"
        url = URL(self._base_url + path, encoded=True)
        try:
            async with (
                asyncio.timeout(max(0, asked.timeout_ns) / 1e9),
                self._session.post(url, headers=headers_of(asked), allow_redirects=False) as response,
            ):
                body = await _bounded(response.content)
                headers = response.headers
                return DependencyAnswer(
                    response.status, headers.get("Retry-After"), headers.get("Date"), _document(body)
                )
        except (aiohttp.ClientError, OSError, ValueError):  # TimeoutError is an OSError
            await _let_it_be_noticed()
            return NO_ANSWER

    async def close(self) -> None:
        await self._session.close()


async def _let_it_be_noticed() -> None:
    """Lets the other end, in this very process, see the connection close before another call takes the slot: else
    what reached a dependency would seem to be one more than its limit for a tenth of a millisecond."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    """Raises ValueError on an answer that is too large to be one."""
    body = b""
    while chunk := await content.readany():
        body += chunk
        if len(body) > _MOST_ANSWER_BYTES:
            raise ValueError("the answer is too large")
    return body


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}
