"""What the stub tells Prometheus of the controller and its dependencies. Names are in docs/stub.md.

Counted from the very decisions, arrivals and effects that go into evidence, so that the two cannot disagree. Labels are
traffic classes, dependencies and outcomes: their number is bounded by the configuration.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from stub_service.capacity.records import Arrival, Decision
from stub_service.metrics import BUCKETS_NS, head, histogram, quoted

INTERIM = frozenset(("queued", "admitted"))
CIRCUIT_STATES = {"closed": 0, "half_open": 1, "opened": 2, "open": 2}


class BulkheadFigures(NamedTuple):
    """One bulkhead of the controller, now."""

    dependency: str
    operation: str
    in_use: int
    waiting: int
    limit: int


class CapacityMetrics:
    """Counters since the epoch. dependencies: their names."""

    def __init__(self, dependencies: Iterable[str]) -> None:
        self._dependencies = tuple(dependencies)
        self.restart()

    def restart(self) -> None:
        self._runs: Counter[tuple[str, ...]] = Counter()
        self._steps: Counter[tuple[str, ...]] = Counter()
        self._retries: Counter[tuple[str, ...]] = Counter()
        self._arrivals: Counter[tuple[str, ...]] = Counter()
        self._effects: Counter[tuple[str, ...]] = Counter()
        self._circuits = dict.fromkeys(self._dependencies, 0)
        self._waits: dict[tuple[str, ...], tuple[list[int], int]] = {}

    def decided(self, decision: Decision) -> None:
        labels = (decision.traffic_class or "", decision.dependency or "", decision.outcome)
        if decision.kind == "step":
            if decision.outcome == "admitted":
                self._waited(labels[:2], decision.queue_wait_ns or 0)
            if decision.outcome not in INTERIM:
                self._steps[labels] += 1
        elif decision.kind == "retry":
            self._retries[labels[1:]] += 1
        elif decision.kind == "run":
            self._runs[(labels[0], labels[2])] += 1
        elif decision.kind == "circuit" and decision.dependency is not None:
            self._circuits[decision.dependency] = CIRCUIT_STATES.get(decision.outcome, 0)

    def arrived(self, arrival: Arrival) -> None:
        self._arrivals[(arrival.dependency, arrival.operation, str(arrival.status))] += 1

    def committed(self, dependency: str) -> None:
        self._effects[(dependency,)] += 1

    def render(self, in_flight: Mapping[str, tuple[int, int]], bulkheads: Iterable[BulkheadFigures] = ()) -> str:
        """in_flight: dependency -> (workers busy, calls waiting for one)."""
        return "\n".join([*self._controller(), *_bulkheads(list(bulkheads)), *self._behind(in_flight), ""])

    def _controller(self) -> Iterator[str]:
        yield from _counter("runs_total", "Runs, by how they opened or ended.", ("class", "outcome"), self._runs)
        yield from _counter(
            "steps_total", "Steps that have ended.", ("class", "dependency", "outcome"), self._steps
        )  # fmt: skip
        yield from head("step_queue_wait_seconds", "histogram", "Queue wait of steps that started.")
        for (traffic_class, dependency), (counts, total_ns) in sorted(self._waits.items()):
            labels = f"class={quoted(traffic_class)},dependency={quoted(dependency)}"
            yield from histogram("step_queue_wait_seconds", labels, counts, total_ns)
        yield from _counter(
            "retries_total", "Retries: scheduled (a token spent) or denied.", ("dependency", "outcome"), self._retries
        )
        yield from head("circuit_state", "gauge", "0 closed, 1 half-open, 2 open.")
        for dependency, state in self._circuits.items():
            yield f"overload_stub_circuit_state{{dependency={quoted(dependency)}}} {state}"

    def _behind(self, in_flight: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        names = ("dependency", "operation", "status")
        yield from _counter("arrivals_total", "Calls that a dependency has answered or lost.", names, self._arrivals)
        yield from _counter("effects_total", "Writes committed.", ("dependency",), self._effects)
        yield from head("dependency_in_use", "gauge", "Workers of the dependency that are busy.")
        for dependency, (in_use, _) in in_flight.items():
            yield f"overload_stub_dependency_in_use{{dependency={quoted(dependency)}}} {in_use}"
        yield from head("dependency_waiting", "gauge", "Calls that wait for a worker of the dependency.")
        for dependency, (_, waiting) in in_flight.items():
            yield f"overload_stub_dependency_waiting{{dependency={quoted(dependency)}}} {waiting}"

    def _waited(self, labels: tuple[str, ...], wait_ns: int) -> None:
        counts, total_ns = self._waits.get(labels, ([0] * (len(BUCKETS_NS) + 1), 0))
        counts[bisect_left(BUCKETS_NS, wait_ns)] += 1
        self._waits[labels] = counts, total_ns + wait_ns


def _bulkheads(figures: list[BulkheadFigures]) -> Iterator[str]:
    for name, about in (
        ("in_use", "Slots of the controller's bulkhead that are taken."),
        ("waiting", "Steps that wait for a slot of the controller's bulkhead."),
        ("limit", "Slots of the controller's bulkhead."),
    ):
        yield from head(f"controller_{name}", "gauge", about)
        for one in figures:
            labels = f"dependency={quoted(one.dependency)},operation={quoted(one.operation)}"
            yield f"overload_stub_controller_{name}{{{labels}}} {getattr(one, name)}"


def _counter(name: str, about: str, labels: tuple[str, ...], counts: Counter[tuple[str, ...]]) -> Iterator[str]:
    yield from head(name, "counter", about)
    for values, count in sorted(counts.items()):
        pairs = ",".join(f"{label}={quoted(value)}" for label, value in zip(labels, values, strict=True))
        yield f"overload_stub_{name}{{{pairs}}} {count}"
