"""How a call of an agent run ended, from the answer of the capacity layer: the same for both drivers.

    a typed body {"outcome": ...}   that outcome, whatever the status says; `queued` is no end: failed, unasked_wait
    2xx without one                 served
    429 without one                 throttled, untyped
    anything else                   failed, status_<n>, untyped

The answer may come from anything that calls itself a capacity layer: its text is bounded and made printable.
"""

from __future__ import annotations

from typing import Any

from harness.ledger.call import Call
from harness.ledger.outcomes import FAILED, FROM_SERVICE, QUEUED, SERVED, THROTTLED

MOST_REASON = 100
_MOST_WAIT_MS = 1e10


def judge_run(call: Call, status: int, answer: dict[str, Any] | None, retry_after: str | None = None) -> str:
    """The outcome; sets status, answer, reason, retry_after, typed and the longest queue wait of its steps."""
    call.status, call.answer, call.retry_after = status, answer, retry_after
    outcome = answer.get("outcome") if answer else None
    if answer and outcome in FROM_SERVICE:
        call.reason = _text(answer.get("reason"))
        call.queue_wait_ns = _longest_wait_ns(answer.get("steps"))
        return str(outcome)
    if outcome == QUEUED:
        call.reason = "unasked_wait"
        return FAILED
    if 200 <= status < 300:
        return SERVED
    call.typed = False
    if status == 429:
        return THROTTLED
    call.reason = f"status_{status}"
    return FAILED


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return "".join(char if " " <= char <= "~" else "?" for char in value[:MOST_REASON])


def _longest_wait_ns(steps: Any) -> int:
    longest = -1.0
    for step in steps if isinstance(steps, list) else ():
        wait = step.get("queue_wait_ms") if isinstance(step, dict) else None
        if isinstance(wait, int | float) and 0 <= wait < _MOST_WAIT_MS:  # NaN is neither
            longest = max(longest, wait)
    return int(longest * 1e6 + 0.5) if longest >= 0 else -1
