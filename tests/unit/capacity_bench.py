"""A controller on a virtual loop, with dependencies that answer by script: for tests of its flows."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from harness.simulate.virtual_loop import run_virtual
from stub_service.capacity.config import (
    Bulkhead,
    CapacityConfig,
    Circuit,
    Dependency,
    EnvelopeDefaults,
    Recovery,
    Retry,
)
from stub_service.capacity.controller import Controller
from stub_service.capacity.ports import Batch, DependencyAnswer, RunWish, Step

MS = 1_000_000
S = 1_000 * MS
OK = DependencyAnswer(200, body={"value": "v"})
NO_ANSWER = DependencyAnswer(0)
COMMITTED = DependencyAnswer(200, body={"committed": True})
ABSENT = DependencyAnswer(200, body={"committed": False})


def circuit(**changes) -> Circuit:
    base = Circuit(
        window_ns=S, min_calls=4, failure_share=0.5, slow_ns=500 * MS, slow_share=0.5, open_ns=2 * S, probes=1,
        close_after=2, lease_ns=S,
    )  # fmt: skip
    return replace(base, **changes)


def dependency(name: str, reads: int = 4, writes: int = 2, queue: int = 10, **changes) -> Dependency:
    base = Dependency(
        name, 8, 50 * MS, 50 * MS, Bulkhead(reads, queue, S), Bulkhead(writes, queue, S), circuit(min_calls=100)
    )
    return replace(base, **changes)


def config(*dependencies: Dependency, **changes) -> CapacityConfig:
    base = CapacityConfig(
        ceiling=100,
        dependencies=dependencies or (dependency("customer"), dependency("billing")),
        reserves=(),
        shares=(),
        tenant_queue=20,
        envelope=EnvelopeDefaults(),
        retry=Retry(50 * MS, 400 * MS, 0.5),
        recovery=Recovery(1000.0, 1000.0, 0),
    )
    return replace(base, **changes)


class Bench:
    """answers: (step, operation) -> what it is answered, one after another, the last one for ever; else OK. A call
    takes `takes_ns`, one without an answer its timeout."""

    def __init__(self, capacity: CapacityConfig) -> None:
        self.loop = asyncio.get_running_loop()
        self.decisions = []
        self.calls = []
        self.batches = 0
        self.answers: dict[tuple[str, str], list[DependencyAnswer]] = {}
        self.takes_ns = 50 * MS
        self.in_flight: Counter = Counter()
        self.most_in_flight: Counter = Counter()
        self.controller = Controller(capacity, self.loop.now_ns, self.call, self.decisions.append)

    async def call(self, call):
        self.calls.append((self.now_ns, call))
        keys = (call.dependency, call.operation), call.traffic_class, call.tenant, call.run, "all"
        for key in keys:
            self.in_flight[key] += 1
            self.most_in_flight[key] = max(self.most_in_flight[key], self.in_flight[key])
        try:
            script = self.answers.get((call.step, call.operation)) or self.answers.get(("", call.operation)) or [OK]
            answer = script.pop(0) if len(script) > 1 else script[0]
            await asyncio.sleep((call.timeout_ns if answer.status == 0 else self.takes_ns) / 1e9)
            return answer
        finally:
            for key in keys:
                self.in_flight[key] -= 1

    @property
    def now_ns(self) -> int:
        return self.loop.now_ns()

    def open(self, tenant: str = "A", **wish) -> str:
        opened = self.controller.open_run(tenant, RunWish(**wish))
        assert opened.run is not None, opened
        return opened.run

    async def submit(self, run: str, *steps: Step, batch: str | None = None, round: int = 0):
        self.batches += 1
        return await self.controller.submit(run, Batch(batch or f"b{self.batches}", steps, round))

    def start(self, run: str, *steps: Step, batch: str | None = None):
        return self.loop.create_task(self.submit(run, *steps, batch=batch))

    async def one(self, run: str, step: Step):
        return (await self.submit(run, step)).steps[0]

    def seen(self, kind: str, **fields) -> list:
        return [
            d for d in self.decisions if d.kind == kind and all(getattr(d, name) == v for name, v in fields.items())
        ]

    def sent(self, step: str | None = None, operation: str | None = None) -> list[int]:
        """When calls left [ms]."""
        return [
            at // MS
            for at, call in self.calls
            if (step is None or call.step == step) and (operation is None or call.operation == operation)
        ]

    def ends_once(self) -> None:
        """Each step that was asked for has exactly one terminal decision; what was held is back."""
        ends = Counter((d.run, d.batch, d.step) for d in self.seen("step") if d.outcome not in ("queued", "admitted"))
        asked = {(d.run, d.batch, d.step) for d in self.seen("step")}
        assert set(ends) == asked
        assert set(ends.values()) <= {1}
        assert {name: n for name, n in self.controller.leftovers().items() if n} == {}


def flow(test, capacity: CapacityConfig | None = None):
    """Runs `test(bench)` in virtual time; afterwards every step has ended once and nothing is held."""

    async def main():
        bench = Bench(capacity or config())
        result = await test(bench)
        bench.ends_once()
        return result

    return run_virtual(main())


def reads(count: int, dependency: str = "customer", prefix: str = "s", **fields) -> tuple[Step, ...]:
    return tuple(Step(f"{prefix}{n}", dependency, **fields) for n in range(count))
