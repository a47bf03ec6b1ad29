"""Two keys with limits of their own, without a database: LiteLLM asks this for each request (`custom_auth`)."""

from fastapi import HTTPException, Request
from litellm.proxy._types import UserAPIKeyAuth

KEYS = {
    "token-A": {"user_id": "A", "rpm_limit": 600},
    "token-D": {"user_id": "D", "rpm_limit": 60},
}


async def of_request(request: Request, api_key: str) -> UserAPIKeyAuth:
    limits = KEYS.get(api_key)
    if limits is None:
        raise HTTPException(status_code=401, detail="unknown key")
    return UserAPIKeyAuth(api_key=api_key, **limits)
