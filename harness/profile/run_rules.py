"""Rules that span fields of the capacity layer, its faults and tenants' runs: contradictions, each with its path.

Pure functions of validated parts, asked by rules.py. What a run asks for beyond its envelope is no contradiction: to be
refused is what some trials are about (describe.py says so beforehand).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.profile import cost_rules
from harness.profile.units import show_duration, show_rate

if TYPE_CHECKING:  # the model imports this module
    from harness.profile.capacity import Batch, Capacity, Dependency, Envelope, Fault, RunGroup
    from harness.profile.model import Tenant

Path: TypeAlias = tuple[str | int, ...]
Contradiction: TypeAlias = tuple[Path, str]

FAULT_USES: dict[str, tuple[str, ...]] = {
    "slow": ("factor",),
    "error": ("status",),
    "retry_after": ("retry_after", "status"),
    "commit_then_timeout": (),
    "outage": (),
    "hang": (),
}
FAULT_NEEDS = {"slow": "factor", "error": "status", "retry_after": "retry_after"}


def contradictions(parts: Mapping[str, Any]) -> Iterator[Contradiction]:
    """parts: as rules.py takes them. A capacity layer that is described but not sound is missing there: what would need
    it is skipped."""
    duration: int | None = parts.get("duration")
    capacity: Capacity | None = parts.get("capacity")
    tenants: Mapping[str, Tenant | None] = parts.get("tenants") or {}
    known = tuple(capacity.dependencies) if capacity is not None else None
    if capacity is not None:
        yield from _of_capacity(capacity, tenants)
    for i, fault in enumerate(parts.get("faults") or []):
        if known is None and "capacity" in parts:
            yield ("faults", i), "a fault happens to a dependency of `capacity:`, and the profile describes none"
        yield from _of_fault(("faults", i), fault, known, duration)
    for name, tenant in tenants.items():
        if tenant is not None and tenant.runs:
            yield from _of_tenant(("tenants", name), tenant, known, duration)
    yield from cost_rules.contradictions(capacity, tenants)


def _of_capacity(capacity: Capacity, tenants: Mapping[str, Any]) -> Iterator[Contradiction]:
    reserved = sum(reserve.slots for reserve in capacity.reserves.values())
    shared = sum(share.slots for share in capacity.shares.values())
    if reserved + shared > capacity.ceiling:
        rule = f"reserves ({reserved}) and tenants' shares ({shared}) ask for more slots than that; raise it"
        yield ("capacity", "ceiling"), rule
    for tenant in capacity.shares:
        if tenants and tenant not in tenants:
            yield ("capacity", "shares", tenant), "there is no such tenant"
    for name in capacity.envelope.budgets:
        if name not in capacity.dependencies:
            yield ("capacity", "envelope", "budgets", name), _unknown(name, tuple(capacity.dependencies))
    yield from _positive(("capacity", "envelope"), capacity.envelope, "deadline")
    yield from _positive(("capacity", "recovery"), capacity.recovery, "from_rate", "to_rate")
    if capacity.recovery.from_rate > capacity.recovery.to_rate:
        to_rate = show_rate(capacity.recovery.to_rate)
        yield ("capacity", "recovery", "from_rate"), f"the ramp would begin above its end (to_rate: {to_rate})"
    if capacity.retry.base > capacity.retry.most:
        most = show_duration(capacity.retry.most)
        yield ("capacity", "retry", "base"), f"the first delay is above the longest (most: {most})"
    interactive = capacity.reserves.get("interactive")
    for name, dependency in capacity.dependencies.items():
        at: Path = ("capacity", "dependencies", name)
        yield from _of_dependency(at, dependency, reserved, shared, interactive.slots if interactive else 0)


def _of_dependency(
    at: Path, dependency: Dependency, reserved: int, shared: int, interactive: int
) -> Iterator[Contradiction]:
    yield from _positive(at, dependency, "service_time", "expected")
    for kind in ("reads", "writes"):
        bulkhead = getattr(dependency, kind)
        yield from _positive((*at, kind), bulkhead, "timeout")
        if reserved > bulkhead.limit:
            yield (
                (*at, kind, "limit"),
                f"the reserves ask for {reserved} slots of every bulkhead; raise it, or cut them",
            )
        elif reserved + shared > bulkhead.limit:
            rule = f"reserves ({reserved}) and tenants' shares ({shared}) ask for more slots than that; raise it"
            yield (*at, kind, "limit"), rule
    yield from _positive((*at, "circuit"), dependency.circuit, "window", "slow", "open_for", "lease")
    adaptive = dependency.adaptive
    if adaptive is None:
        return
    yield from _positive((*at, "adaptive"), adaptive, "slow", "window")
    if adaptive.lowest < interactive:
        yield (*at, "adaptive", "lowest"), f"it must not go below the interactive reserve ({interactive} slots)"
    if not adaptive.lowest <= dependency.reads.limit <= adaptive.highest:
        yield (*at, "reads", "limit"), f"it begins outside of its bounds ({adaptive.lowest} to {adaptive.highest})"


def _positive(at: Path, part: Any, *fields: str) -> Iterator[Contradiction]:
    for field in fields:
        if getattr(part, field) == 0:
            yield (*at, field), "it must be above zero"


def _unknown(name: str, known: tuple[str, ...]) -> str:
    return f"there is no such dependency (known: {', '.join(known)})"


def _of_fault(at: Path, fault: Fault, known: tuple[str, ...] | None, duration: int | None) -> Iterator[Contradiction]:
    if known is not None and fault.dependency not in known:
        yield (*at, "dependency"), _unknown(fault.dependency, known)
    if (needed := FAULT_NEEDS.get(fault.kind)) and getattr(fault, needed) is None:
        yield (*at, "kind"), f"a fault of kind {fault.kind} needs {needed}"
    for field in ("factor", "status", "retry_after"):
        if getattr(fault, field) is not None and field not in FAULT_USES[fault.kind]:
            yield (*at, field), f"a fault of kind {fault.kind} does not use it"
    if fault.kind == "commit_then_timeout" and fault.operation == "read":
        yield (*at, "operation"), "only a write can be committed"
    if fault.to_ns is not None and fault.from_ns >= fault.to_ns:
        yield (*at, "to"), "it must end after it begins"
    if duration and fault.from_ns >= duration:
        yield (*at, "from"), f"it would begin after the trial (duration: {show_duration(duration)})"
    if duration and fault.to_ns is not None and fault.to_ns > duration:
        yield (*at, "to"), f"it ends after the trial (duration: {show_duration(duration)}); leave it out to last on"


def _of_tenant(
    at: Path, tenant: Tenant, known: tuple[str, ...] | None, duration: int | None
) -> Iterator[Contradiction]:
    instead = {
        "replans": "runs have re-plans of their own (runs[].replans)",
        "budget": "what a run may use is its envelope (runs[].envelope)",
        "patience": "how long a run may take is its deadline (runs[].envelope.deadline)",
    }
    for field, rule in instead.items():
        if getattr(tenant, field) not in (None, []):
            yield (*at, field), f"a tenant with runs has none: {rule}"
    for field in ("loop", "throttle", "retries"):
        if getattr(tenant, field) is not None:
            yield (*at, field), "a tenant with runs has none: it is for tenants that call a shared service"
    if tenant.on_refusal != "error":
        yield (*at, "on_refusal"), "a tenant with runs has none: its runs re-plan by batch (runs[].replans)"
    if "traffic_class" in tenant.model_fields_set:
        yield (*at, "traffic_class"), "a tenant with runs has none: each group of runs has its own (runs[].class)"
    names = set()
    for i, group in enumerate(tenant.runs):
        if group.name in names:
            yield (*at, "runs", i, "name"), "two groups of runs have this name"
        names.add(group.name)
        yield from _of_group((*at, "runs", i), group, known, duration)


def _of_group(
    at: Path, group: RunGroup, known: tuple[str, ...] | None, duration: int | None
) -> Iterator[Contradiction]:
    trial = f"(duration: {show_duration(duration)})" if duration else ""
    if duration and (group.at or 0) >= duration:
        yield (*at, "at"), f"the runs would begin after the trial {trial}"
    if duration and (group.from_ns or 0) >= duration:
        yield (*at, "from"), f"the runs would begin after the trial {trial}"
    if group.to_ns is not None and (group.from_ns or 0) >= group.to_ns:
        yield (*at, "to"), "it must end after it begins"
    if duration and group.to_ns is not None and group.to_ns > duration:
        yield (*at, "to"), f"it ends after the trial {trial}"
    yield from _of_envelope((*at, "envelope"), group.envelope, known)
    for i, batch in enumerate(group.batches):
        yield from _of_batch((*at, "batches", i), batch, known)
    if group.replans is not None:
        yield from _of_batch((*at, "replans", "batch"), group.replans.batch, known)
    for here, child in cost_rules.children_of(at, group):
        yield from _of_envelope((*here, "envelope"), child.envelope, known)
        for j, batch in enumerate(child.batches):
            yield from _of_batch((*here, "batches", j), batch, known)


def _of_envelope(at: Path, envelope: Envelope, known: tuple[str, ...] | None) -> Iterator[Contradiction]:
    yield from _positive(at, envelope, "deadline")
    for name in envelope.budgets or {}:
        if known is not None and name not in known:
            yield (*at, "budgets", name), _unknown(name, known)


def _of_batch(at: Path, batch: Batch, known: tuple[str, ...] | None) -> Iterator[Contradiction]:
    for i, step in enumerate(batch.steps):
        if known is not None and step.dependency not in known:
            yield (*at, "steps", i, "dependency"), _unknown(step.dependency, known)
