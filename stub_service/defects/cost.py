"""Cost counted wrongly, for the checks `cost.*` to catch; and twins, which look suspicious and count right.

Each is laid over one part of the controller's `costs`: a bucket, the forecast, the sessions, the order of the claims,
or what happens at the end of a run. On a controller that counts no cost they do nothing.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable
from typing import Any

from stub_service.capacity.bucket import Bucket, Claim, Short
from stub_service.capacity.context import AdmissionContext, Denied
from stub_service.capacity.cost_config import SHORT, TOOL_HEAVY, CostConfig
from stub_service.capacity.costs import Account, CostControl
from stub_service.capacity.forecast import Forecasts
from stub_service.capacity.runs import CANCELLED, Run
from stub_service.capacity.sessions import Sessions
from stub_service.defects.registry import become, broken, twin

BUCKET, RECONCILED, UNWOUND = "cost.bucket_per_tenant", "cost.reconciled", "cost.unwound"
SIZE, CORRIDOR, LEAK_FREE = "cost.size_class", "cost.corridor", "trial.leak_free"
A_MOMENT_S = 0.02
Lay = Callable[[CostControl, CostConfig], None]


def over(lay: Lay) -> Callable[[Any, Any], None]:
    """Laid over the controller's costs, where it has any."""

    def onto(controller: Any, config: Any) -> None:
        if controller.costs is not None:
            lay(controller.costs, config.cost)

    return onto


# Buckets


def one_bucket(costs: CostControl, config: CostConfig) -> None:
    """All that the tenants' buckets hold together is one bucket, and whoever comes first has it."""
    named = [one for one in config.buckets if one.tenant]
    limits = named or list(config.buckets)
    several = 1 if named else 3
    rate, burst = sum(one.rate_per_s for one in limits), sum(one.burst for one in limits)
    shared = Bucket(rate * several, burst * several, costs.now_ns())
    costs.bucket_of = lambda tenant: costs.buckets.setdefault("", shared)  # type: ignore[method-assign]


def of_kind(kind: type[Bucket]) -> Lay:
    """Every tenant's bucket is of this kind."""

    def lay(costs: CostControl, config: CostConfig) -> None:
        healthy = costs.bucket_of

        def bucket_of(tenant: str) -> Bucket | None:
            bucket = healthy(tenant)
            if bucket is not None:
                become(bucket, kind)
            return bucket

        costs.bucket_of = bucket_of  # type: ignore[method-assign]

    return lay


class ChargedAtCompletion(Bucket):
    """The forecast is checked when a run asks, and nothing is taken until it has ended: all that ask at once get in."""

    __slots__ = ()

    def reserve(self, forecast: int, now_ns: int) -> Claim | Short:
        return self.short_of(forecast, now_ns) or Claim(0)

    def spend(self, claim: Claim, cost: int) -> None:
        claim.used += cost

    def settle(self, claim: Claim, now_ns: int) -> None:
        if not claim.settled:
            self.balance(now_ns)
            self.charge(claim.used)
            claim.settled = True


class RefilledByTicks(Bucket):
    """Twin: refilled every ten milliseconds, and not at each question. What it holds is the same."""

    __slots__ = ()
    TICK_NS = 10_000_000

    def balance(self, now_ns: int) -> float:
        return super().balance(now_ns - now_ns % self.TICK_NS)


# Forecasts


class FloorAboveLimit(Forecasts):
    """No forecast is below five thousand, whatever the bucket can hold: the first call of a small tenant never fits."""

    FLOOR = 5_000

    def forecast(self, tenant: str, request_class: str, basis: int, burst: int | None) -> int:
        return max(self.FLOOR, super().forecast(tenant, request_class, basis, burst))


def never_learns(costs: CostControl, config: CostConfig) -> None:
    """Whatever a class has cost, the next forecast is the first."""
    costs.learn = lambda account: None  # type: ignore[method-assign]


