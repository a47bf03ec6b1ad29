"""What the stub tells Prometheus of the controller and its dependencies. Names are in docs/metrics.md.

Counted from the very decisions, arrivals and effects that go into evidence, so that the two cannot disagree. Labels are
traffic classes, dependencies and outcomes, whose number the configuration bounds; of what runs cost also tenants, whose
number exposition.py bounds. Balances and reservations are read where they are kept, when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stub_service.capacity.costs import SETTLED, CostControl
from stub_service.capacity.records import Arrival, CostDecision, Decision
from stub_service.exposition import (
    BUCKETS_NS,
    COUNTER,
    GAUGE,
    HISTOGRAM,
    OTHERS,
    SECONDS,
    Busiest,
    Counters,
    Family,
    Metric,
    family,
    histogram,
    per_label,
)  # fmt: skip

INTERIM = frozenset(("queued", "admitted"))
CIRCUIT_STATES = {"closed": 0, "half_open": 1, "opened": 2, "open": 2}
MOST_TENANTS = 1000

_P = "overload_stub_"
_TO = ("dependency", "operation")
RUNS = Metric(f"{_P}runs_total", COUNTER, "Runs, by how they opened or ended.", ("class", "outcome"))
STEPS = Metric(f"{_P}steps_total", COUNTER, "Steps that have ended.", ("class", "dependency", "outcome"))
STEP_WAIT = Metric(
    f"{_P}step_queue_wait_seconds", HISTOGRAM, "Queue wait of attempts that started.", ("class", "dependency"), SECONDS
)
RETRIES = Metric(
    f"{_P}retries_total", COUNTER, "Retries: scheduled (a token spent) or denied.", ("dependency", "outcome")
)
CIRCUIT = Metric(f"{_P}circuit_state", GAUGE, "0 closed, 1 half-open, 2 open.", ("dependency",))
IN_USE = Metric(f"{_P}controller_in_use", GAUGE, "Slots of the controller's bulkhead that are taken.", _TO)
WAITING = Metric(f"{_P}controller_waiting", GAUGE, "Steps that wait for a slot of the controller's bulkhead.", _TO)
LIMIT = Metric(f"{_P}controller_limit", GAUGE, "Slots of the controller's bulkhead.", _TO)
ARRIVALS = Metric(
    f"{_P}arrivals_total", COUNTER, "Calls that a dependency has answered, or lost (status 0).", (*_TO, "status")
)
EFFECTS = Metric(f"{_P}effects_total", COUNTER, "Writes committed.", ("dependency",))
BUSY = Metric(f"{_P}dependency_in_use", GAUGE, "Workers of the dependency that are busy.", ("dependency",))
BEHIND = Metric(
    f"{_P}dependency_waiting", GAUGE, "Calls that wait for a worker of the dependency.", ("dependency",)
)  # fmt: skip
BALANCE = Metric(
    f"{_P}cost_balance", GAUGE, "Cost that the tenant's bucket holds, reservations not counted; below zero: a debt.",
    ("tenant",),
)  # fmt: skip
RESERVED = Metric(f"{_P}cost_reserved", GAUGE, "Cost of that bucket that open runs have reserved.", ("tenant",))
FORECAST = Metric(f"{_P}cost_forecast_total", COUNTER, "Forecast cost of runs that are settled.", ("tenant",))
ACTUAL = Metric(f"{_P}cost_actual_total", COUNTER, "Cost that the same runs have used.", ("tenant",))
COST_DECISIONS = Metric(
    f"{_P}cost_decisions_total", COUNTER, "Runs queued, admitted, refused and settled. Reason: the pool, or the end.",
    ("request_class", "outcome", "reason"),
)  # fmt: skip
POOL = Metric(f"{_P}cost_in_use", GAUGE, "Held by open runs: sessions, memory, tools.", ("pool",))
COST_WAITING = Metric(f"{_P}cost_waiting", GAUGE, "Runs that wait for a session.")
COST = (BALANCE, RESERVED, FORECAST, ACTUAL, COST_DECISIONS, POOL, COST_WAITING)
METRICS = (
    RUNS, STEPS, STEP_WAIT, RETRIES, CIRCUIT, IN_USE, WAITING, LIMIT, ARRIVALS, EFFECTS, BUSY, BEHIND, *COST
)  # fmt: skip


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
        self._costs: Counter[tuple[str, ...]] = Counter()
        self._settled: dict[str, Counters] = {}
        self._busiest = Busiest()

    def decided(self, decision: Decision | CostDecision) -> None:
        if isinstance(decision, CostDecision):
            self._cost_decided(decision)
            return
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

    def _cost_decided(self, decision: CostDecision) -> None:
        self._costs[(decision.request_class or "", decision.outcome, decision.reason or "")] += 1
        if decision.outcome != SETTLED:
            return
        tenant = decision.tenant or ""
        if tenant not in self._settled and len(self._settled) >= MOST_TENANTS:
            tenant = OTHERS
        runs, forecast, actual = self._settled.get(tenant, (0, 0, 0))
        self._settled[tenant] = runs + 1, forecast + (decision.forecast or 0), actual + (decision.actual or 0)

    def arrived(self, arrival: Arrival) -> None:
        self._arrivals[(arrival.dependency, arrival.operation, str(arrival.status))] += 1

    def committed(self, dependency: str) -> None:
        self._effects[(dependency,)] += 1

    def families(
        self,
        in_flight: Mapping[str, tuple[int, int]],
        bulkheads: Iterable[BulkheadFigures] = (),
        costs: CostControl | None = None,
    ) -> list[Family]:
        """in_flight: dependency -> (workers busy, calls waiting for one)."""
        slots = [((one.dependency, one.operation), one) for one in bulkheads]
        return [
            _counted(RUNS, self._runs),
            _counted(STEPS, self._steps),
            histogram(STEP_WAIT, ((labels, counts, ns) for labels, (counts, ns) in sorted(self._waits.items()))),
            _counted(RETRIES, self._retries),
            family(CIRCUIT, (((name,), state) for name, state in self._circuits.items())),
            family(IN_USE, ((labels, one.in_use) for labels, one in slots)),
            family(WAITING, ((labels, one.waiting) for labels, one in slots)),
            family(LIMIT, ((labels, one.limit) for labels, one in slots)),
            _counted(ARRIVALS, self._arrivals),
            _counted(EFFECTS, self._effects),
            family(BUSY, (((name,), busy) for name, (busy, _) in in_flight.items())),
            family(BEHIND, (((name,), waiting) for name, (_, waiting) in in_flight.items())),
            *(self._cost(costs) if costs is not None else ()),
        ]

    def _cost(self, costs: CostControl) -> list[Family]:
        """What runs cost. A tenant with a bucket is told of before any run of it is settled."""
        now_ns = costs.now_ns()
        buckets = {name: bucket for name, bucket in costs.buckets.items() if bucket is not None}
        settled = {**dict.fromkeys(buckets, (0, 0, 0)), **self._settled}
        every = tuple(map(sum, zip(*settled.values(), strict=True))) if settled else (0, 0, 0)
        shown = self._busiest.look(settled, every)
        balances = per_label(shown, {name: bucket.balance(now_ns) for name, bucket in buckets.items()})
        reserved = per_label(shown, {name: float(bucket.reserved) for name, bucket in buckets.items()})
        pools = {"sessions": costs.sessions.taken, "memory": costs.memory.in_use, "tools": costs.tools.in_use}
        return [
            family(BALANCE, (((name,), value) for name, value in balances)),
            family(RESERVED, (((name,), value) for name, value in reserved)),
            family(FORECAST, (((name,), counters[1]) for name, counters in shown.items())),
            family(ACTUAL, (((name,), counters[2]) for name, counters in shown.items())),
            _counted(COST_DECISIONS, self._costs),
            family(POOL, (((name,), in_use) for name, in_use in pools.items())),
            family(COST_WAITING, [((), costs.sessions.queued)]),
        ]

    def _waited(self, labels: tuple[str, ...], wait_ns: int) -> None:
        counts, total_ns = self._waits.get(labels, ([0] * (len(BUCKETS_NS) + 1), 0))
        counts[bisect_left(BUCKETS_NS, wait_ns)] += 1
        self._waits[labels] = counts, total_ns + wait_ns


def _counted(metric: Metric, counts: Counter[tuple[str, ...]]) -> Family:
    return family(metric, sorted(counts.items()))
