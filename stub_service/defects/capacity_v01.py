"""Envelopes gone wrong, for `v01.fan_out_ceiling` to catch; and twins, which look suspicious and hold the ceiling.

Each is laid over the healthy Controller: over the envelope that it gives to a run, or over how it takes a batch. What
comes of it is real: the calls beyond the ceiling arrive.
"""

from __future__ import annotations

from asyncio import sleep
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stub_service.capacity.config import EnvelopeDefaults
from stub_service.capacity.envelope import NO_TOKEN, Envelope, envelope_of
from stub_service.capacity.ports import Batch, BatchResult, RunWish, Step, StepResult
from stub_service.capacity.runs import FAILED, LiveStep, Run, user_status
from stub_service.defects.registry import broken, twin

CEILING, RETRIES, COMPLETE = "v01.fan_out_ceiling", "v05.one_retry_owner", "trial.decisions_complete"
MODEL = "model"
LOOK_UP_S = 0.01
"""How long it takes to ask a store elsewhere what is left."""


def like(envelope: Envelope, kind: type[Envelope]) -> Envelope:
    """The same envelope, of another kind."""
    return kind(envelope.attempts, envelope.retry_tokens, envelope.budgets, envelope.parent)


def lay_envelope(controller: Any, kind: type[Envelope]) -> None:
    """Every run gets an envelope of this kind."""
    healthy: Callable[[RunWish, Run | None], Envelope | str] = controller.envelope_for

    def envelope_for(wish: RunWish, parent: Run | None) -> Envelope | str:
        envelope = healthy(wish, parent)
        return envelope if isinstance(envelope, str) else like(envelope, kind)

    controller.envelope_for = envelope_for


class CheckedBefore(Envelope):
    """Check and decrement are two things: batches that were checked are taken, whatever is left by then."""

    def __init__(self, attempts: int, retry_tokens: int, budgets: Mapping[str, int], parent: Envelope | None = None):
        super().__init__(attempts, retry_tokens, budgets, parent)
        self.checked: dict[int, str | None] = {}

    def check(self, batch: Batch) -> None:
        self.checked[id(batch.steps)] = like(self, Envelope).take(batch.steps, batch.round)

    def take(self, steps: Sequence[Step], round_: int = 0) -> str | None:
        missing = self.checked.pop(id(steps))
        if missing is None:
            self.attempts -= len(steps)
            for dependency, calls in Counter(step.dependency for step in steps).items():
                if dependency in self.budgets:
                    self.budgets[dependency] -= calls
        return missing


def check_then_act(controller: Any, config: Any) -> None:
    """Between check and decrement something is awaited: parallel batches all see what is left, and all take it."""
    lay_envelope(controller, CheckedBefore)
    healthy = controller.submit

    async def submit(run_id: str, batch: Batch) -> BatchResult:
        run = controller.runs.get(run_id)
        if run is not None:
            run.envelope.check(batch)
            await sleep(LOOK_UP_S)
        result: BatchResult = await healthy(run_id, batch)
        return result

    controller.submit = submit


def count_on_success_only(controller: Any, config: Any) -> None:
    """A call that failed is not counted: what it took is given back when its step ends."""
    healthy = controller.flow.end

    def end(live: LiveStep, outcome: str, *given: Any, **named: Any) -> StepResult:
        result: StepResult = healthy(live, outcome, *given, **named)
        if outcome == FAILED:
            for _ in range(live.attempt):
                live.run.envelope.give_back(live.step.dependency)
        return result

    controller.flow.end = end


class ReplansNotCounted(Envelope):
    """What a re-plan asks for is taken from nothing."""

    def take(self, steps: Sequence[Step], round_: int = 0) -> str | None:
        return None if round_ else super().take(steps, round_)


class RetriesNotCounted(Envelope):
    """A retry costs its token, and no attempt."""

    def take_retry(self, dependency: str) -> str | None:
        if self.retry_tokens < 1:
            return NO_TOKEN
        self.retry_tokens -= 1
        return None


class ToolCallsNotCounted(Envelope):
    """Only calls of a model are counted."""

    def take(self, steps: Sequence[Step], round_: int = 0) -> str | None:
        return super().take([step for step in steps if step.tool == MODEL], round_)


class FreshForTheChild(Envelope):
    """A sub-agent gets a budget of its own, beside its parent's."""

    def carve(self, wish: RunWish, defaults: EnvelopeDefaults) -> Envelope | str:
        return envelope_of(wish, defaults)


def excess_dropped(controller: Any, config: Any) -> None:
    """Of a batch that asks for too much as many calls are made as remain; the rest are dropped, and told as served."""
    healthy = controller.submit

    async def submit(run_id: str, batch: Batch) -> BatchResult:
        run = controller.runs.get(run_id)
        fits = len(batch.steps)
        if run is not None:
            while fits and like(run.envelope, Envelope).take(batch.steps[:fits], batch.round):
                fits -= 1
        result: BatchResult = await healthy(run_id, replace(batch, steps=batch.steps[:fits]))
        told = tuple(StepResult(step.step, "served", None, user_status("served")) for step in batch.steps[fits:])
        return result._replace(steps=result.steps + told)

    controller.submit = submit


def slow_look_up(controller: Any, config: Any) -> None:
    """Twin: it takes a while to ask what is left, but check and decrement come together, after it."""
    healthy = controller.submit

    async def submit(run_id: str, batch: Batch) -> BatchResult:
        await sleep(LOOK_UP_S)
        result: BatchResult = await healthy(run_id, batch)
        return result

    controller.submit = submit


class TakenOneByOne(Envelope):
    """Twin: the calls of a batch are taken one by one, and all given back if one of them is missing."""

    def take(self, steps: Sequence[Step], round_: int = 0) -> str | None:
        for place, step in enumerate(steps):
            missing = super().take([step], round_)
            if missing:
                for taken in steps[:place]:
                    self.give_back(taken.dependency)
                return missing
        return None


def _envelope(kind: type[Envelope]) -> Callable[[Any, Any], None]:
    return lambda controller, config: lay_envelope(controller, kind)


broken("check_then_act_budget", "what is left is checked, awaited, then taken: parallel batches overshoot",
       check_then_act, CEILING)  # fmt: skip
broken("count_on_success_only", "calls that fail are not counted", count_on_success_only, CEILING, also=(RETRIES,))
broken("replans_not_counted", "re-plans are not counted", _envelope(ReplansNotCounted), CEILING)
broken("retries_not_counted", "retries cost a token and no attempt", _envelope(RetriesNotCounted), CEILING, RETRIES)
broken("tool_calls_not_counted", "only calls of a model are counted", _envelope(ToolCallsNotCounted), CEILING,
       also=(RETRIES,))  # fmt: skip
broken("fresh_budget_for_subagent", "a sub-agent gets a budget of its own", _envelope(FreshForTheChild), CEILING)
broken("excess_silently_dropped", "what a batch asks for beyond the rest is dropped, and told as served",
       excess_dropped, CEILING, also=(COMPLETE,))  # fmt: skip
twin("twin_slow_budget_look_up", "what is left is asked slowly, checked and taken at once", slow_look_up, CEILING)
twin("twin_taken_one_by_one", "calls of a batch are taken one by one, and all given back if one is missing",
     _envelope(TakenOneByOne), CEILING)  # fmt: skip
