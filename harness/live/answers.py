"""From an HTTP answer to a typed outcome: pure, so that every odd answer can be tested without a socket.

    2xx                             served, unless a typed body says that it was not: a refusal is one by any status
    a typed body {"outcome": ...}   that outcome; `expired` by the queue deadline that we sent: abandoned, patience
    "queued", by any status         failed, unasked_wait: it is no success, and nobody asked to come back for it
    429 without one                 throttled, untyped
    anything else                   failed, status_<n>, untyped

Whatever a target answers is untrusted: text is bounded and made printable, durations that make no sense are ignored.
"""

from __future__ import annotations

import re

import orjson

from harness.ledger.call import Call
from harness.ledger.outcomes import ABANDONED, COALESCED, EXPIRED, FAILED, FROM_SERVICE, QUEUED, SERVED, THROTTLED
from harness.workload.run_answers import judge_run

TYPED_BODY_LIMIT = 64 * 1024
"""A body larger than this many bytes is not read for a typed outcome."""
KEPT_BODY_LIMIT = 1024 * 1024
"""The same for a call whose answer is wanted whole: a batch of a thousand steps is told in a few hundred kB."""

QUEUE_DEADLINE = "queue_deadline"
_TIMING_LIMIT = 1024
_MAX_DURATION_MS = 1e10
_TYPED = b'"outcome"'
_TOLD = frozenset(FROM_SERVICE) - {SERVED} | {QUEUED}
_TIMING = re.compile(
    rb"(?:^|,)[ \t]*(queue|service)[ \t]*(?:;[^,;]*)*?"
    rb';[ \t]*dur[ \t]*=[ \t]*"?(\d{1,10}(?:\.\d{1,9})?)"?[ \t]*(?=[,;]|$)'
)


def judge(call: Call, status: int, body: bytes | None, timing: bytes | None, retry: bytes | None, asked: bool) -> str:
    """The outcome; sets status, reason, retry_after, typed and the service's times on the call.

    body: None if it was too large to look at. asked: a queue deadline was sent with this call.
    """
    call.status = status
    if timing is not None:
        call.queue_wait_ns, call.service_ns = server_timing(timing)
    if retry is not None:
        call.retry_after = printable(retry, 200)
    success = 200 <= status < 300
    if success and (body is None or _TYPED not in body):
        return SERVED
    outcome, reason = typed_outcome(body)
    if success and outcome in (None, COALESCED):
        return SERVED
    if outcome is None:
        call.typed = False
        if status == 429:
            return THROTTLED
        call.reason = f"status_{status}"
        return FAILED
    if outcome == QUEUED:
        call.reason = "unasked_wait"
        return FAILED
    if outcome == EXPIRED and asked and reason == QUEUE_DEADLINE:
        call.reason = "patience"
        return ABANDONED
    call.reason = reason if reason is not None or outcome != FAILED else f"status_{status}"
    return outcome


def judge_run_call(call: Call, status: int, body: bytes | None, retry: bytes | None) -> str:
    """The outcome of a call of an agent run (harness/workload/run_answers.py). body: None if it was too large."""
    try:
        document = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        document = None
    answer = document if isinstance(document, dict) else None
    return judge_run(call, status, answer, printable(retry, 200) if retry is not None else None)


def typed_outcome(body: bytes | None) -> tuple[str | None, str | None]:
    """(outcome, reason) of an answer other than success; (None, None) if it says none that we know."""
    if not body or body[:1] != b"{":
        return None, None
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None, None
    outcome, reason = document.get("outcome"), document.get("reason")
    if not isinstance(outcome, str) or outcome not in _TOLD:
        return None, None
    return outcome, printable(reason.encode("utf-8", "replace"), 100) if isinstance(reason, str) else None


def server_timing(value: bytes) -> tuple[int, int]:
    """(queue wait, service time) [ns] of a Server-Timing header; -1 for what it does not say in plain milliseconds."""
    waits = {b"queue": -1, b"service": -1}
    if len(value) <= _TIMING_LIMIT:
        for name, text in _TIMING.findall(value):
            duration = float(text)
            if waits[name] < 0 and duration <= _MAX_DURATION_MS:
                waits[name] = int(duration * 1e6 + 0.5)
    return waits[b"queue"], waits[b"service"]


def printable(value: bytes, limit: int) -> str:
    """At most `limit` characters, all printable ASCII: what is not becomes '?'."""
    text = value[:limit].decode("latin-1")
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if " " <= char <= "~" else "?" for char in text)
