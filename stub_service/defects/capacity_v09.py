"""Ambiguous writes gone wrong, for `v09.ambiguous_write` to catch: what is committed twice really is."""

from __future__ import annotations

from asyncio import sleep
from itertools import count
from typing import Any

from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.controller import Controller
from stub_service.capacity.ports import READBACK, WRITE, DependencyAnswer, DependencyCall, Step, StepResult
from stub_service.capacity.readback import COMMITTED, NOT_COMMITTED, ReadBack
from stub_service.capacity.retry import Failed, RetryOwner
from stub_service.capacity.runs import FAILED, LiveStep
from stub_service.capacity.steps import StepFlow
from stub_service.defects.registry import become, broken, twin

AMBIGUOUS, ONE_OWNER = "v09.ambiguous_write", "v05.one_retry_owner"
SLOW_S = 0.3


class Blind(RetryOwner):
    """No answer is a failure like any other, and every write may be repeated."""

    def ambiguous(self, step: Step, status: int) -> bool:
        return False

    def repeatable(self, failed: Failed) -> bool:
        return True


class ReportsFailed(StepFlow):
    """A write that a read-back has found committed is told as failed."""

    def settled(self, live: LiveStep, found: str, answer: DependencyAnswer) -> StepResult:
        if found == COMMITTED:
            return self.end(live, FAILED, "no_answer", self.now_ns(), answer=answer)
        return super().settled(live, found, answer)


class AssumesCommitted(ReadBack):
    """Whatever was not answered will have been committed."""

    async def settle(self, live: LiveStep) -> str:
        return COMMITTED


class TakesToken(ReadBack):
    """The retry token is taken before the look, and not given back."""

    async def settle(self, live: LiveStep) -> str:
        live.run.envelope.retry_tokens = max(0, live.run.envelope.retry_tokens - 1)
        return await super().settle(live)


class LooksTwice(ReadBack):
    """Twin: what is not committed is looked up once more, to be sure."""

    async def settle(self, live: LiveStep) -> str:
        found = await super().settle(live)
        return await super().settle(live) if found == NOT_COMMITTED and live.grant is not None else found


def _blind(controller: Controller, config: CapacityConfig) -> None:
    become(controller.flow.retry, Blind)


def _reports_failed(controller: Controller, config: CapacityConfig) -> None:
    become(controller.flow, ReportsFailed)


def _read_back(kind: type[ReadBack]) -> Any:
    def lay(controller: Controller, config: CapacityConfig) -> None:
        become(controller.flow.readback, kind)

    return lay


def _new_keys(controller: Controller, config: CapacityConfig) -> None:
    """Each request has a key of its own: the look-up asks for one that nobody has used, and the write is repeated."""
    healthy, numbers = controller.flow.call, count(1)

    async def call(call: DependencyCall) -> DependencyAnswer:
        if call.idempotency_key is not None and call.operation in (WRITE, READBACK):
            call = call._replace(idempotency_key=f"{call.idempotency_key}#{next(numbers)}")
        return await healthy(call)

    controller.flow.call = call


def _slow_look(controller: Controller, config: CapacityConfig) -> None:
    healthy = controller.flow.call

    async def call(call: DependencyCall) -> DependencyAnswer:
        if call.operation == READBACK:
            await sleep(SLOW_S)
        return await healthy(call)

    controller.flow.call = call


_BLINDLY = "a write without an answer is repeated without a look"
_SERVED = "a write that was not committed is told as served"
broken("write_repeated_blindly", _BLINDLY, _blind, AMBIGUOUS, also=(ONE_OWNER,))
broken("write_new_key_each_time", "each attempt has an idempotency key of its own", _new_keys, AMBIGUOUS)
broken("write_reported_failed", "a committed write is told as failed", _reports_failed, AMBIGUOUS)
broken("write_reported_served", _SERVED, _read_back(AssumesCommitted), AMBIGUOUS, also=(ONE_OWNER,))
broken("write_look_costs_token", "a committed write costs a retry token", _read_back(TakesToken), AMBIGUOUS)
twin("twin_read_back_slow", "a read-back is taken 300 ms later", _slow_look, AMBIGUOUS)
twin("twin_read_back_twice", "what is not committed is looked up twice", _read_back(LooksTwice), AMBIGUOUS)
