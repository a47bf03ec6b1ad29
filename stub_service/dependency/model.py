"""The dependencies behind the controller: worker pools, service times, writes that commit once, and what goes wrong.

Plain asyncio over an injected clock: the same code answers over HTTP in the stub and by function call in virtual time.
It judges nobody: it writes down what reached it (arrivals) and what it committed (effects), and those are what the
checks judge by. It must never lose a row, commit a write twice for one key, or read a clock of its own.

- A worker is busy for the service time, whatever becomes of the answer: a caller that leaves does not free it, and the
  write that it does commits all the same. A caller that leaves while it waits for a worker leaves the queue.
- `hang` and `commit_then_timeout` use a worker for the service time, and then never answer.
- Writes commit when their service time ends. A write whose idempotency key (of that tenant) has committed answers as
  before and commits nothing. What has committed is known for ten minutes: memory does not grow with a trial.
- What a call uses (tokens, bytes) is drawn when a worker takes it, and told in an answer of success: `usage`. A quota
  of tokens is charged then; while it is overdrawn, calls are turned away at the door with 429 and Retry-After.
- A read-back waits, before it takes a worker, for writes of the same key (or run and step) that are under way, as it
  would for a row lock: so "not committed" stays true.
- The row of an arrival is written when the caller has its answer, or is gone; `ended_ns` is that instant. A call that
  no worker ever took has `started_ns` equal to `ended_ns`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

from stub_service.capacity.bucket import Bucket, Short
from stub_service.capacity.config import CapacityConfig, Fault
from stub_service.capacity.cost_config import Quota
from stub_service.capacity.ports import READBACK, WRITE, CallDependency, DependencyAnswer, DependencyCall
from stub_service.capacity.records import Arrival, Effect
from stub_service.dependency.faults import COMMIT_THEN_TIMEOUT, ERROR, HANG, Faults, Work, imf_fixdate, retry_after
from stub_service.dependency.pool import WorkerPool
from stub_service.dependency.usage import Usages, Used, told
from stub_service.dependency.visits import Visit

AnyVisit = Visit | DependencyCall
"""A call of the controller is one as it stands: it says all that a visit may say."""

VIRTUAL_EPOCH_S = 1_767_225_600
"""The wall clock at instant 0 of a trial in virtual time: 2026-01-01 00:00:00 UTC, always, so that dates repeat."""

KNOWN_FOR_NS = 600 * 1_000_000_000
"""How long a commit is remembered; services that take idempotency keys forget them, too."""

OVER_QUOTA = "quota"
"""`fault` of an arrival that was turned away because the dependency's tokens were used up."""

Sleep = Callable[[int], Coroutine[Any, Any, None]]
"""Waits so many nanoseconds."""


async def sleep_on_loop(delay_ns: int) -> None:
    await asyncio.sleep(delay_ns / 1e9)


class Downstream:
    """One of them: its workers, its quota of tokens, and what it has committed."""

    __slots__ = ("_since", "committed", "effects", "pool", "quota", "service_ns", "under_way")

    def __init__(self, workers: int, service_ns: int, quota: Quota | None = None) -> None:
        self.quota = Bucket(quota.rate_per_s, quota.burst) if quota is not None else None
        self.pool = WorkerPool(workers)
        self.service_ns = service_ns
        self.committed: dict[str, dict[str, Any]] = {}
        self._since: dict[str, int] = {}
        self.effects = 0
        self.under_way: dict[str, list[asyncio.Future[None]]] = {}

    def remember(self, name: str, body: dict[str, Any], now_ns: int) -> None:
        """Knows what was committed under this name, and forgets what was long ago."""
        self._since.pop(name, None)
        self._since[name] = now_ns
        self.committed[name] = body
        while (oldest := next(iter(self._since))) != name and self._since[oldest] < now_ns - KNOWN_FOR_NS:
            del self._since[oldest], self.committed[oldest]


