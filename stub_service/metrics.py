"""What the stub tells Prometheus, per tenant and in all. Names are in docs/metrics.md.

Figures of the first `MOST_TENANTS` tenants seen since the epoch are kept one by one, those of all further ones
together; how many of them have series of their own is bounded again (exposition.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from stub_service.exposition import (
    BUCKETS_NS,
    BY_TENANT,
    COUNTER,
    FAILED,
    GAUGE,
    OFFERED,
    OTHERS,
    QUEUE_WAIT,
    REFUSED,
    SECONDS,
    SERVED,
    SERVICE,
    SUMMARY,
    Busiest,
    Counters,
    Family,
    Metric,
    Sample,
    family,
    histogram,
    one,
    per_label,
)  # fmt: skip

MOST_TENANTS = 1000
EXPIRED = Metric("overload_expired_total", COUNTER, "Calls whose queue deadline passed while they waited.", BY_TENANT)
CANCELLED = Metric("overload_cancelled_total", COUNTER, "Calls hung up while they waited.", BY_TENANT)
WAITING = Metric("overload_waiting", GAUGE, "Calls in the queue now.", BY_TENANT)
RUNNING = Metric("overload_running", GAUGE, "Calls that occupy a worker now.", BY_TENANT)
REFUSALS = Metric("overload_stub_refusals_total", COUNTER, "Calls refused at admission, of all tenants.", ("reason",))
WORKERS = Metric("overload_stub_workers", GAUGE, "Workers of the shared service now.")
UNAUTHENTICATED = Metric("overload_stub_unauthenticated_total", COUNTER, "Requests without a known token.")
BAD_REQUESTS = Metric("overload_stub_bad_requests_total", COUNTER, "Requests with malformed headers or body.")
LOOP_LAG = Metric(
    "overload_stub_loop_lag_seconds", SUMMARY, "How late the stub's own loop ran, since the epoch.", (), SECONDS
)
METRICS = (EXPIRED, CANCELLED, WAITING, RUNNING, REFUSALS, WORKERS, UNAUTHENTICATED, BAD_REQUESTS, LOOP_LAG)
COUNTED = (OFFERED, SERVED, REFUSED, EXPIRED, CANCELLED, FAILED)
"""In the order of `TenantFigures.counters`."""


class TenantFigures:
    """Counters since the epoch, and what waits and runs now. Plain attributes: they are on the path of every call."""

    __slots__ = (
        "cancelled", "expired", "failed", "offered", "refused", "running", "served", "wait_counts", "wait_ns",
        "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.waiting = 0
        self.running = 0
        self.restart()

    def restart(self) -> None:
        self.offered = self.served = self.expired = self.cancelled = self.failed = 0
        self.refused: dict[str, int] = {}
        self.wait_ns = 0
        self.wait_counts = [0] * (len(BUCKETS_NS) + 1)

    def refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def started_after(self, wait_ns: int) -> None:
        self.wait_counts[bisect_left(BUCKETS_NS, wait_ns)] += 1
        self.wait_ns += wait_ns

    def counters(self) -> Counters:
        counted = (self.offered, self.served, sum(self.refused.values()), self.expired, self.cancelled, self.failed)
        return (*counted, self.wait_ns, *self.wait_counts)


class Metrics:
    """All tenants."""

    def __init__(self) -> None:
        self._tenants: dict[str, TenantFigures] = {}
        self._busiest = Busiest()
        self.unauthenticated = 0
        self.bad_requests = 0

    def of(self, tenant: str) -> TenantFigures:
        figures = self._tenants.get(tenant)
        if figures is None:
            if len(self._tenants) >= MOST_TENANTS:
                tenant = OTHERS
            figures = self._tenants.setdefault(tenant, TenantFigures())
        return figures

    def tenants_waiting(self) -> int:
        return sum(1 for figures in self._tenants.values() if figures.waiting)

    def restart(self) -> None:
        """Counters begin at zero; what waits and runs is still there."""
        self.unauthenticated = self.bad_requests = 0
        self._busiest = Busiest()
        self._tenants = {name: figures for name, figures in self._tenants.items() if figures.waiting or figures.running}
        for figures in self._tenants.values():
            figures.restart()

    def families(self, workers: int, lag: dict[str, int], lag_sum_ns: int) -> list[Family]:
        return [
            *self._by_tenant(),
            family(REFUSALS, (((reason,), count) for reason, count in sorted(self._refusals().items()))),
            one(WORKERS, workers),
            one(UNAUTHENTICATED, self.unauthenticated),
            one(BAD_REQUESTS, self.bad_requests),
            _lag(lag, lag_sum_ns),
        ]

    def _by_tenant(self) -> list[Family]:
        now = {name: figures.counters() for name, figures in self._tenants.items()}
        width = len(COUNTED) + 1 + len(BUCKETS_NS) + 1
        every = tuple(map(sum, zip(*now.values(), strict=True))) if now else (0,) * width
        shown = self._busiest.look(now, every)
        families = [
            family(metric, (((SERVICE, name), counters[place]) for name, counters in shown.items()))
            for place, metric in enumerate(COUNTED)
        ]
        for metric, values in (
            (WAITING, {name: figures.waiting for name, figures in self._tenants.items()}),
            (RUNNING, {name: figures.running for name, figures in self._tenants.items()}),
        ):
            families.append(family(metric, (((SERVICE, name), value) for name, value in per_label(shown, values))))
        first = len(COUNTED)
        waits = (((SERVICE, name), c[first + 1 :], c[first]) for name, c in shown.items())
        return [*families, histogram(QUEUE_WAIT, waits)]

    def _refusals(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for figures in self._tenants.values():
            counts.update(figures.refused)
        return counts


def _lag(lag: dict[str, int], sum_ns: int) -> Family:
    quantiles = (("0.5", "p50_ns"), ("0.99", "p99_ns"), ("1.0", "max_ns"))
    samples = [Sample("", (("quantile", quantile),), lag[key] / 1e9) for quantile, key in quantiles]
    return Family(LOOP_LAG, [*samples, Sample("_count", (), lag["samples"]), Sample("_sum", (), sum_ns / 1e9)])