def learns_a_little_later(costs: CostControl, config: CostConfig) -> None:
    """Twin: what a run cost is taken over a moment after its settlement, by something that runs beside."""
    healthy = costs.learn

    def learn(account: Account) -> None:
        get_running_loop().call_later(A_MOMENT_S, healthy, account)

    costs.learn = learn  # type: ignore[method-assign]


# Settlements


def cancel_never_settles(costs: CostControl, config: CostConfig) -> None:
    """Of the ways in which a run ends one was forgotten: a cancelled run keeps what it reserved."""
    healthy = costs.seen

    def seen(run: Run, now_ns: int) -> None:
        if run.outcome != CANCELLED:
            healthy(run, now_ns)

    costs.seen = seen  # type: ignore[method-assign]


def crash_never_settles(costs: CostControl, config: CostConfig) -> None:
    """Nobody looks after a run whose caller is gone."""
    costs.look_after = lambda account: None  # type: ignore[method-assign]


def class_never_settles(costs: CostControl, config: CostConfig) -> None:
    """One route was forgotten: runs that call many tools keep what they reserved, however they end."""
    healthy = costs.settle

    def settle(account: Account, how: str | None) -> None:
        if account.request_class != TOOL_HEAVY:
            healthy(account, how)

    costs.settle = settle  # type: ignore[method-assign]


def settled_a_little_later(costs: CostControl, config: CostConfig) -> None:
    """Twin: a run is settled a moment after it has ended, by something that runs beside."""
    healthy = costs.settle

    def settle(account: Account, how: str | None) -> None:
        get_running_loop().call_later(A_MOMENT_S, healthy, account, how)

    costs.settle = settle  # type: ignore[method-assign]


# The admission context


class ReleasedOnSuccessOnly(AdmissionContext):
    """What was claimed is given back when the run ends: one that was refused never began, so never ends."""

    __slots__ = ()

    async def claim(self) -> Denied | None:
        for one in self._claims:
            denied = await one.take()
            if denied is not None:
                return denied
            self._held.append(one)
        return None


class UnwoundInOrder(AdmissionContext):
    """Twin: what is given back goes back in the order in which it was claimed. All of it does."""

    __slots__ = ()

    def release(self) -> None:
        self._held.reverse()
        super().release()


def context(kind: type[AdmissionContext]) -> Lay:
    def lay(costs: CostControl, config: CostConfig) -> None:
        costs.context_of = lambda account: kind(costs.claims_of(account))  # type: ignore[method-assign]

    return lay


def rate_before_concurrency(costs: CostControl, config: CostConfig) -> None:
    """The bucket is charged first, and nobody pays back those who then find no session."""
    healthy = costs.claims_of

    def context_of(account: Account) -> AdmissionContext:
        session, tokens, memory, tools = healthy(account)

        class Charged:
            async def take(self) -> Denied | None:
                return await tokens.take()

            def give_back(self) -> None:
                if account.run is not None:
                    tokens.give_back()
                elif account.claim is not None and account.bucket is not None:
                    account.bucket.reserved -= account.claim.held
                    account.bucket.charge(account.claim.forecast)

        return AdmissionContext([Charged(), session, memory, tools])

    costs.context_of = context_of  # type: ignore[method-assign]


def tools_before_memory(costs: CostControl, config: CostConfig) -> None:
    """Twin: the pools are claimed in another order; what is refused unwinds all the same."""
    healthy = costs.claims_of

    def claims_of(account: Account) -> list[Any]:
        session, tokens, memory, tools = healthy(account)
        return [session, tokens, tools, memory]

    costs.claims_of = claims_of  # type: ignore[method-assign]


# Sessions


class OneQueue(Sessions):
    """All sizes in one queue, first come, first served, and nothing kept for anybody."""

    def may_start(self, size_class: str) -> bool:
        return self.limit is None or self.taken < self.limit

    def take_at_once(self, size_class: str) -> bool:
        if self.queued or not self.may_start(size_class):
            return False
        self.in_use[size_class] += 1
        return True

    def next_size(self) -> str | None:
        firsts = [(waiting[0].since_ns, size) for size, waiting in self.waiting.items() if waiting]
        return min(firsts)[1] if firsts and self.may_start("") else None


