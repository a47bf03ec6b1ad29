"""v04.bulkheads: one dependency slows down, and those who do not call it notice nothing.

Slowed is what the profile's faults slow during the burst: a dependency, or only its reads or its writes. A tenant none
of whose steps go there is a bystander. For each, burst (and recovery, where leaked slots would show) against calm:

    served share, refusals, mean latency      each moves by less than its margin, as their callers saw it
    slots in use at the bulkheads they call   up by less than a margin, as the controller says at each admission

and of the slowed one: its limit holds all the same, and the slots of calls that timed out come back, so that it serves
again in recovery. A step of a batch that calls the slowed one, too, holds no slot elsewhere while it waits: once it is
admitted, its call arrives. Source: M. Nygard, Release It!, chapter 5 (bulkheads).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from harness.checks.caller_view import ALL_SERVED, rng_of, stays, submits
from harness.checks.capacity_frames import (
    READ,
    WRITE,
    BulkheadKey,
    Frame,
    Run,
    Step,
    bulkhead_of,
    bulkheads,
    by_bulkhead,
    frame_of,
    limit_of,
    was_full,
    within_limits,
)
from harness.checks.context import NS_PER_MS
from harness.checks.registry import CHECKS, Check
from harness.checks.rules import Rule, at_least, at_most, enough, unmoved, verdict, withheld
from harness.checks.v03_tenant_share import latency_margin
from harness.checks.verdict import Verdict
from harness.ledger.evidence import Row
from harness.ledger.reader import Trial
from harness.measure.unmoved import mean_up, sample
from harness.profile.base import Count, DurationNs, Part
from harness.profile.capacity import RunGroup
from harness.profile.model import Window

NAME = "v04.bulkheads"
Points = Annotated[float, Field(gt=0, lt=100)]
SLOWING = ("slow", "hang")


class Params(Part):
    """served_down_pp, refusals_up_pp: margins in percentage points; recovery_pp: of both, in recovery. latency_up: of
    the mean; left out, half of the longest service time. slots_up: share of a limit by which the slots in use may rise,
    one slot at least. timeouts: calls of the slowed bulkhead that must have timed out. recovered: share of its calls
    that recovery must serve, after `settle`, of `back` at least. mixed: batches that must have called the slowed
    dependency and another one together; idle: longest that a slot of theirs may be held with no call under way, and
    held_idle: how many may take longer (a connection may have to be opened anew).
    """

    served_down_pp: Points = 1.0
    refusals_up_pp: Points = 1.0
    recovery_pp: Points = 2.0
    latency_up: DurationNs | None = None
    confidence: Annotated[float, Field(ge=0.8, le=0.999)] = 0.95
    slots_up: Annotated[float, Field(gt=0, lt=1)] = 0.25
    timeouts: Count = 20
    recovered: Annotated[float, Field(gt=0, le=1)] = 0.95
    settle: DurationNs = 500_000_000
    back: Count = 40
    mixed: Count = 20
    idle: DurationNs = 150_000_000
    held_idle: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 1


def judge(trial: Trial, params: Params) -> Verdict:
    frame = frame_of(trial)
    phases = frame.profile.phases
    if not frame.evidence.has_arrivals:
        return withheld(
            NAME, "there are no arrivals, and slots are counted by what was under way at the dependencies",
            "let the layer under test call the stub's dependencies (`overload stub --dependencies-only`)",
        )  # fmt: skip
    if phases.calm is None or phases.burst is None:
        return withheld(NAME, "the trial has no phases calm and burst to compare", "`phases: {calm, burst}`")
    slowed = slowed_in(frame, phases.burst)
    if not slowed:
        return withheld(NAME, "no fault slows a dependency in the burst", "`faults: [{kind: slow, factor: 10, ...}]`")
    rules = _bystanders(frame, params, slowed, phases.calm, phases.burst)
    rules += _in_use(frame, params, slowed, phases.calm, phases.burst)
    mixed = _mixed(frame, slowed)
    rules += [*within_limits(frame), *_come_back(frame, params, slowed), _held_idle(frame, params, slowed, mixed)]
    rules += _evidence(frame, params, slowed, phases.burst, len(mixed))
    names = ", ".join(bystanders(frame, slowed))
    passed = (
        f"While {_shown(slowed)} slowed down, {names} kept served share, refusals, latency and slots; its own limit "
        "held, and its slots came back."
    )
    return verdict(NAME, rules, passed)


def slowed_in(frame: Frame, window: Window) -> set[BulkheadKey]:
    return {
        (fault.dependency, operation)
        for fault in frame.profile.faults
        if fault.kind in SLOWING
        and fault.from_ns < window.to_ns
        and (fault.to_ns is None or fault.to_ns > window.from_ns)
        for operation in ((fault.operation,) if fault.operation else (READ, WRITE))
    }  # fmt: skip


def _called(group: RunGroup) -> set[BulkheadKey]:
    batches = [*group.batches, *(batch for child, _, _ in group.sub_agents() for batch in child.batches)]
    batches += [group.replans.batch] if group.replans else []
    return {(step.dependency, step.operation) for batch in batches for step in batch.steps}


def bystanders(frame: Frame, slowed: set[BulkheadKey]) -> dict[str, set[BulkheadKey]]:
    """Tenants none of whose steps go to a slowed bulkhead -> the bulkheads that they call."""
    called = {
        name: set().union(*(_called(group) for group in tenant.runs))
        for name, tenant in frame.profile.tenants.items() if tenant.runs
    }  # fmt: skip
    return {name: keys for name, keys in called.items() if keys and not keys & slowed}


def _shown(keys: set[BulkheadKey]) -> str:
    return ", ".join(f"{dependency} {operation}s" for dependency, operation in sorted(keys))


def _bystanders(frame: Frame, params: Params, slowed: set[BulkheadKey], calm: Window, burst: Window) -> list[Rule]:
    margin = latency_margin(frame, params.latency_up)
    if margin is None:
        return [enough("bystanders", "margin of the latency", 0, 1, "margins", "give `latency_up`")]
    rules: list[Rule] = []
    recovery = frame.profile.phases.recovery
    margins = params.confidence, params.served_down_pp, params.refusals_up_pp, margin
    later = params.confidence, params.recovery_pp, params.recovery_pp, margin
    for name in bystanders(frame, slowed):
        rows = submits(frame, lambda run, name=name: run.tenant == name)  # type: ignore[misc]
        rules += stays(frame, name, rows, calm, burst, *margins)
        if recovery is not None:
            rules += stays(frame, name, rows, calm, recovery, *later, " in recovery")
    return rules


def _in_use(frame: Frame, params: Params, slowed: set[BulkheadKey], calm: Window, burst: Window) -> list[Rule]:
    """Slots in use at the bystanders' bulkheads, just after each of their steps was admitted."""
    tenants = bystanders(frame, slowed)
    rules = []
    for key in sorted(set().union(*tenants.values()) if tenants else ()):
        rows = [
            row for row in frame.of_kind("step", "admitted")
            if (row.get("dependency"), row.get("operation")) == key and isinstance(row.get("in_use"), int)
        ]  # fmt: skip
        limit = limit_of(frame, key)
        at = np.array([int(row["t_ns"]) for row in rows], dtype=np.int64)
        used = np.array([int(row["in_use"]) for row in rows], dtype=np.int64)
        after, before = (sample(at, used, window.from_ns, window.to_ns) for window in (burst, calm))
        subject = f"{key[0]} {key[1]}s"
        rules.append(
            enough(
                subject, "admissions with slots in use", min(len(after), len(before)), 50, "admissions", "more calls"
            )
        )
        if limit is not None and len(after) and len(before):
            change = mean_up(after, before, params.confidence, rng_of(frame, f"{subject} in use"))
            margin = max(1.0, limit * params.slots_up)
            rules.append(unmoved(subject, "slots in use up", change, margin, "slots", len(after) + len(before)))
    return rules


