"""Who is charged: the tenant of a bearer token, and nothing else that a request says of itself.

A tenant that `OVERLOAD_TOKENS` (a JSON object, tenant -> token) does not name has the token `token-<tenant>`. Tokens
never reach evidence, metrics or messages.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson

VARIABLE = "OVERLOAD_TOKENS"
_PREFIX = "token-"
_MAX_NAME = 200

Identify = Callable[[str | None], str | None]
"""The raw Authorization header -> tenant, or None if it names none."""


def parse_tokens(text: str | None) -> dict[str, str]:
    """The variable's text -> tenant to token. Raises ValueError with a message that shows no token."""
    if not text:
        return {}
    try:
        tokens = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{VARIABLE} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    if not isinstance(tokens, dict) or not all(isinstance(token, str) and token for token in tokens.values()):
        raise ValueError(f'{VARIABLE} must be a JSON object from tenant to token, such as {{"A": "..."}}')
    if len(set(tokens.values())) < len(tokens):
        raise ValueError(f"{VARIABLE} gives two tenants the same token: they could not be told apart")
    return tokens


def identify_by(tokens: dict[str, str]) -> Identify:
    """tokens: tenant -> token."""
    tenant_of = {token: tenant for tenant, token in tokens.items()}

    def identify(authorization: str | None) -> str | None:
        if authorization is None or authorization[:7].lower() != "bearer ":
            return None
        token = authorization[7:].strip()
        known = tenant_of.get(token)
        if known is not None:
            return known
        if not token.startswith(_PREFIX):
            return None
        name = token[len(_PREFIX) :]
        return name if _is_name(name) and name not in tokens else None

    return identify


def _is_name(name: str) -> bool:
    """A name that can be written down: bytes that were not UTF-8 arrive as surrogates, which no JSON can hold."""
    return 0 < len(name) <= _MAX_NAME and (name.isascii() or not any("\ud800" <= c <= "\udfff" for c in name))
