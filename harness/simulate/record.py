"""The simulator's side of the ledger: the same rows that a live trial has, from virtual time.

Pure: rows go to the `add` of whatever was given (harness/ledger/writer.py in a trial, a list in a test).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from harness.ledger.call import Call
from harness.ledger.rows import call_row
from harness.simulate.driver import CallSink, DecisionSink
from stub_service.admission.policy import Ticket
from stub_service.admission.service import SharedService

AddLine = Callable[[bytes], None]


def calls_to(add: AddLine) -> CallSink:
    """A sink that adds a line of calls.jsonl for each call that has ended."""

    def on_call(call: Call) -> None:
        add(call_row(call))

    return on_call


def decisions_to(add: AddLine) -> DecisionSink:
    """A sink that adds a line of decisions.jsonl for each decision of the service."""

    def on_decision(service: SharedService, ticket: Ticket, outcome: str, reason: str | None, now_ns: int) -> None:
        call: Call = ticket.ref
        row: dict[str, Any] = {
            "t_ns": now_ns,
            "call": call.id,
            "attempt_id": f"{call.id}.1",
            "tenant": ticket.tenant,
            "round": call.round,
            "outcome": outcome,
            "waiting": service.policy.waiting,
            "running": service.running,
            "workers": service.workers,
        }
        if reason is not None:
            row["reason"] = reason
        if outcome == "served":
            row["queue_wait_ns"] = ticket.started_ns - ticket.arrived_ns
            row["service_ns"] = ticket.service_ns
            row["status"] = 200
        elif call.status and outcome == "throttled":
            row["status"] = call.status
        add(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))

    return on_decision
