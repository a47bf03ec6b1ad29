"""Retries gone wrong, for `v05.one_retry_owner` to catch; and twins, which look suspicious and have one owner.

Layers that each retry make a product: three layers of three tries are 27 attempts of one step (Site Reliability
Engineering, 2016, chapters 21 and 22). Here they are what they are in practice: clients below the controller that help.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from stub_service.capacity.bulkhead import Grant
from stub_service.capacity.circuit import Pass
from stub_service.capacity.envelope import Envelope
from stub_service.capacity.ports import CallDependency, DependencyAnswer, DependencyCall, StepResult
from stub_service.capacity.reserve import NO
from stub_service.capacity.retry import RETRYABLE, Failed, Plan
from stub_service.capacity.runs import LiveStep
from stub_service.defects.capacity_v01 import lay_envelope
from stub_service.defects.registry import broken, twin

RETRIES, CEILING, CIRCUIT = "v05.one_retry_owner", "v01.fan_out_ceiling", "v08.circuit"
COMPLETE = "trial.decisions_complete"
AGAIN_S = 0.01
"""How long a layer that retries by itself waits: too little to be of any help."""


def retrying(call: CallDependency, layer: str, tries: int, rng: Random) -> CallDependency:
    """A layer that tries a failed call again by itself, and knows of no other layer that does."""

    async def with_retries(asked: DependencyCall) -> DependencyAnswer:
        answer = await call(asked)
        for _ in range(tries - 1):
            if answer.status not in RETRYABLE:
                break
            await sleep(AGAIN_S * rng.uniform(0.5, 1.5))
            answer = await call(asked._replace(layer=layer))
        return answer

    return with_retries


def double_retry(controller: Any, config: Any) -> None:
    """The client below the controller tries each of its attempts twice."""
    controller.flow.call = retrying(controller.flow.call, "client", 2, Random(f"{config.seed}:double_retry"))


def three_layer_retry(controller: Any, config: Any) -> None:
    """The controller, an SDK below it, and the HTTP client below that try three times each (with two retry tokens)."""
    rng = Random(f"{config.seed}:three_layer_retry")
    client = retrying(controller.flow.call, "http_client", 3, rng)
    controller.flow.call = retrying(client, "sdk", 3, rng)


class NeverSpent(Envelope):
    """A retry needs a token, and leaves it where it is."""

    def take_retry(self, dependency: str) -> str | None:
        missing = super().take_retry(dependency)
        self.retry_tokens += 1 if missing is None else 0
        return missing


def spent_late(controller: Any, config: Any) -> None:
    """The token is spent when the retry has been sent: until then others schedule theirs on the same one."""
    lay_envelope(controller, NeverSpent)
    healthy = controller.flow.call

    async def call(asked: DependencyCall) -> DependencyAnswer:
        if asked.attempt > 1:
            controller.runs[asked.run].envelope.retry_tokens -= 1
        answer: DependencyAnswer = await healthy(asked)
        return answer

    controller.flow.call = call


def refilled_per_step(controller: Any, config: Any) -> None:
    """Each step begins with all the tokens that its run was given."""
    healthy = controller.flow.run
    given: dict[str, int] = {}

    async def run(live: LiveStep) -> StepResult:
        envelope = live.run.envelope
        envelope.retry_tokens = given.setdefault(live.run.id, envelope.retry_tokens)
        result: StepResult = await healthy(live)
        return result

    controller.flow.run = run


def client_error_retried(controller: Any, config: Any) -> None:
    """Whatever failed is tried again, also what can only fail again."""
    controller.flow.retry.retryable = lambda status: not 200 <= status < 400


def keyless_write_retried(controller: Any, config: Any) -> None:
    """A mutation that carries no key is repeated as if it were a read."""
    controller.flow.retry.repeatable = lambda failed: True


def no_jitter(controller: Any, config: Any) -> None:
    """What failed together comes back together."""
    controller.flow.retry.config = replace(config.retry, jitter=0.0)


def _begin(controller: Any, live: LiveStep, grant: Grant) -> None:
    live.grant = grant
    live.attempt += 1
    live.state = "running"
    controller.dispatch.events.step(live, grant.bulkhead, "step", "admitted", None, grant.started_ns)


def _retries_by(controller: Any, how: Callable[[LiveStep, int], Grant | None]) -> None:
    """A retry starts with the grant that `how` gives it; None: as all others do."""
    healthy = controller.flow.acquire

    async def acquire(live: LiveStep, again: bool) -> StepResult | None:
        grant = how(live, controller.now_ns()) if again else None
        if grant is not None:
            _begin(controller, live, grant)
            return None
        ended: StepResult | None = await healthy(live, again)
        return ended

    controller.flow.acquire = acquire


def into_open_circuit(controller: Any, config: Any) -> None:
    """Neither is the circuit asked when a retry is planned, nor when it starts."""
    owner = controller.flow.retry
    healthy = owner.plan

    def plan(failed: Failed, envelope: Envelope, now_ns: int) -> Plan:
        planned: Plan = healthy(replace(failed, circuit_closed=True), envelope, now_ns)
        return planned

    def through(live: LiveStep, now_ns: int) -> Grant | None:
        bulkhead = controller.dispatch.bulkheads[live.step.dependency, live.step.operation]
        run = live.run
        if bulkhead.circuit.admits(now_ns) or bulkhead.blocked(run.rank, run.tenant, True, now_ns) is not None:
            return None
        granted: Grant = bulkhead.start(run.rank, run.tenant, now_ns)
        return granted

    owner.plan = plan
    _retries_by(controller, through)


def past_the_throttle(controller: Any, config: Any) -> None:
    """A retry goes straight to its dependency: it has been admitted once, after all."""

    def straight(live: LiveStep, now_ns: int) -> Grant:
        bulkhead = controller.dispatch.bulkheads[live.step.dependency, live.step.operation]
        passed = Pass(bulkhead.circuit.generation, 0)
        grant = Grant(bulkhead, live.run.rank, live.run.tenant, NO, NO, passed, now_ns)
        grant.released = True  # it never held a slot
        return grant

    _retries_by(controller, straight)


def slow_retries(controller: Any, config: Any) -> None:
    """Twin: retries come late, four times as late as configured, and much spread; each is the owner's, and paid."""
    retry = config.retry
    controller.flow.retry.config = replace(retry, base_ns=4 * retry.base_ns, most_ns=4 * retry.most_ns)