class LargeOnesLater(Sessions):
    """Twin: a session that a large run gives back is looked at a moment later. Small runs have their own."""

    def give_back(self, size_class: str) -> None:
        self.in_use[size_class] -= 1
        if size_class == SHORT:
            self.pump()
        else:
            get_running_loop().call_later(A_MOMENT_S, self.pump)


def sessions(kind: type[Sessions]) -> Lay:
    return lambda costs, config: become(costs.sessions, kind)


def limited(times: float) -> Lay:
    """So many times the sessions that were configured."""

    def lay(costs: CostControl, config: CostConfig) -> None:
        if config.sessions is not None:
            costs.sessions.limit = max(1, round(config.sessions * times))

    return lay


broken("cost_one_bucket", "all tenants share one bucket of cost", over(one_bucket), BUCKET, also=(RECONCILED,))
broken("cost_charged_at_completion", "cost is checked at admission and charged at completion: five at once spend six "
       "times the limit", over(of_kind(ChargedAtCompletion)), RECONCILED, also=(BUCKET,))  # fmt: skip
broken("cost_cancel_never_settles", "a cancelled run is never settled", over(cancel_never_settles), RECONCILED,
       also=(LEAK_FREE,))  # fmt: skip
broken("cost_crash_never_settles", "a run whose caller is gone is never settled", over(crash_never_settles),
       RECONCILED, also=(LEAK_FREE,))  # fmt: skip
broken("cost_route_never_settles", "runs that call many tools are never settled, however they end",
       over(class_never_settles), RECONCILED, also=(LEAK_FREE,))  # fmt: skip
broken("cost_floor_above_limit", "a forecast floor above the bucket refuses the first call for ever",
       over(lambda costs, config: become(costs.forecasts, FloorAboveLimit)), RECONCILED, also=(BUCKET,))  # fmt: skip
broken("cost_never_learns", "the forecast does not follow what runs really cost", over(never_learns), RECONCILED)
broken("cost_released_on_success_only", "a request that is refused keeps what it had claimed before",
       over(context(ReleasedOnSuccessOnly)), UNWOUND, also=(LEAK_FREE, BUCKET, RECONCILED))  # fmt: skip
broken("cost_rate_before_concurrency", "tokens are charged before a session is asked for, and kept if there is none",
       over(rate_before_concurrency), UNWOUND, also=(BUCKET, RECONCILED))  # fmt: skip
broken("cost_one_queue", "chat turns wait behind deep research", over(sessions(OneQueue)), SIZE)
broken("cost_admits_too_little", "a quarter of the sessions: work grows old in the queue", over(limited(0.25)),
       CORRIDOR)  # fmt: skip
broken("cost_admits_too_much", "ten times the sessions: the model throttles what was admitted", over(limited(10)),
       CORRIDOR, also=(SIZE,))  # fmt: skip
twin("twin_cost_refilled_by_ticks", "buckets are refilled every ten milliseconds", over(of_kind(RefilledByTicks)),
     BUCKET)  # fmt: skip
twin("twin_cost_learns_later", "a forecast learns a moment after the settlement", over(learns_a_little_later),
     RECONCILED)  # fmt: skip
twin("twin_cost_settled_later", "a run is settled a moment after it has ended", over(settled_a_little_later),
     RECONCILED)  # fmt: skip
twin("twin_cost_unwound_in_order", "claims are given back in the order in which they were made",
     over(context(UnwoundInOrder)), UNWOUND)  # fmt: skip
twin("twin_cost_tools_before_memory", "pools are claimed in another order", over(tools_before_memory), UNWOUND)
twin("twin_cost_large_ones_later", "what a large run gives back is handed on a moment later",
     over(sessions(LargeOnesLater)), SIZE)  # fmt: skip
twin("twin_cost_one_session_less", "three quarters of the sessions, still in the corridor", over(limited(0.75)),
     CORRIDOR)  # fmt: skip
