"""Dependencies in virtual time, for tests: a small configuration, calls to them, and what was written down."""

from __future__ import annotations

from dataclasses import replace

from harness.simulate.virtual_loop import now_ns, run_virtual
from stub_service.capacity.config import (
    Bulkhead,
    CapacityConfig,
    Circuit,
    Dependency,
    EnvelopeDefaults,
    Fault,
    Recovery,
    Retry,
)
from stub_service.capacity.ports import DependencyCall
from stub_service.capacity.records import Arrival, Effect
from stub_service.dependency.model import Dependencies, in_process

MS = 1_000_000
S = 1000 * MS


def dependency(name="billing", workers=2, service_ms=10, limit=5, queue=10, timeout_ms=1000, **circuit):
    """A dependency whose circuit opens only if asked to."""
    bulkhead = Bulkhead(limit, queue, timeout_ms * MS)
    closed = Circuit(
        window_ns=10 * S, min_calls=1000, failure_share=1.0, slow_ns=60 * S, slow_share=1.0, open_ns=S, probes=1,
        close_after=1, lease_ns=S,
    )  # fmt: skip
    return Dependency(name, workers, service_ms * MS, service_ms * MS, bulkhead, bulkhead, replace(closed, **circuit))


def config(*dependencies, faults=(), **changed):
    """A capacity layer with these dependencies (one `billing` unless given)."""
    return replace(
        CapacityConfig(
            ceiling=20,
            dependencies=dependencies or (dependency(),),
            reserves=(),
            shares=(),
            tenant_queue=50,
            envelope=EnvelopeDefaults(),
            retry=Retry(20 * MS, 200 * MS, 0.5),
            recovery=Recovery(100.0, 1000.0, S),
            faults=tuple(faults),
        ),
        **changed,
    )


def call(operation="read", step="s1", timeout_ms=1000, dependency="billing", attempt=1, **changed):
    return DependencyCall(
        dependency, operation, "r1", step, attempt, "controller", "controller", 0, "A", "autonomous", "tool",
        deadline_ns=10 * S, timeout_ns=timeout_ms * MS,
    )._replace(**changed)  # fmt: skip


class Bench:
    """Dependencies on the running virtual loop."""

    def __init__(self, made):
        self.records = []
        self.dependencies = Dependencies(made, now_ns, self.records.append, self.records.append)
        self.call = in_process(self.dependencies)

    @property
    def arrivals(self):
        return [record for record in self.records if isinstance(record, Arrival)]

    @property
    def effects(self):
        return [record for record in self.records if isinstance(record, Effect)]


def on_bench(flow, *dependencies, faults=()):
    """Runs `flow(bench)` in virtual time; returns (its result, the bench)."""

    async def main():
        bench = Bench(config(*dependencies, faults=faults))
        result = await flow(bench)
        await bench.dependencies.settle()
        return result, bench

    return run_virtual(main())


def fault(kind, **changed):
    return Fault(**({"dependency": "billing", "kind": kind} | changed))
