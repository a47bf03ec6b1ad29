"""Rules that span fields of a profile: contradictions that no single field can see.

Pure functions of validated parts. The model asks with all of them; the loader asks once more with those that are sound
when others are not, so that a person sees every problem at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from harness.profile import run_rules
from harness.profile.run_rules import Contradiction
from harness.profile.units import show_duration

if TYPE_CHECKING:  # the model imports this module
    from harness.profile.model import Tenant, Window

__all__ = ["Contradiction", "Contradictions", "contradictions"]


class Contradictions(ValueError):
    """Several rules broken between fields; each with the dotted path at which to show it."""

    def __init__(self, problems: list[Contradiction]) -> None:
        super().__init__("; ".join(message for _, message in problems))
        self.problems = problems


def contradictions(parts: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Every rule that spans fields, as (path, message).

    parts: validated fields of a Profile by name. The loader also asks with those that are sound when others are not: a
    rule whose parts are missing is skipped. A tenant, phase or field of the service that is not sound is None there.
    """
    duration: int | None = parts.get("duration")
    if duration == 0:
        yield ("duration",), "a trial must last longer than zero"
    if parts.get("patience") == 0:
        yield ("patience",), "a patience of 0 abandons every call; leave it out for endless patience"
    yield from _of_phases(dict(parts.get("phases") or {}), duration)
    tenants: Mapping[str, Tenant | None] = parts.get("tenants") or {}
    yield from _of_ordinary(parts.get("ordinary") or [], tenants)
    for name, tenant in tenants.items():
        if tenant is not None and duration:
            yield from _of_tenant(name, tenant, duration)
    if parts.get("service") is not None:
        yield from _of_service(dict(parts["service"]), duration)
        yield from _of_weights(dict(parts["service"]), tenants)
    yield from run_rules.contradictions(parts)


def _of_phases(phases: Mapping[str, Window | None], duration: int | None) -> Iterator[Contradiction]:
    windows = sorted(((name, w) for name, w in phases.items() if w is not None), key=lambda item: item[1].from_ns)
    for name, window in windows:
        if duration and window.to_ns > duration:
            yield ("phases", name), f"the phase ends after the trial (duration: {show_duration(duration)})"
    for (first, before), (name, window) in pairwise(windows):
        if window.from_ns < before.to_ns:
            yield ("phases", name), f"phases may not overlap, and '{first}' ends at {show_duration(before.to_ns)}"


def _of_ordinary(ordinary: Sequence[Any], tenants: Mapping[str, Tenant | None]) -> Iterator[Contradiction]:
    seen = set()
    for i, tenant in enumerate(ordinary):
        if not isinstance(tenant, str):
            continue  # told of by the field's own rule
        if tenants and tenant not in tenants:
            yield ("ordinary", i), "there is no such tenant"
        if tenant in seen:
            yield ("ordinary", i), "the tenant is named twice"
        seen.add(tenant)


def _of_tenant(name: str, tenant: Tenant, duration: int) -> Iterator[Contradiction]:
    for i, step in enumerate(tenant.rate.steps if tenant.rate else []):
        if step.to_ns > duration:
            yield (
                ("tenants", name, "rate", i + 1),
                f"the step ends after the trial (duration: {show_duration(duration)})",
            )
    if tenant.phase >= duration:
        yield ("tenants", name, "phase"), "the first call would be due after the trial"
    yield from _of_agent(("tenants", name), tenant)


def _of_agent(at: tuple[str, str], tenant: Tenant) -> Iterator[Contradiction]:
    """What an agent runtime may be told of budgets, retries and tools."""
    scopes = [budget.scope for budget in tenant.budget]
    for i, scope in enumerate(scopes):
        if scope in scopes[:i]:
            yield (*at, "budget", i), f"the tenant has another budget of scope {scope}; give one of each scope"
    if tenant.replans is not None and len(set(tenant.replans.tools)) < len(tenant.replans.tools):
        yield (*at, "replans", "tools"), "a tool is named twice"
    if tenant.retries is not None and tenant.on_refusal == "result":
        rule = "a refusal that is a result is tried again once, when it says so: give retries, or this"
        yield (*at, "on_refusal"), rule
    too_short = "the window must be above zero"
    if tenant.throttle is not None and tenant.throttle.adaptive.window == 0:
        yield (*at, "throttle", "adaptive", "window"), too_short
    if tenant.retries is not None and tenant.retries.window == 0:
        yield (*at, "retries", "window"), too_short


def _of_weights(service: Mapping[str, Any], tenants: Mapping[str, Tenant | None]) -> Iterator[Contradiction]:
    for key in ("admission", "shadow"):
        for name in service[key].weights if service.get(key) is not None else ():
            if tenants and name not in tenants:
                yield ("service", key, "weights", name), "there is no such tenant"


def _of_service(service: Mapping[str, Any], duration: int | None) -> Iterator[Contradiction]:
    workers, admission = service.get("workers"), service.get("admission")
    if workers is None:
        return
    most = max([workers.base, *(step.workers for step in workers.steps)])
    if admission is not None and admission.cap is not None and admission.cap > most:
        yield ("service", "admission", "cap"), f"the cap is above the {most} workers, so it would never bind"
    for i, step in enumerate(workers.steps):
        if duration and step.from_ns >= duration:
            yield ("service", "workers", i + 1), "the step begins after the trial"
