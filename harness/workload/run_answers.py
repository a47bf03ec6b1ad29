"""How a call of an agent run ended, from the answer of the capacity layer: the same for both drivers.

    a typed body {"outcome": ...}   that outcome, whatever the status says; `queued` is no end: failed, unasked_wait
                                    `coalesced` means the whole batch: where a step of it was served, so is the batch
    2xx without one                 served
    429 without one                 throttled, untyped
    anything else                   failed, status_<n>, untyped

The answer may come from anything that calls itself a capacity layer: its text is bounded and made printable.
"""

from __future__ import annotations

from typing import Any

from harness.ledger.call import Call
from harness.ledger.outcomes import COALESCED, FAILED, FROM_SERVICE, QUEUED, SERVED, THROTTLED

MOST_REASON = 100
_MOST_WAIT_MS = 1e10


def judge_run(call: Call, status: int, answer: dict[str, Any] | None, retry_after: str | None = None) -> str:
    """The outcome; sets status, answer, reason, retry_after, typed and the longest queue wait of its steps."""
    call.status, call.answer, call.retry_after = status, answer, retry_after
    outcome = answer.get("outcome") if answer else None
    if answer and outcome in FROM_SERVICE:
        call.reason = _text(answer.get("reason"))
        steps = _steps(answer)
        call.queue_wait_ns = _longest_wait_ns(steps)
        if outcome == COALESCED and any(step.get("outcome") == SERVED for step in steps):
            return SERVED
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


def _steps(answer: dict[str, Any]) -> list[dict[str, Any]]:
    steps = answer.get("steps")
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def _longest_wait_ns(steps: list[dict[str, Any]]) -> int:
    longest = -1.0
    for step in steps:
        wait = step.get("queue_wait_ms")
        if isinstance(wait, int | float) and 0 <= wait < _MOST_WAIT_MS:  # NaN is neither
            longest = max(longest, wait)
    return int(longest * 1e6 + 0.5) if longest >= 0 else -1
