"""The profile of a replay, as a person would have written it: recorded tenants, phases around the runaway, a service.

The phases follow from the runaway: calm before it, burst while it lasts, recovery after it. Without one there is
nothing to compare, so there are no phases and no fairness check. How many workers are enough is worked out:

    workers = ceil(factor * sum of service times of the calls due in the window / length of the window)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from harness.profile.units import NS_PER_S, show_duration, show_rate
from harness.recorded.errors import RecordedError
from harness.recorded.prepare import Prepared
from harness.recorded.schedule import file_name
from harness.workload.callers import Arrival

Opened = Callable[[str], Iterator[Arrival]]

DEFAULT_QUEUE = {"shared_fifo": 200, "tenant_cap": 200, "fair_queues": 50}


@dataclass(frozen=True, slots=True)
class ReplanOption:
    """`2x3@500ms`: each failed call becomes 2, 500 ms later, for at most 3 rounds."""

    calls: int
    rounds: int
    after_ns: int

    @property
    def most_per_call(self) -> int:
        """Calls that one call becomes if every one of them fails: 1 + n + n^2 + ... + n^R."""
        return sum(self.calls**k for k in range(self.rounds + 1))


@dataclass(frozen=True, slots=True)
class ServiceOption:
    """fixed: service_time_ns. With cost_per_unit_ns: service_time_ns + cost_per_unit_ns * cost, at most cost_cap_ns."""

    policy: str
    service_time_ns: int
    cost_per_unit_ns: int | None = None
    cost_cap_ns: int | None = None
    queue: int | None = None
    cap: int | None = None

    def service_ns(self, cost: float) -> int:
        if self.cost_per_unit_ns is None:
            return self.service_time_ns
        most = 2**62 if self.cost_cap_ns is None else self.cost_cap_ns
        return max(1, min(most, self.service_time_ns + int(self.cost_per_unit_ns * max(0.0, cost))))


@dataclass(frozen=True, slots=True)
class Sizing:
    """busy: workers that are busy on average in the window. peak_busy: in its busiest second."""

    workers: int
    window: str
    factor: Fraction
    calls: int
    busy: float
    peak_busy: float

    def __str__(self) -> str:
        return (
            f"{self.workers} workers: the {self.calls:,} calls of {self.window} keep {self.busy:.1f} busy on average "
            f"({self.peak_busy:.1f} in the busiest second), times {float(self.factor):g}"
        )


def window_of(prepared: Prepared, name: str) -> tuple[int, int]:
    """[from, to) of `calm`, `burst`, `recovery` or `all`. Raises RecordedError."""
    runaway = prepared.runaway
    windows = {"all": (0, prepared.duration_ns)}
    if runaway is None:
        windows["calm"] = windows["all"]
    else:
        from_ns, to_ns = runaway.from_ns or 0, runaway.to_ns or prepared.duration_ns
        windows |= {"calm": (0, from_ns), "burst": (from_ns, to_ns), "recovery": (to_ns, prepared.duration_ns)}
    window = windows.get(name)
    if window is None or window[0] >= window[1]:
        there = ", ".join(name for name, (begin, end) in windows.items() if begin < end)
        raise RecordedError("--size-for", f"this trial has no window '{name}'", f"it has {there}")
    return window


def size(prepared: Prepared, opened: Opened, window: str, factor: Fraction, service: ServiceOption) -> Sizing:
    """How many workers the planned calls of a window need. opened: schedule.source of the folder."""
    from_ns, to_ns = window_of(prepared, window)
    seconds: dict[int, int] = {}
    calls = total_ns = 0
    for place in range(len(prepared.tenants)):
        for arrival in opened(file_name(place)):
            if arrival.due_ns >= to_ns:
                break
            if arrival.due_ns >= from_ns:
                own_ns = service.service_ns(arrival.cost)
                calls += 1
                total_ns += own_ns
                second = arrival.due_ns // NS_PER_S
                seconds[second] = seconds.get(second, 0) + own_ns
    if not calls:
        raise RecordedError("--size-for", f"no call is due in {window}", "give --workers, or another window")
    busy = Fraction(total_ns, to_ns - from_ns)
    workers = max(1, math.ceil(busy * factor))
    return Sizing(workers, window, factor, calls, float(busy), max(seconds.values()) / NS_PER_S)


def service_document(service: ServiceOption, workers: int) -> dict[str, Any]:
    """The `service:` of a profile."""
    time: str | dict[str, Any] = show_duration(service.service_time_ns)
    if service.cost_per_unit_ns is not None:
        time = {"distribution": "recorded_cost", "base": time, "per_unit": show_duration(service.cost_per_unit_ns)}
        if service.cost_cap_ns is not None:
            time["cap"] = show_duration(service.cost_cap_ns)
    queue = DEFAULT_QUEUE[service.policy] if service.queue is None else service.queue
    admission: dict[str, Any] = {"policy": service.policy}
    admission["queue_per_tenant" if service.policy == "fair_queues" else "queue"] = queue
    if service.policy == "tenant_cap":
        admission["cap"] = max(1, workers // 2) if service.cap is None else service.cap
    return {"workers": workers, "service_time": time, "admission": admission}


def replay_document(
    prepared: Prepared,
    name: str,
    service: dict[str, Any] | None,
    patience_ns: int | None = None,
    patience_until: str = "start",
    replans: ReplanOption | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """A profile document whose tenants are the schedule files of `prepared`, in their order."""
    document: dict[str, Any] = {
        "name": profile_name(name),
        "about": _about(prepared),
        "duration": show_duration(prepared.duration_ns),
        "seed": seed,
    }
    runaway = prepared.runaway
    if runaway is not None:
        document["phases"] = {
            phase: [show_duration(begin), show_duration(end)]
            for phase, (begin, end) in _phases(prepared)
            if begin < end
        }
    if patience_ns is not None:
        document |= {"patience": show_duration(patience_ns), "patience_until": patience_until}
    if service is not None:
        document["service"] = service
    tenants: dict[str, Any] = {}
    for place, tenant in enumerate(prepared.tenants):
        tenants[tenant.name] = {"recorded": {"file": file_name(place)}}
        if runaway is not None and tenant.name == runaway.tenant and replans is not None:
            after = show_duration(replans.after_ns)
            tenants[tenant.name]["replans"] = {"calls": replans.calls, "after": after, "rounds": replans.rounds}
    document["tenants"] = tenants
    if runaway is not None:
        document["ordinary"] = [tenant.name for tenant in prepared.tenants if tenant.name != runaway.tenant]
        document["checks"] = ["fairness.ordinary_unmoved", "agent.replan_share"]
    return document


def _phases(prepared: Prepared) -> list[tuple[str, tuple[int, int]]]:
    assert prepared.runaway is not None
    from_ns, to_ns = prepared.runaway.from_ns or 0, prepared.runaway.to_ns or prepared.duration_ns
    return [("calm", (0, from_ns)), ("burst", (from_ns, to_ns)), ("recovery", (to_ns, prepared.duration_ns))]


def _about(prepared: Prepared) -> str:
    account, runaway = prepared.account, prepared.runaway
    text = f"{account.kept:,} recorded calls of {len(prepared.tenants)} tenants"
    if runaway is None:
        return text + "."
    return (
        f"{text}, and {runaway.tenant} running away at {show_rate(runaway.rate_per_s)} "
        f"from {show_duration(runaway.from_ns or 0)} to {show_duration(runaway.to_ns or 0)}."
    )


def profile_name(text: str) -> str:
    """A name that a profile may have: letters, digits, dot, dash and underscore."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:90]
    return f"replay-{name}" if name else "replay"


def worst_rate_per_s(prepared: Prepared, replans: ReplanOption | None) -> int:
    """Calls a second in the busiest second if every call of the runaway is refused, all the way down."""
    further = replans.most_per_call - 1 if replans is not None else 0
    return prepared.peak_per_s + prepared.runaway_peak_per_s * further
