"""One call to a target, and how its answer is understood: what `overload target check` shows before any load is sent.

The request is made by the very templates, and the answer read by the very rules, that a trial uses. One request, never
sent again. Secrets are sent and not shown.
"""

from __future__ import annotations

import http.client
import ssl
import time
from dataclasses import dataclass
from typing import Any

from harness.target.file import Described, tls_of
from harness.target.templates import Draws, RequestTemplate
from harness.target.tls import words_of
from harness.target.tokens import Redactor
from harness.target.understanding import Understanding, Understood
from harness.target.url import Endpoint

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Probed:
    """problem: why there is no answer. took_ns: until the whole answer was there."""

    tenant: str
    request: str
    status: int = 0
    took_ns: int = 0
    understood: Understood | None = None
    problem: str | None = None


def call_values(described: Described, tenant: str, seq: int, seed: int = 1) -> dict[str, Any]:
    """What the templates of a plain call may name, for the first attempt of a call."""
    values = Draws(described.target.data, seed).of(tenant, seq)
    call = f"0.{seq}"
    return {
        **values, "call": call, "attempt": f"{call}.1", "tenant": tenant, "seq": seq, "round": 0, "due_ms": 0,
    }  # fmt: skip


def probe_call(described: Described, endpoint: Endpoint, tenant: str, token: str | None) -> Probed:
    """Sends the target's `call` once for a tenant."""
    target = described.target
    filled = RequestTemplate(target.call).fill(call_values(described, tenant, 0))
    headers = {**dict(filled.headers), "User-Agent": "overload", "Overload-Call": "0.0", "Overload-Attempt": "0.0.1"}
    if token is not None:
        headers[target.credentials.header] = target.credentials.form.replace("{token}", token)
    shown = f"{filled.method} {filled.path}"
    begun = time.monotonic_ns()
    try:
        status, answered, body = endpoint.exchange(filled.method, filled.path, filled.body, TIMEOUT_S, headers)
    except ssl.SSLError as error:
        return Probed(tenant, shown, problem=f"no TLS: {words_of(error)}")
    except (OSError, http.client.HTTPException) as error:
        return Probed(tenant, shown, problem=f"no answer: {getattr(error, 'strerror', None) or repr(error)}")
    took_ns = time.monotonic_ns() - begun
    kept = {
        name.lower().encode("latin-1", "replace"): value.encode("latin-1", "replace")
        for name, value in answered.items()
    }
    redactor = Redactor([token] if token is not None and token != f"token-{tenant}" else [])
    return Probed(tenant, shown, status, took_ns, Understanding(target.answers, redactor).of(status, kept, body))


def endpoint_of(described: Described) -> Endpoint:
    """Raises TargetUnusable."""
    return Endpoint(described.target.url, tls_of(described), described.target.allow)
