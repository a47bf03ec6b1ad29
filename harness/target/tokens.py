"""Whose token goes into which request, and how a token is kept out of everything else.

In this order: the variable that the target file names for the tenant; OVERLOAD_TOKENS, a JSON object tenant -> token;
and, where the file names no credentials at all and the host is loopback, `token-<tenant>`, as the bundled stub has it.
A tenant of a file that names credentials has a token, or nothing is sent. No message ever shows what a variable holds.

What a target answers may hold a token: a service that echoes the request's headers is not rare. `Redactor` masks it in
every text that is kept, before the text is cut to its length.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence

from harness.errors import BadInput
from harness.target.file import tokens_for
from harness.target.hosts import is_loopback
from harness.target.model import Credentials, TargetFile

SHARED = "OVERLOAD_TOKENS"
MASKED = "[redacted]"
_LEAST_MASKED = 4
"""A shorter token would mask half of what a service says, and is no secret."""
_UNSENDABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def tokens_of(environment: Mapping[str, str]) -> dict[str, str]:
    """OVERLOAD_TOKENS. Raises BadInput, which never shows what is in it."""
    text = environment.get(SHARED)
    if not text:
        return {}
    try:
        tokens = json.loads(text)
    except ValueError:
        tokens = None
    if not isinstance(tokens, dict) or not all(isinstance(token, str) for token in tokens.values()):
        raise BadInput(f'{SHARED} is not a JSON object of tenant -> token, such as {{"A": "secret"}}')
    return tokens


def sendable(token: str) -> bool:
    """Whether a header can carry it."""
    return bool(token) and not _UNSENDABLE.search(token) and token == token.strip()


def credentials_of(
    target: TargetFile, tenants: Sequence[str], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Tenant -> token, for each that has one. Raises BadInput that names what is missing."""
    named = tokens_for(target.credentials, list(tenants), environment)
    shared = tokens_of(environment)
    found = {tenant: named.get(tenant) or shared.get(tenant) for tenant in tenants}
    missing = [tenant for tenant, token in found.items() if token is None]
    if missing and _names_some(target.credentials):
        shown = ", ".join(missing[:20]) + (f" and {len(missing) - 20} more" if len(missing) > 20 else "")
        raise BadInput(
            f"the target file names no variable for the token of {shown}; add `credentials.env`, or each to "
            f"`credentials.tenants`, or give them in {SHARED}"
        )
    if is_loopback(target.host):
        found |= {tenant: f"token-{tenant}" for tenant in missing}
    tokens = {tenant: token for tenant, token in found.items() if token is not None}
    for tenant, token in tokens.items():
        if not sendable(token):
            raise BadInput(f"the token of tenant {tenant!r} is empty or has characters that no header can carry")
    return tokens


def secrets_of(tokens: Mapping[str, str]) -> frozenset[str]:
    """Those that must not be seen: a token that follows from the tenant's name is none."""
    return frozenset(token for tenant, token in tokens.items() if token != f"token-{tenant}")


def _names_some(credentials: Credentials) -> bool:
    return credentials.env is not None or bool(credentials.tenants)


class Redactor:
    """Masks tokens in texts. A text costs its length for each different length of a token, however many there are."""

    __slots__ = ("_lengths", "_tokens", "longest")

    def __init__(self, tokens: Iterable[str] = ()) -> None:
        self._tokens = frozenset(token for token in tokens if len(token) >= _LEAST_MASKED)
        self._lengths = sorted({len(token) for token in self._tokens}, reverse=True)
        self.longest = self._lengths[0] if self._lengths else 0

    def masked(self, text: str, limit: int) -> str:
        """The first `limit` characters, no part of a token among them."""
        text = text[: limit + self.longest]
        for length in self._lengths:
            at = 0
            while at + length <= len(text):
                if text[at : at + length] in self._tokens:
                    text = text[:at] + MASKED + text[at + length :]
                    at += len(MASKED)
                else:
                    at += 1
        return text[:limit]


NOTHING_TO_MASK = Redactor()
