"""The capacity controller and its dependencies in real time: clock, sockets, evidence and metrics around what is pure.

The controller calls its dependencies over HTTP through the stub's own port, as if they were services of their own.
This decides nothing. A new epoch begins with a new controller and new dependencies, so that no trial inherits another's
circuits, budgets or keys; what is under way ends on the old ones. A caller that hangs up does not end its batch: there
is `cancel` for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from stub_service.capacity import api
from stub_service.capacity.config import CapacityConfig, Fault
from stub_service.capacity.ports import DependencyAnswer
from stub_service.capacity.records import Arrival, CostDecision, Decision, Effect, row
from stub_service.capacity_metrics import BulkheadFigures, CapacityMetrics
from stub_service.clock import Clock
from stub_service.dependency import faults
from stub_service.dependency.model import Dependencies
from stub_service.dependency.visits import Visit
from stub_service.evidence import ARRIVALS, DECISIONS, EFFECTS, Evidence
from stub_service.exposition import Family
from stub_service.outbound import Outbound

if TYPE_CHECKING:
    from stub_service.capacity.controller import Controller

LayDefect = Callable[[Any, CapacityConfig], None]
"""(the Controller, its configuration)"""
_END_S = 1.0


class CapacityShell:
    """evidence: kind -> file. lay: a defect for the controller. with_controller: else only dependencies."""

    def __init__(
        self,
        config: CapacityConfig,
        clock: Clock,
        evidence: Mapping[str, Evidence],
        lay: LayDefect | None = None,
        with_controller: bool = True,
    ) -> None:
        self.config = config
        self.metrics = CapacityMetrics(d.name for d in config.dependencies)
        self.dependencies: Dependencies
        self.controller: Controller | None = None
        self._clock = clock
        self._evidence = evidence
        self._lay = lay
        self._with_controller = with_controller
        self._faults = config.faults
        self._outbound: Outbound | None = None
        self._open: api.Tasks = set()
        self._build()

    def start(self, base_url: str) -> None:
        """The stub serves at this URL from now on. Belongs to the running loop."""
        if self._with_controller:
            self._outbound = Outbound(base_url)
            self._build()

    def restart(self) -> None:
        """A trial begins."""
        self._build()
        self.metrics.restart()

    async def answer(
        self, tenant: str, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> api.ApiAnswer | None:
        """None if there is no controller here."""
        if self.controller is None:
            return None
        task = asyncio.get_running_loop().create_task(
            api.handle(self.controller, tenant, method, path, body, headers, self._open)
        )  # fmt: skip
        self._open.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise  # the caller hung up; its batch goes on
            return api.ApiAnswer(503, {"outcome": "failed", "reason": "stub_stopped", "user_status": "stopped"})

    async def visit(self, visit: Visit) -> DependencyAnswer:
        """What a dependency answers. A cancelled visit is a caller that hung up."""
        return await self.dependencies.handle(visit)

    def metric_families(self) -> list[Family]:
        """What Prometheus is told."""
        controller = self.controller
        bulkheads = controller.dispatch.bulkheads if controller is not None else {}
        figures = [
            BulkheadFigures(dependency, operation, one.slots.in_use, one.waiting.size, one.slots.limit)
            for (dependency, operation), one in bulkheads.items()
        ]
        costs = controller.costs if controller is not None else None
        return self.metrics.families(self.dependencies.in_flight(), figures, costs)

    def set_faults(self, document: Any) -> str | None:
        """Replaces the faults of all dependencies; or says in one sentence what is wrong with the document."""
        read = read_faults(document, tuple(d.name for d in self.config.dependencies))
        if isinstance(read, str):
            return read
        self._faults = read
        self.dependencies.set_faults(read)
        return None

    def faults_document(self) -> dict[str, Any]:
        """The faults, and how often each has happened since the epoch."""
        state = self.dependencies.faults
        return {"faults": [asdict(fault) for fault in state.configured], "happened": list(state.happened)}

    async def close(self) -> None:
        """Ends the batches that are open, and then the connections."""
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=_END_S)
        self.dependencies.stop()
        if self._outbound is not None:
            await self._outbound.close()

    def _build(self) -> None:
        now_ns = self._clock.now_ns
        self.dependencies = Dependencies(self.config, now_ns, self._arrived, self._committed, wall_s=time.time)
        self.dependencies.set_faults(self._faults)
        if self._outbound is None:
            return
        from stub_service.capacity.controller import Controller

        self.controller = Controller(self.config, now_ns, self._outbound.call, self._decided)
        if self._lay is not None:
            self._lay(self.controller, self.config)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._open.discard(task)
        if not task.cancelled():
            task.exception()  # seen: who waited for it has it, and if nobody does any more, nobody is to be told

    def _decided(self, decision: Decision | CostDecision) -> None:
        self.metrics.decided(decision)
        self._evidence[DECISIONS].add(row(decision))

    def _arrived(self, arrival: Arrival) -> None:
        self.metrics.arrived(arrival)
        self._evidence[ARRIVALS].add(row(arrival))

    def _committed(self, effect: Effect) -> None:
        self.metrics.committed(effect.dependency)
        self._evidence[EFFECTS].add(row(effect))


def read_faults(document: Any, dependencies: tuple[str, ...]) -> tuple[Fault, ...] | str:
    """`{"faults": [...]}` as values, or one sentence on what is wrong with it."""
    listed = document.get("faults") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > _MOST_FAULTS:
        return f'expected {{"faults": [...]}} with at most {_MOST_FAULTS} faults; an empty list ends them all'
    read = []
    for place, one in enumerate(listed):
        fault = _fault(one)
        wrong = fault if isinstance(fault, str) else faults.problem(fault, dependencies)
        if wrong is not None:
            return f"faults[{place}]: {wrong}"
        assert isinstance(fault, Fault)
        read.append(fault)
    return tuple(read)


_MOST_FAULTS = 1000
_TYPES: dict[str, tuple[type, ...]] = {
    "dependency": (str,), "kind": (str,), "operation": (str,), "retry_after": (str,), "from_ns": (int,),
    "to_ns": (int,), "times": (int,), "status": (int,), "factor": (int, float),
}  # fmt: skip


def _fault(one: Any) -> Fault | str:
    if not isinstance(one, dict):
        return 'must be an object, such as {"dependency": "billing", "kind": "outage"}'
    for key, value in one.items():
        if key not in _TYPES:
            return f"{key[:100]} is not known (known: {', '.join(_TYPES)})"
        if type(value) not in _TYPES[key]:
            return f"{key} must be {'text' if _TYPES[key] == (str,) else 'a number'}"
    for key in ("dependency", "kind"):
        if key not in one:
            return f"{key} is missing"
    return Fault(**one)