def _come_back(frame: Frame, params: Params, slowed: set[BulkheadKey]) -> list[Rule]:
    """In recovery, the slowed bulkhead serves again: calls whose slots never came back would leave it none."""
    recovery = frame.profile.phases.recovery
    if recovery is None:
        return [enough("recovery", "phase", 0, 1, "phases", "a phase `recovery` after the fault has ended")]
    begin = recovery.from_ns + params.settle
    rows = [
        row for row in submits(frame, lambda run: _goes_only_to(run, slowed))
        if begin <= int(row["due_ns"]) < recovery.to_ns
    ]  # fmt: skip
    served = sum(row.get("outcome") in ALL_SERVED for row in rows)
    share = served / len(rows) if rows else 0.0
    subject = _shown(slowed)
    text = (
        f"{subject}: {share:.0%} of {len(rows)} calls served after the slowness had ended, under "
        f"{params.recovered:.0%}: the slots of calls that timed out did not come back"
    )
    named = [str(row["call"]) for row in rows if row.get("outcome") not in ALL_SERVED]
    return [
        enough(subject, "calls in recovery", len(rows), params.back, "calls", "runs that go on calling it in recovery"),
        at_least(subject, "served in recovery", share, params.recovered, "of the calls", len(rows), text, named),
    ]


