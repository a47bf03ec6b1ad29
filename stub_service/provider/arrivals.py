"""One row an arrival: what came, what it was answered, and nothing that could be a secret.

Credentials become an identity: a salted hash, whose salt is never written down. Of headers only those are kept that say
who repeats what. Bodies become a hash. Every text from a caller is cut to a length and to what can be written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stub_service.provider.forms import Asked
from stub_service.provider.machine import Ticket

MOST_CHARS = 200
KEPT_HEADERS = {
    "idempotency-key": "key",
    "x-idempotency-key": "key",
    "x-stainless-retry-count": "retry_count",
    "amz-sdk-invocation-id": "invocation",
    "amz-sdk-request": "sdk_request",
    "overload-call": "call",
    "overload-attempt": "attempt",
    "x-envoy-attempt-count": "envoy_attempt",
    "overload-round": "round",
    "user-agent": "agent",
}
"""Request header -> key of the row's `said`."""
TOLD_HEADERS = ("retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after", "x-should-retry", "date")
"""Of the answer, kept in the row's `told`."""
_AWS_KEY_ID = re.compile(r"AWS4-\S{1,40} .{0,20}?Credential=([^/,\s]{1,200})")


def credential_of(headers: Mapping[str, str]) -> str:
    """What says who calls. Of an AWS signature only the key's id: the rest of it changes with each attempt."""
    given = headers.get("Authorization") or headers.get("X-Api-Key") or ""
    signed = _AWS_KEY_ID.match(given)
    return signed[1] if signed else given


def hasher(salt: bytes) -> hashlib.blake2b:
    """For a body that comes in pieces."""
    return hashlib.blake2b(key=salt, digest_size=16)


def hashed(salt: bytes, *parts: str | bytes) -> str:
    """12 hex digits; equal parts give equal ones while the salt lives."""
    digest = hashlib.blake2b(key=salt, digest_size=6)
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def said(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers of interest as they came, the first of each."""
    found: dict[str, str] = {}
    for name, value in headers:
        kept = KEPT_HEADERS.get(name.lower())
        if kept is not None and value:
            found.setdefault(kept, safe(value))
    return found


def safe(text: str) -> str:
    """Bounded, and without anything that JSON or a terminal could not take."""
    return text[:MOST_CHARS].encode("ascii", "backslashreplace").decode("ascii")


def row(
    number: int, t_ns: int, connection: int, identity: str, method: str, body: str, asked: Asked,
    heard: dict[str, str], ticket: Ticket,
) -> dict[str, Any]:  # fmt: skip
    """The row as the request comes in; `told`, `answered_ns`, `done_ns` and `hung_up` are added as they happen."""
    found: dict[str, Any] = {
        "arrival": f"a{number}", "t_ns": t_ns, "connection": connection, "identity": identity, "method": safe(method),
        "path": safe(asked.path), "form": asked.form, "nature": asked.nature, "body": body, "said": heard,
        "answer": ticket.answer.kind, "status": ticket.answer.status, "step": ticket.step,
    }  # fmt: skip
    if asked.operation:
        found["operation"] = safe(asked.operation)
    if asked.token:
        found["token"] = True
    if ticket.answer.code:
        found["code"] = ticket.answer.code
    if ticket.answer.retry_after_s is not None:
        found["body_retry_after_s"] = ticket.answer.retry_after_s
    if ticket.window >= 0:
        found["window"] = ticket.window
    if ticket.effect is not None:
        found["effect"] = ticket.effect
        found["replayed"] = ticket.replayed
    return found