class Dependencies:
    """All of them. `handle` answers one call; a cancelled `handle` is a caller that hung up."""

    def __init__(
        self,
        config: CapacityConfig,
        now_ns: Callable[[], int],
        record_arrival: Callable[[Arrival], None],
        record_effect: Callable[[Effect], None],
        sleep: Sleep = sleep_on_loop,
        wall_s: Callable[[], float] | None = None,
    ) -> None:
        self.faults = Faults(config.faults)
        self.by_name = {d.name: Downstream(d.workers, d.service_ns, d.quota) for d in config.dependencies}
        self.usages = Usages(config.usages, config.seed)
        self._now_ns = now_ns
        self._record_arrival = record_arrival
        self._record_effect = record_effect
        self._sleep = sleep
        self._wall_s = wall_s or (lambda: VIRTUAL_EPOCH_S + now_ns() / 1e9)
        self._working_on: set[asyncio.Future[None]] = set()

    async def handle(self, visit: AnyVisit) -> DependencyAnswer:
        """The answer, after however long it takes. Raises KeyError for a dependency that does not exist."""
        dependency = self.by_name[visit.dependency]
        now_ns = self._now_ns()
        arrived_ns = now_ns
        refusing = self.faults.at_door(visit.dependency, visit.operation, now_ns)
        if refusing is not None:
            return self._refuse(visit, refusing, arrived_ns)
        if dependency.quota is not None:
            overdrawn = dependency.quota.short_of(1, now_ns)
            if overdrawn is not None:
                return self._over_quota(visit, overdrawn, arrived_ns)
        held = _mark_under_way(dependency, visit) if visit.operation == WRITE else None
        try:
            if visit.operation == READBACK:
                await _writes_ended(dependency, visit)
            if not dependency.pool.take_at_once():
                await dependency.pool.take()
        except asyncio.CancelledError:
            left_ns = self._now_ns()
            _unmark(dependency, visit, held)
            self._write(visit, arrived_ns, left_ns, left_ns, 0, None)
            raise
        return await self._work(visit, dependency, held, arrived_ns)

    def surely_within(self, call: DependencyCall) -> bool:
        """Whether the answer is certain to come before the call's timeout: nothing can go wrong, and a worker is idle.
        Holds only until anything else happens."""
        dependency = self.by_name[call.dependency]
        pool = dependency.pool
        return (
            pool.in_use < pool.workers
            and dependency.service_ns < call.timeout_ns
            and call.operation != READBACK
            and not self.faults.ever(call.dependency)
        )

    def in_flight(self) -> dict[str, tuple[int, int]]:
        """dependency -> (workers busy, calls waiting for one)."""
        return {name: (d.pool.in_use, d.pool.waiting) for name, d in self.by_name.items()}

    def set_faults(self, faults: tuple[Fault, ...]) -> None:
        """Replaces the faults of all dependencies."""
        self.faults.replace(faults)

    async def settle(self) -> None:
        """Waits for the work that callers have left behind, so that its effects are written."""
        while self._working_on:
            await asyncio.wait(self._working_on)

    def stop(self) -> int:
        """Gives up what callers have left behind; says how much it was. Its effects never come to be."""
        left = list(self._working_on)
        for task in left:
            task.cancel()
        return len(left)

    async def _work(
        self, visit: AnyVisit, dependency: Downstream, held: asyncio.Future[None] | None, arrived_ns: int
    ) -> DependencyAnswer:
        """At a worker that has been taken: gives it back exactly once, however this ends."""
        started_ns = self._now_ns()
        if started_ns > arrived_ns:
            refusing = self.faults.out(visit.dependency, visit.operation, started_ns)
            if refusing is not None:
                dependency.pool.give_back()
                _unmark(dependency, visit, held)
                return self._refuse(visit, refusing, arrived_ns)
        work = self.faults.at_work(visit.dependency, visit.operation, started_ns)
        used = self.usages.of(visit) if self.usages.known else None
        if used is not None and dependency.quota is not None and used.tokens:
            dependency.quota.balance(started_ns)
            dependency.quota.charge(used.tokens)
        service_ns = dependency.service_ns if work.factor == 1.0 else max(1, round(dependency.service_ns * work.factor))
        try:
            await self._sleep(service_ns)
        except asyncio.CancelledError:
            left_ns = self._now_ns()
            self._write(visit, arrived_ns, started_ns, left_ns, 0, work.name)
            self._work_on(visit, dependency, held, work, started_ns + service_ns - left_ns)
            raise
        answer = self._done(visit, dependency, held, work)
        if answer is None:
            await self._never(visit, arrived_ns, started_ns, work)
        assert answer is not None
        if used is None or answer.status != 200:
            self._write(visit, arrived_ns, started_ns, self._now_ns(), answer.status, work.name)
            return answer
        self._write(visit, arrived_ns, started_ns, self._now_ns(), 200, work.name, None, used)
        return told(answer, used)

    def _work_on(
        self, visit: AnyVisit, dependency: Downstream, held: asyncio.Future[None] | None, work: Work, rest_ns: int
    ) -> None:
        """The caller is gone; the worker does not know."""

        def rested(task: asyncio.Future[None]) -> None:
            # In a callback, because a task that is cancelled before it has begun never runs any of its own code.
            self._working_on.discard(task)
            if task.cancelled():
                dependency.pool.give_back()
                _unmark(dependency, visit, held)
            else:
                self._done(visit, dependency, held, work)

        task = asyncio.ensure_future(self._sleep(max(0, rest_ns)))
        self._working_on.add(task)
        task.add_done_callback(rested)

    def _done(
        self, visit: AnyVisit, dependency: Downstream, held: asyncio.Future[None] | None, work: Work
    ) -> DependencyAnswer | None:
        """The service time is over: the worker is free, a write commits. None: no answer will ever come."""
        dependency.pool.give_back()
        kind = work.fault.kind if work.fault is not None else ""
        answer: DependencyAnswer | None
        if kind == ERROR:
            assert work.fault is not None
            status = work.fault.status or 500
            answer = DependencyAnswer(status, body={"error": "fault", "dependency": visit.dependency})
        elif kind == HANG:
            answer = None
        elif visit.operation == WRITE:
            answer = DependencyAnswer(200, body=self._commit(visit, dependency))
        elif visit.operation == READBACK:
            answer = DependencyAnswer(200, body={"committed": _lookup(visit) in dependency.committed})
        else:
            answer = DependencyAnswer(200, body={"value": f"{visit.dependency}/{visit.tool or 'call'}"})
        _unmark(dependency, visit, held)
        return None if kind == COMMIT_THEN_TIMEOUT else answer

    def _commit(self, visit: AnyVisit, dependency: Downstream) -> dict[str, Any]:
        key = None if visit.idempotency_key is None else _key(visit.tenant, visit.idempotency_key)
        before = dependency.committed.get(key) if key is not None else None
        if before is not None:
            return before
        dependency.effects += 1
        logical = f"{visit.run or ''}/{visit.step or ''}"
        body = {"committed": True, "effect": f"{visit.dependency}-{dependency.effects}"}
        now_ns = self._now_ns()
        for name in _names(visit):
            dependency.remember(name, body, now_ns)
        self._record_effect(
            Effect(
                now_ns, visit.dependency, logical, visit.run, visit.step, visit.tenant, visit.attempt,
                visit.idempotency_key,
            )
        )  # fmt: skip
        return body

    async def _never(self, visit: AnyVisit, arrived_ns: int, started_ns: int, work: Work) -> None:
        """Until the caller leaves."""
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self._write(visit, arrived_ns, started_ns, self._now_ns(), 0, work.name)
            raise

    def _refuse(self, visit: AnyVisit, fault: Fault, arrived_ns: int) -> DependencyAnswer:
        """At the door (or at its turn, if an outage met it in the queue): no worker, nothing committed."""
        now_ns = self._now_ns()
        if fault.kind == "outage":
            answer = DependencyAnswer(503, body={"error": "outage", "dependency": visit.dependency})
        else:
            epoch_s = int(self._wall_s())
            answer = DependencyAnswer(
                fault.status or 429,
                retry_after(fault.retry_after, epoch_s),
                imf_fixdate(epoch_s),
                {"error": "throttled", "dependency": visit.dependency},
            )
        self._write(visit, arrived_ns, now_ns, now_ns, answer.status, fault.kind, answer)
        return answer

    def _over_quota(self, visit: AnyVisit, overdrawn: Short, arrived_ns: int) -> DependencyAnswer:
        """At the door: the tokens that have been used must be paid by time first."""
        wait_s = max(1, math.ceil(overdrawn.wait_ns / 1e9))
        answer = DependencyAnswer(
            429, str(wait_s), imf_fixdate(int(self._wall_s())), {"error": "throttled", "dependency": visit.dependency}
        )
        self._write(visit, arrived_ns, arrived_ns, arrived_ns, 429, OVER_QUOTA, answer)
        return answer

    def _write(
        self,
        visit: AnyVisit,
        arrived_ns: int,
        started_ns: int,
        ended_ns: int,
        status: int,
        fault: str | None,
        refusal: DependencyAnswer | None = None,
        used: Used | None = None,
    ) -> None:
        self._record_arrival(
            Arrival(
                arrived_ns, started_ns, ended_ns, visit.dependency, visit.operation, status, visit.run, visit.tenant,
                visit.traffic_class, visit.tool, visit.step, visit.round, visit.attempt, visit.owner, visit.layer,
                visit.idempotency_key, visit.deadline_ns, visit.probe or None,
                True if visit.operation == READBACK else None,
                refusal.retry_after if refusal else None, fault, refusal.date if refusal else None,
                used.tokens if used else None, used.bytes if used else None, visit.via,
            )
        )  # fmt: skip


