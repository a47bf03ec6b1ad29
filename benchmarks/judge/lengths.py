"""A profile that is so many times as long: more of the same, neither faster nor larger.

Two ways, by what a profile is:

    stretched   every instant times the factor: duration, phases, steps of rates and workers, when runs begin and faults
                last. Rates, service times, patience, bounds are left alone, so there are so many times the calls.
    repeated    the whole situation again, `factor` times one after another with a pause between: profiles of runs that
                begin at instants, and of faults that are met a number of times, have no longer form.
"""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from typing import Any

from harness.profile.units import parse_duration, show_duration

PAUSE_NS = 2_000_000_000
"""Between two repetitions: what the first has left behind ends in it."""

NO_LONGER: dict[str, str] = {
    "cost_unwound": "two long runs hold its sessions for exactly as long as it lasts",
}
"""Profiles without a longer form, and why."""


def longer(document: dict[str, Any], factor: float) -> dict[str, Any]:
    """document: a resolved profile, as YAML would say it. Raises ValueError for one that has no form of this length."""
    if factor == 1:
        return document
    if document["name"] in NO_LONGER:
        raise ValueError(f"{document['name']}: {NO_LONGER[document['name']]}")
    if not is_repeated(document):
        return _stretched(document, Fraction(str(factor)))
    if factor < 1 or int(factor) != factor:
        raise ValueError(f"{document['name']} is repeated, and there is no {factor:g} of a repetition")
    return _repeated(document, int(factor))


def is_repeated(document: dict[str, Any]) -> bool:
    """Whether more of the same is the situation once more: no phases, and things that happen at instants."""
    runs = [group for tenant in document["tenants"].values() for group in tenant.get("runs") or ()]
    at_instants = any("at" in group for group in runs) or any(
        fault.get("times") for fault in document.get("faults", ())
    )
    return bool(runs) and not document.get("phases") and at_instants


# Stretched


def _stretched(document: dict[str, Any], factor: Fraction) -> dict[str, Any]:
    made = deepcopy(document)
    _times(made, ("duration",), factor)
    for phase in (made.get("phases") or {}).values():
        if isinstance(phase, dict):
            _times(phase, ("from", "to"), factor)
        else:
            phase[:] = [_scaled(instant, factor) for instant in phase]
    for step in _steps((made.get("service") or {}).get("workers")):
        _times(step, ("from", "to"), factor)
    for fault in made.get("faults") or ():
        _times(fault, ("from", "to"), factor)
    for tenant in made["tenants"].values():
        for step in _steps(tenant.get("rate")):
            _times(step, ("from", "to"), factor)
        for group in tenant.get("runs") or ():
            _times(group, ("from", "to", "at"), factor)
    return made


def _steps(value: Any) -> list[dict[str, Any]]:
    """Of `base`, `[base, step, ...]` or `{base, steps}`."""
    if isinstance(value, dict):
        return list(value.get("steps") or ())
    return [step for step in value if isinstance(step, dict)] if isinstance(value, list) else []


def _scaled(instant: str, factor: Fraction) -> str:
    return show_duration(int(parse_duration(instant) * factor))


def _times(part: dict[str, Any], names: tuple[str, ...], factor: Fraction) -> None:
    part.update({name: _scaled(part[name], factor) for name in names if part.get(name) is not None})


# Repeated


def _repeated(document: dict[str, Any], times: int) -> dict[str, Any]:
    made = deepcopy(document)
    length = parse_duration(document["duration"])
    period = length + PAUSE_NS
    made["duration"] = show_duration(period * (times - 1) + length)
    made["faults"] = [_later(fault, n * period) for n in range(times) for fault in _faults(document, length, n)]
    for tenant in made["tenants"].values():
        groups = tenant.get("runs") or ()
        tenant["runs"] = [_again(group, n, n * period, length) for n in range(times) for group in groups]
    return made


def _faults(document: dict[str, Any], length: int, number: int) -> list[dict[str, Any]]:
    """Those of one repetition. What lasts from the first to the last moment goes on in the pauses, once."""
    faults = document.get("faults") or []
    for_ever = [f for f in faults if not (f.get("times") or f.get("from") or f.get("to"))]
    return [fault for fault in faults if number == 0 or fault not in for_ever]


def _later(part: dict[str, Any], by_ns: int) -> dict[str, Any]:
    begins = {"from": show_duration(parse_duration(part.get("from") or "0s") + by_ns)} if by_ns else {}
    ends = {"to": show_duration(parse_duration(part["to"]) + by_ns)} if part.get("to") is not None else {}
    return {**deepcopy(part), **begins, **ends}


def _again(group: dict[str, Any], number: int, by_ns: int, length: int) -> dict[str, Any]:
    name = {"name": f"{group['name']}_again_{number}"} if number else {}
    if "at" in group:
        return {**deepcopy(group), **name, "at": show_duration(parse_duration(group["at"]) + by_ns)}
    return {**_later({**group, "to": group.get("to") or show_duration(length)}, by_ns), **name}