def two_hops(controller: Any, config: Any) -> None:
    """Twin: an SDK and an HTTP client pass each attempt on, once, whatever comes of it. Layers, and no retries."""
    healthy = controller.flow.call

    async def client(asked: DependencyCall) -> DependencyAnswer:
        await sleep(AGAIN_S / 10)
        answer: DependencyAnswer = await healthy(asked)
        return answer

    async def sdk(asked: DependencyCall) -> DependencyAnswer:
        await sleep(AGAIN_S / 10)
        return await client(asked)

    controller.flow.call = sdk


def _never_spent(controller: Any, config: Any) -> None:
    lay_envelope(controller, NeverSpent)


broken("double_retry", "client and controller both retry: 2 x 2 attempts", double_retry, RETRIES,
       also=(CEILING, COMPLETE))  # fmt: skip
broken("three_layer_retry", "three layers try three times each: 27 attempts", three_layer_retry, RETRIES,
       also=(CEILING, COMPLETE))  # fmt: skip
broken("retry_tokens_never_spent", "a retry needs a token, and does not spend it", _never_spent, RETRIES)
broken("retry_token_spent_late", "the token is spent when the retry has been sent", spent_late, RETRIES)
broken("retry_tokens_per_step", "tokens are refilled for each step", refilled_per_step, RETRIES)
broken("client_error_retried", "a 400 is retried", client_error_retried, RETRIES)
broken("keyless_write_retried", "a mutation without a key is retried", keyless_write_retried, RETRIES)
broken("retry_into_open_circuit", "retries are sent though the circuit is open", into_open_circuit, RETRIES,
       also=(CIRCUIT,))  # fmt: skip
broken("no_jitter", "retries come back as one wave", no_jitter, RETRIES)
broken("retry_bypasses_throttle", "a retry takes no slot and does not queue", past_the_throttle, RETRIES,
       also=(CIRCUIT,))  # fmt: skip
twin("twin_slow_retries", "retries come very late, from their one owner", slow_retries, RETRIES)
twin("twin_two_hops", "calls pass two further layers, which do not retry", two_hops, RETRIES)