def in_process(dependencies: Dependencies) -> CallDependency:
    """The way to the dependencies by function call. The caller's timeout abandons the call as a hang-up would."""

    async def call(asked: DependencyCall) -> DependencyAnswer:
        if dependencies.surely_within(asked):
            return await dependencies.handle(asked)  # the timer would only be set and cancelled
        try:
            async with asyncio.timeout(max(0, asked.timeout_ns) / 1e9):
                return await dependencies.handle(asked)
        except TimeoutError:
            return NO_ANSWER

    return call


NO_ANSWER = DependencyAnswer(0)


def _key(tenant: str | None, key: str) -> str:
    """Keys belong to a tenant: another's equal key is another key."""
    return f"key\0{tenant or ''}\0{key}"


def _logical(visit: AnyVisit) -> str:
    return f"step\0{visit.run or ''}\0{visit.step or ''}"


def _lookup(visit: AnyVisit) -> str:
    """What a read-back asks about: the key if it names one, else the run and step."""
    return _logical(visit) if visit.idempotency_key is None else _key(visit.tenant, visit.idempotency_key)


def _names(visit: AnyVisit) -> tuple[str, ...]:
    logical = _logical(visit)
    return (logical,) if visit.idempotency_key is None else (logical, _key(visit.tenant, visit.idempotency_key))


def _mark_under_way(dependency: Downstream, visit: AnyVisit) -> asyncio.Future[None]:
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for name in _names(visit):
        dependency.under_way.setdefault(name, []).append(held)
    return held


def _unmark(dependency: Downstream, visit: AnyVisit, held: asyncio.Future[None] | None) -> None:
    """The write has ended, whether it committed or not."""
    if held is None:
        return
    for name in _names(visit):
        others = dependency.under_way[name]
        others.remove(held)
        if not others:
            del dependency.under_way[name]
    if not held.done():
        held.set_result(None)


async def _writes_ended(dependency: Downstream, visit: AnyVisit) -> None:
    name = _lookup(visit)
    while others := dependency.under_way.get(name):
        # Shielded: a read-back whose caller leaves must not end what others wait for.
        await asyncio.shield(others[0])