def _goes_only_to(run: Run, keys: set[BulkheadKey]) -> bool:
    return run.group is not None and _called(run.group) <= keys


def timed_out(frame: Frame, key: BulkheadKey) -> list[Row]:
    """Calls that lasted to their timeout, or had no answer."""
    bulkhead = bulkheads(frame).get(key)
    rows = by_bulkhead(frame).get(key, [])
    return [
        row for row in rows
        if not row.get("status") or (bulkhead and int(row["ended_ns"]) - int(row["t_ns"]) >= bulkhead.timeout)
    ]  # fmt: skip


def _held_idle(frame: Frame, params: Params, slowed: set[BulkheadKey], mixed: list[list[Step]]) -> Rule:
    """A slot of another dependency that is held while the batch waits for the slowed one: admitted, and no call."""
    others = [step for steps in mixed for step in steps if bulkhead_of(step) not in slowed]
    idle: dict[str, int] = {}
    for step in others:
        admitted = step.decided("admitted")
        after = next((row for row in (*step.arrivals[:1], step.end) if row is not None), None)
        if admitted is not None and after is not None:
            held_ns = frame.stalls.between(int(admitted["t_ns"]), int(after["t_ns"]))
            if held_ns > params.idle:
                idle[step.id] = held_ns
    text = (
        f"{len(idle)} steps of batches that call {_shown(slowed)}, too, held a slot elsewhere, with no call under way "
        f"for up to {max(idle.values(), default=0) / NS_PER_MS:.0f} ms"
    )
    return at_most("batches", "slots held idle", len(idle), params.held_idle, "steps", len(others), text, list(idle))


def _evidence(frame: Frame, params: Params, slowed: set[BulkheadKey], burst: Window, mixed: int) -> list[Rule]:
    tenants = bystanders(frame, slowed)
    capacity = frame.profile.capacity
    all_keys = {
        key for tenant in frame.profile.tenants.values() for group in tenant.runs for key in _called(group)
    } - slowed
    watched = set().union(*tenants.values()) if tenants else set()
    late = sum(len(timed_out(frame, key)) for key in slowed)
    full = sum(was_full(frame, key, burst.from_ns, burst.to_ns) for key in slowed)
    others = set(capacity.dependencies) if capacity and frame.bundled else {key[0] for key in all_keys}
    whole = {name for name in others if not any(key[0] == name for key in slowed)}
    unwatched = [name for name in sorted(whole) if not any(key[0] == name for key in watched)]
    return [
        enough("slowed", "calls timed out", late, params.timeouts, "calls", "a timeout below the slowed service time"),
        enough("slowed", "bulkheads full in the burst", full, len(slowed), "bulkheads", "more calls to the slowed one"),
        enough("batches", "to the slowed one and another", mixed, params.mixed, "batches", "batches that call both"),
        enough("bystanders", "dependencies with one", len(whole) - len(unwatched), max(1, len(whole)), "dependencies",
               f"a tenant that calls only {', '.join(unwatched)}" if unwatched else "a tenant that calls another one"),
    ]  # fmt: skip


def _mixed(frame: Frame, slowed: set[BulkheadKey]) -> list[list[Step]]:
    """Steps of each batch that called a slowed dependency and another one."""
    found: dict[tuple[str, str], list[Step]] = {}
    for step in frame.steps.values():
        if step.arrivals or step.decisions:
            found.setdefault((step.run, step.batch), []).append(step)
    names = {dependency for dependency, _ in slowed}
    called = ((steps, {bulkhead_of(step)[0] for step in steps}) for steps in found.values())
    return [steps for steps, dependencies in called if len(dependencies) > 1 and dependencies & names]


CHECKS[NAME] = Check(
    NAME,
    "a slow dependency leaves the callers of others their latency, refusals and slots, and keeps its limit",
    "a `slow` fault in the burst, phases calm, burst and recovery, tenants that call only other dependencies",
    Params,
    judge,
)
