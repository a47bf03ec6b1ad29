"""The rows of the ledger: JSON Lines, one object a line, keys as documented in ARCHITECTURE.md.

Keys without a value are left out. All instants and durations are integer nanoseconds.
"""

from __future__ import annotations

from typing import Any

import orjson

from harness.ledger.call import Call
from harness.ledger.outcomes import NEVER_SENT

MOST_CHARS = 40
"""Of a word that a service says."""


def call_row(call: Call) -> bytes:
    """A line of calls.jsonl, newline included: a row an attempt, or a row for a call that was never sent."""
    attempt = 0 if call.outcome in NEVER_SENT else call.attempt
    row: dict[str, Any] = {
        "call": call.id,
        "attempt": attempt,
        "tenant": call.tenant,
        "round": call.round,
        "run": call.run,
        "due_ns": call.due_ns,
        "done_ns": call.done_ns,
        "outcome": call.outcome,
    }
    if attempt:
        row["sent_ns"] = call.sent_ns
    if call.status:
        row["status"] = call.status
    if call.reason is not None:
        row["reason"] = call.reason
    if call.queue_wait_ns >= 0:
        row["queue_wait_ns"] = call.queue_wait_ns
    if call.service_ns >= 0:
        row["service_ns"] = call.service_ns
    if call.parent is not None:
        row["parent"] = call.parent
    if call.retry_after is not None:
        row["retry_after"] = call.retry_after
    if not call.typed:
        row["untyped"] = True
    if call.cost >= 0:
        row["cost"] = call.cost
    if call.attempt > 1:
        row["again_ns"] = call.again_ns
    if call.retried:
        row["retried"] = True
    if call.tool is not None:
        row["tool"] = call.tool
    if call.polls:
        row["polls"] = call.polls
    if call.action is not None:
        row["action"] = call.action
        if call.run_id is not None:
            row["run_id"] = call.run_id
        shown = call.answer.get("user_status") if call.answer else None
        if isinstance(shown, str):
            row["user_status"] = shown[:MOST_CHARS]
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
