"""Floods let through, for the checks `flood.*` to catch; and twins, which look suspicious and hold.

Laid over the controller's `costs`: whose bucket a request is charged to, what a delegation claims, and where those wait
who have to. On a controller that counts no cost they do nothing.
"""

from __future__ import annotations

from asyncio import sleep
from typing import Any

from stub_service.capacity.context import AdmissionContext, Denied
from stub_service.capacity.cost_config import CostConfig
from stub_service.capacity.costs import Account, CostControl
from stub_service.capacity.ports import RunWish
from stub_service.defects.cost import one_bucket, over
from stub_service.defects.registry import broken, twin

CHEAP, EXPENSIVE = "flood.cheap", "flood.expensive"
BUCKET, RECONCILED, SIZE = "cost.bucket_per_tenant", "cost.reconciled", "cost.size_class"
CORRIDOR = "cost.corridor"
A_MOMENT_S = 0.01


class WaitsInTheQueue:
    """Whoever lacks tokens waits for them, with the session that it has claimed already."""

    def __init__(self, tokens: Any, account: Account, costs: CostControl) -> None:
        self.tokens = tokens
        self.account = account
        self.costs = costs

    async def take(self) -> Denied | None:
        while True:
            denied: Denied | None = await self.tokens.take()
            if denied is None or self.costs.now_ns() >= self.account.deadline_ns:
                return denied
            await sleep(min(denied.wait_ns or 0, self.account.deadline_ns - self.costs.now_ns()) / 1e9)

    def give_back(self) -> None:
        self.tokens.give_back()


def one_queue(costs: CostControl, config: CostConfig) -> None:
    """One queue for all, in which a flood waits for its tokens in front of everybody."""
    healthy = costs.claims_of

    def claims_of(account: Account) -> list[Any]:
        session, tokens, memory, tools = healthy(account)
        return [session, WaitsInTheQueue(tokens, account, costs), memory, tools]

    costs.claims_of = claims_of  # type: ignore[method-assign]


def counted_as_one(costs: CostControl, config: CostConfig) -> None:
    """A request counts as exactly one, whatever it delegates: sub-agents are admitted at no price."""
    costs.delegate = lambda account, price: None  # type: ignore[method-assign]
    costs.not_delegated = lambda account, price: None  # type: ignore[method-assign]


def delegation_costs_one(costs: CostControl, config: CostConfig) -> None:
    """A delegation claims one token, as if it were a call like any other."""
    delegate, undo = costs.delegate, costs.not_delegated
    costs.delegate = lambda account, price: delegate(account, 1)  # type: ignore[method-assign]
    costs.not_delegated = lambda account, price: undo(account, 1)  # type: ignore[method-assign]


class RefusedALittleLater(AdmissionContext):
    """Twin: a refusal takes a moment, and holds nothing meanwhile."""

    __slots__ = ()

    async def claim(self) -> Denied | None:
        denied = await super().claim()
        if denied is not None:
            await sleep(A_MOMENT_S)
        return denied


def refused_later(costs: CostControl, config: CostConfig) -> None:
    costs.context_of = lambda account: RefusedALittleLater(costs.claims_of(account))  # type: ignore[method-assign]


def looked_up_slowly(controller: Any, config: Any) -> None:
    """Twin: it takes a moment to ask what a sub-agent costs; its claim comes after that, and whole."""
    healthy = controller.open

    async def open_(tenant: str, wish: RunWish, request: str | None = None) -> Any:
        if wish.parent_run is not None:
            await sleep(A_MOMENT_S)
        return await healthy(tenant, wish, request)

    controller.open = open_


broken("flood_one_bucket", "a flood of small requests is charged to one bucket for all", over(one_bucket), CHEAP,
       also=(BUCKET, RECONCILED))  # fmt: skip
broken("flood_one_queue", "a flood waits for its tokens in the one queue, with the sessions of all", over(one_queue),
       CHEAP, also=(SIZE, BUCKET, RECONCILED))  # fmt: skip
broken("flood_counted_as_one", "a request counts as exactly one, whatever it delegates", over(counted_as_one),
       EXPENSIVE, also=(BUCKET, RECONCILED, CORRIDOR))  # fmt: skip
broken("flood_delegation_costs_one", "a delegation claims one token, whatever its sub-agent uses",
       over(delegation_costs_one), EXPENSIVE, also=(BUCKET, RECONCILED, CORRIDOR))  # fmt: skip
broken("flood_tree_on_one_bucket", "what a wide tree claims is taken from one bucket for all", over(one_bucket),
       EXPENSIVE, also=(BUCKET, RECONCILED, CORRIDOR))  # fmt: skip
twin("twin_flood_refused_later", "a refusal takes a moment, and holds nothing", over(refused_later), CHEAP)
twin("twin_flood_delegates_slowly", "what a sub-agent costs is looked up slowly, and claimed at once",
     looked_up_slowly, EXPENSIVE)  # fmt: skip
