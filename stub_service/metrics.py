"""What the stub tells Prometheus (text exposition format 0.0.4), per tenant and in all. Names are in docs/stub.md.

Tenant names come from callers, so labels are escaped and their number is bounded: beyond the first `MOST_TENANTS` seen
since the epoch, tenants share the label value `(others)`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

MOST_TENANTS = 1000
OTHERS = "(others)"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000)
BUCKETS_NS = tuple(ms * 1_000_000 for ms in _BUCKETS_MS)


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


class Metrics:
    """All tenants."""

    def __init__(self) -> None:
        self._tenants: dict[str, TenantFigures] = {}
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
        self._tenants = {name: figures for name, figures in self._tenants.items() if figures.waiting or figures.running}
        for figures in self._tenants.values():
            figures.restart()

    def render(self, workers: int, lag: dict[str, int], lag_sum_ns: int) -> str:
        lines: list[str] = []
        lines += self._family("offered_total", "counter", "Calls that reached admission.", lambda f: f.offered)
        lines += self._family("served_total", "counter", "Calls served.", lambda f: f.served)
        lines += head("refused_total", "counter", "Calls refused at admission, by reason.")
        lines += [
            f"overload_stub_refused_total{{tenant={quoted(name)},reason={quoted(reason)}}} {count}"
            for name, figures in self._tenants.items()
            for reason, count in figures.refused.items()
        ]
        lines += self._family("expired_total", "counter", "Calls whose queue deadline passed.", lambda f: f.expired)
        lines += self._family("cancelled_total", "counter", "Calls hung up while waiting.", lambda f: f.cancelled)
        lines += self._family("failed_total", "counter", "Calls ended by the stub's own stop.", lambda f: f.failed)
        lines += self._family("waiting", "gauge", "Calls in the queue now.", lambda f: f.waiting)
        lines += self._family("running", "gauge", "Calls that occupy a worker now.", lambda f: f.running)
        lines += head("queue_wait_seconds", "histogram", "Queue wait of calls that started.")
        for name, figures in self._tenants.items():
            lines += histogram("queue_wait_seconds", f"tenant={quoted(name)}", figures.wait_counts, figures.wait_ns)
        lines += _single("workers", "gauge", "Workers now.", workers)
        lines += _single("unauthenticated_total", "counter", "Requests without a known token.", self.unauthenticated)
        lines += _single("bad_requests_total", "counter", "Requests with malformed headers or body.", self.bad_requests)
        lines += head("loop_lag_seconds", "summary", "How late the stub's own loop ran.")
        lines += [
            f'overload_stub_loop_lag_seconds{{quantile="{quantile}"}} {_seconds(lag[key])}'
            for quantile, key in (("0.5", "p50_ns"), ("0.99", "p99_ns"), ("1", "max_ns"))
        ]
        lines += [f"overload_stub_loop_lag_seconds_sum {_seconds(lag_sum_ns)}"]
        lines += [f"overload_stub_loop_lag_seconds_count {lag['samples']}", ""]
        return "\n".join(lines)

    def _family(self, name: str, kind: str, about: str, value: Callable[[TenantFigures], int]) -> Iterator[str]:
        yield from head(name, kind, about)
        for tenant, figures in self._tenants.items():
            yield f"overload_stub_{name}{{tenant={quoted(tenant)}}} {value(figures)}"


def head(name: str, kind: str, about: str) -> Iterable[str]:
    return f"# HELP overload_stub_{name} {about}", f"# TYPE overload_stub_{name} {kind}"


def _single(name: str, kind: str, about: str, value: int) -> Iterable[str]:
    return *head(name, kind, about), f"overload_stub_{name} {value}"


def histogram(name: str, labels: str, counts: list[int], sum_ns: int) -> Iterator[str]:
    """The samples of one histogram. labels: as they stand between the braces; counts: one more than the buckets."""
    name = f"overload_stub_{name}"
    seen = 0
    for edge_ns, count in zip((*BUCKETS_NS, None), counts, strict=True):
        seen += count
        edge = "+Inf" if edge_ns is None else _seconds(edge_ns)
        yield f'{name}_bucket{{{labels},le="{edge}"}} {seen}'
    yield f"{name}_sum{{{labels}}} {_seconds(sum_ns)}"
    yield f"{name}_count{{{labels}}} {seen}"


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.9f}".rstrip("0").rstrip(".")


def quoted(label: str) -> str:
    text = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
