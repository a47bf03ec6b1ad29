"""Bulkheads gone wrong, for `v04.bulkheads` to catch; and a twin, which looks suspicious and keeps them apart.

What they have in common: a dependency that slows down takes slots, or keeps them, that callers of others need.
Source: M. Nygard, Release It!, chapter 5 (bulkheads).
"""

from __future__ import annotations

from asyncio import Event, sleep
from typing import Any

from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.dispatch import GO
from stub_service.capacity.ports import READ, WRITE, DependencyAnswer, DependencyCall, StepResult
from stub_service.capacity.reserve import Slots
from stub_service.capacity.runs import LiveStep
from stub_service.defects.registry import broken, twin

BULKHEADS, FOREGROUND, LEAKS = "v04.bulkheads", "v02.foreground_first", "trial.leak_free"
LOOK_S = 0.005
"""Between two looks at whether the other step has its slot."""


def one_semaphore(controller: Any, config: CapacityConfig) -> None:
    """As many calls as the ceiling allows, whatever they call: no dependency has a limit of its own."""
    for bulkhead in controller.dispatch.bulkheads.values():
        bulkhead.slots.limit = config.ceiling
        bulkhead.adaptive = None


def never_released(controller: Any, config: CapacityConfig) -> None:
    """The slot of a call that timed out is never given back."""
    timed_out: set[tuple[str, str]] = set()
    call, release = controller.flow.call, controller.dispatch.release

    async def noting(asked: DependencyCall) -> DependencyAnswer:
        answer: DependencyAnswer = await call(asked)
        if not answer.status:
            timed_out.add((asked.run, asked.step))
        return answer

    def forgetting(live: LiveStep, now_ns: int) -> None:
        if (live.run.id, live.step.step) in timed_out:
            live.grant = None
        release(live, now_ns)

    controller.flow.call, controller.dispatch.release = noting, forgetting


def one_pool(controller: Any, config: CapacityConfig) -> None:
    """Reads and writes of a dependency have one pool, as large as both: slow reads take the slots of writes."""
    bulkheads = controller.dispatch.bulkheads
    for dependency in config.dependencies:
        reads, writes = bulkheads[dependency.name, READ], bulkheads[dependency.name, WRITE]
        limit = reads.slots.limit + writes.slots.limit
        pool = Slots(limit, config.reserves, config.shares, dependency.expected_ns, reads.slots.on_lend)
        reads.slots = writes.slots = pool
        reads.adaptive = None


def holds_one_for_another(controller: Any, config: CapacityConfig) -> None:
    """A step keeps its slot, and does not begin, until those of its batch that call another dependency have theirs:
    all slots of a batch are collected one by one before anything is done with them."""
    healthy = controller.flow.acquire

    def lacks(live: LiveStep, other: LiveStep) -> bool:
        if other.batch != live.batch or other.step.dependency == live.step.dependency:
            return False
        return other.attempt == 0 and other.grant is None

    async def acquire(live: LiveStep, again: bool) -> StepResult | None:
        first = next(iter(live.run.active)) is live  # in order, or two would wait for each other
        ended: StepResult | None = await healthy(live, again)
        if ended is not None or not first:
            return ended
        await sleep(0)  # the others of its batch have asked by then
        while any(lacks(live, other) for other in live.run.active):
            await sleep(LOOK_S)
            stopped: StepResult | None = controller.flow.stopped(live, GO)
            if stopped is not None:
                return stopped
        return None

    controller.flow.acquire = acquire


def one_after_another(controller: Any, config: CapacityConfig) -> None:
    """Twin: the steps of a batch are called one after another. A slow one keeps those behind it waiting,
    and no slot."""
    healthy = controller.flow.run
    last: dict[tuple[str, str], Event] = {}

    async def run(live: LiveStep) -> StepResult:
        key = live.run.id, live.batch
        before, last[key] = last.get(key), (mine := Event())
        try:
            if before is not None:
                await before.wait()
            result: StepResult = await healthy(live)
            return result
        finally:
            mine.set()
            if last.get(key) is mine:
                del last[key]

    controller.flow.run = run


broken("one_global_semaphore", "one limit for all dependencies together", one_semaphore, BULKHEADS, also=(FOREGROUND,))
broken("slot_of_timeout_kept", "the slot of a call that timed out is never released", never_released, BULKHEADS,
       also=(LEAKS,))  # fmt: skip
broken("reads_and_writes_in_one_pool", "reads and writes of a dependency share one pool", one_pool, BULKHEADS,
       also=(FOREGROUND,))  # fmt: skip
broken("holds_slot_while_waiting", "a customer slot is held while waiting for a billing slot", holds_one_for_another,
       BULKHEADS)  # fmt: skip
twin("twin_steps_in_order", "steps of a batch go one after another, and hold no slot meanwhile", one_after_another,
     BULKHEADS)  # fmt: skip
