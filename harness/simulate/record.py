"""The simulators' side of the ledger: the same rows that a live trial has, from virtual time.

Which of the two simulators a profile needs is decided here. Pure: rows go to the `add` of whatever was given
(harness/ledger/writer.py in a trial, a list in a test).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import orjson

from harness.ledger.call import Call
from harness.ledger.reader import ARRIVALS, CALLS, DECISIONS, EFFECTS
from harness.ledger.rows import call_row
from harness.profile.model import Profile
from harness.simulate.capacity import CapacitySimulation, Record, RecordSink
from harness.simulate.driver import CallSink, DecisionSink, Simulation
from harness.workload.plan import RecordedSource, no_recordings
from stub_service.admission.policy import Ticket
from stub_service.admission.service import SharedService
from stub_service.admission.shadow import Tell, shadow_row
from stub_service.capacity.records import Arrival, CostDecision, Decision, Effect
from stub_service.capacity.records import row as capacity_row

AddLine = Callable[[bytes], None]
AnySimulation: TypeAlias = Simulation | CapacitySimulation


def has_runs(profile: Profile) -> bool:
    """Its tenants' agents run behind a capacity layer."""
    return any(tenant.runs for tenant in profile.tenants.values())


def files_of(profile: Profile) -> tuple[str, ...]:
    """Names of the ledger's files that a simulation of the profile writes."""
    return (CALLS, DECISIONS, ARRIVALS, EFFECTS) if has_runs(profile) else (CALLS, DECISIONS)


def simulation_of(
    profile: Profile,
    add: Mapping[str, AddLine],
    recorded: RecordedSource = no_recordings,
    defect: str | None = None,
) -> AnySimulation:
    """The simulation that a profile needs, its rows going to `add[file]` for each of `files_of`. Raises BadInput."""
    if has_runs(profile):
        records = records_to(add[DECISIONS], add[ARRIVALS], add[EFFECTS])
        return CapacitySimulation(profile, calls_to(add[CALLS]), records, defect)
    told = shadow_to(add[DECISIONS], profile)
    return Simulation(profile, calls_to(add[CALLS]), decisions_to(add[DECISIONS]), recorded, defect, told)


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
            "attempt_id": f"{call.id}.{call.attempt}",
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


def shadow_to(add: AddLine, profile: Profile) -> Tell | None:
    """A sink that adds a line of decisions.jsonl for each call that the shadow has decided; None without a shadow."""
    if profile.service is None or profile.service.shadow is None:
        return None
    policy = profile.service.shadow.policy

    def on_shadow(ticket: Ticket, outcome: str, reason: str | None, now_ns: int) -> None:
        call: Call = ticket.ref
        about = {"call": call.id, "attempt_id": f"{call.id}.1", "tenant": ticket.tenant, "round": call.round}
        row = shadow_row(now_ns, about, policy, ticket, outcome, reason)
        add(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))

    return on_shadow


def records_to(decisions: AddLine, arrivals: AddLine, effects: AddLine) -> RecordSink:
    """A sink that adds a line of the file that a record of the capacity layer belongs to."""
    add_to: dict[type[Any], AddLine] = {
        Decision: decisions, CostDecision: decisions, Arrival: arrivals, Effect: effects
    }  # fmt: skip

    def on_record(record: Record) -> None:
        add_to[type(record)](orjson.dumps(capacity_row(record), option=orjson.OPT_APPEND_NEWLINE))

    return on_record
