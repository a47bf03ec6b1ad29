"""A small service with a limit for each tenant, kept by the library `limits`: 40 calls a second, over a moving second.

Run as two replicas. With LIMITS_STORAGE=async+redis://... they share what they count; with async+memory:// each of them
counts for itself, and the limit is twice as large as it says.

    LIMITS_STORAGE=async+redis://127.0.0.1:6379 python service.py 127.0.0.1:9001
"""

import asyncio
import os
import sys

from aiohttp import web
from limits import RateLimitItemPerSecond
from limits.aio.strategies import MovingWindowRateLimiter
from limits.storage import storage_from_string

LIMIT = RateLimitItemPerSecond(40)
TENANTS = {f"Bearer token-{name}": name for name in ("A", "B", "D")}


def limiter() -> MovingWindowRateLimiter:
    storage = os.environ["LIMITS_STORAGE"]
    options = {"implementation": "redispy"} if "redis" in storage else {}
    return MovingWindowRateLimiter(storage_from_string(storage, **options))


async def serve(request: web.Request) -> web.Response:
    tenant = TENANTS.get(request.headers.get("Authorization", ""))
    if tenant is None:
        return web.json_response({"outcome": "failed", "reason": "unknown_token"}, status=401)
    if not await request.app[LIMITER].hit(LIMIT, tenant):
        refusal = {"outcome": "throttled", "reason": "rate_limit", "retry_after_s": 1}
        return web.json_response(refusal, status=429, headers={"Retry-After": "1"})
    await asyncio.sleep(0.1)
    return web.json_response({"outcome": "served"}, headers={"Server-Timing": "service;dur=100"})


LIMITER = web.AppKey("limiter", MovingWindowRateLimiter)
app = web.Application()
app[LIMITER] = limiter()
app.router.add_get("/service", serve)

if __name__ == "__main__":
    host, _, port = sys.argv[1].partition(":")
    web.run_app(app, host=host, port=int(port), print=None, access_log=None)
