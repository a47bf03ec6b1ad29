"""What a running trial tells Prometheus: the driver's progress events as metrics. Names are in docs/metrics.md.

The names per tenant are those of the stub and of a watched log, with the label `source="callers"`: what callers saw.
Figures are half a second old at most, and good for looking at and for alerts. The ledger is the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.profile.demand import busiest, mean_service_ns
from harness.profile.model import Profile
from stub_service.exposition import (
    BY_TENANT,
    CALLERS,
    CALLS,
    COUNTER,
    FAILED,
    GAUGE,
    HISTOGRAM,
    INFO,
    LATE_BUCKETS_NS,
    MOST_LABELLED,
    OFFERED,
    OTHERS,
    QUEUE_WAIT,
    RECORDED,
    REFUSED,
    REPLAN_SHARE,
    REPLANS,
    SECONDS,
    SERVED,
    Family,
    Metric,
    family,
    histogram,
    one,
)

ABANDONED = Metric("overload_abandoned_total", COUNTER, "Calls whose caller lost its patience.", BY_TENANT)
HELD_BACK = Metric("overload_held_back_total", COUNTER, "Calls that the caller's own budget kept; not sent.", BY_TENANT)
DROPPED = Metric("overload_dropped_total", COUNTER, "Calls that the generator could not send.", BY_TENANT)
OTHERWISE = Metric(
    "overload_ended_otherwise_total", COUNTER, "Calls coalesced, cancelled, handed to a person or left open.", BY_TENANT
)
IN_FLIGHT = Metric("overload_in_flight", GAUGE, "Calls begun and not ended.", BY_TENANT)
INFO_OF_TRIAL = Metric("overload_trial_info", INFO, "The trial that runs.", ("profile", "variant"))
PHASE = Metric("overload_trial_phase", GAUGE, "1: the phase that the trial is in.", ("phase",))
ELAPSED = Metric("overload_trial_elapsed_seconds", GAUGE, "How long the trial has run.", (), SECONDS)
ORDINARY = Metric("overload_trial_ordinary", GAUGE, "1: a tenant that must not be hurt.", ("tenant",))
LATENESS = Metric(
    "overload_trial_lateness_seconds", HISTOGRAM, "How late calls left, against the plan.", (), SECONDS
)  # fmt: skip
LATENESS_LIMIT = Metric(
    "overload_trial_lateness_limit_seconds", GAUGE, "A p99 above it makes the trial INVALID, where it is known.", (),
    SECONDS,
)  # fmt: skip
METRICS = (
    ABANDONED, HELD_BACK, DROPPED, OTHERWISE, IN_FLIGHT, INFO_OF_TRIAL, PHASE, ELAPSED, ORDINARY, LATENESS,
    LATENESS_LIMIT,
)  # fmt: skip

LATE_SHARE = 0.1
"""Of the mean service time: what trial.on_time allows unless told otherwise."""
_COUNTED = {
    "due": CALLS, "served": SERVED, "refused": REFUSED, "abandoned": ABANDONED, "held_back": HELD_BACK,
    "failed": FAILED, "dropped": DROPPED, "other": OTHERWISE, "in_flight": IN_FLIGHT,
}  # fmt: skip


class TrialMetrics:
    """`add` each event; `families` at any time, from any thread."""

    def __init__(self, profile: Profile, variant: str | None = None) -> None:
        self._profile = profile
        self._variant = variant or ""
        self._limit_ns = LATE_SHARE * (mean_service_ns(profile.service) or 0) if profile.service is not None else 0.0
        self._ordinary = _bounded(profile)
        self._event: Mapping[str, Any] = {"now_ns": 0, "tenants": {}}

    def add(self, event: Mapping[str, Any]) -> bool:
        """False for an event that is no progress: it is passed over."""
        if event.get("event") != "progress" or not isinstance(event.get("tenants"), dict):
            return False
        self._event = event
        return True

    def families(self) -> list[Family]:
        event = self._event
        tenants: dict[str, Mapping[str, Any]] = {name: of for name, of in event["tenants"].items() if name != OTHERS}
        if OTHERS in event["tenants"] or "rest" in event:
            tenants[OTHERS] = event.get("rest") or event["tenants"][OTHERS]
        now_ns = int(event["now_ns"])
        phase = self._profile.phases.at(now_ns)
        return [
            family(INFO_OF_TRIAL, [((self._profile.name, self._variant), 1)]),
            one(ELAPSED, now_ns / 1e9),
            family(PHASE, (((name,), int(name == phase)) for name, _ in self._profile.phases.items())),
            family(ORDINARY, (((name,), 1) for name in self._ordinary)),
            *_counted(tenants),
            histogram(QUEUE_WAIT, _waits(tenants)),
            *self._lateness(event),
        ]

    def _lateness(self, event: Mapping[str, Any]) -> list[Family]:
        counts = event.get("late_counts")
        series = [((), counts, event.get("late_ns", 0))] if counts else []
        limit = [((), self._limit_ns / 1e9)] if self._limit_ns else []
        return [histogram(LATENESS, series, LATE_BUCKETS_NS), family(LATENESS_LIMIT, limit)]


def _counted(tenants: Mapping[str, Mapping[str, Any]]) -> Iterator[Family]:
    offered = ((name, of.get("due", 0) - of.get("held_back", 0)) for name, of in tenants.items())
    yield family(OFFERED, (((CALLERS, name), count) for name, count in offered))
    for key, metric in _COUNTED.items():
        yield family(metric, (((CALLERS, name), of.get(key, 0)) for name, of in tenants.items()))
    yield family(REPLANS, (((CALLERS, name, RECORDED), of.get("replans", 0)) for name, of in tenants.items()))
    known = ((name, of) for name, of in tenants.items() if of.get("due"))
    yield family(
        REPLAN_SHARE, (((CALLERS, name, RECORDED), float(of.get("replans", 0) / of["due"])) for name, of in known)
    )


def _waits(tenants: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], list[int], int]]:
    for name, of in tenants.items():
        if of.get("wait_counts"):
            yield (CALLERS, name), of["wait_counts"], of.get("wait_ns", 0)


def _bounded(profile: Profile) -> list[str]:
    """The ordinary tenants that have series of their own."""
    shown = set(busiest(profile, MOST_LABELLED))
    return [name for name in profile.ordinary if name in shown and name != OTHERS]
