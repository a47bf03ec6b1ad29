"""Delegation trees held wrongly, for the checks `tree.*` to catch; and twins, which look suspicious and hold them.

Each is laid over what a branch of a tree is (stub_service/capacity/tree.py), over its prices, or over who looks after
it. Where no run has a limit of its tree they do nothing.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from stub_service.capacity.ports import Batch
from stub_service.capacity.runs import BUDGET_EXHAUSTED, Run
from stub_service.capacity.tree import (
    AGENT_TOKENS,
    CREDITS,
    DIVIDED,
    FAN_OUT,
    ITERATIONS,
    SESSIONS,
    Branch,
    Pool,
    Prices,
    TreeLimits,
)
from stub_service.defects.registry import broken, twin

BOUNDED, PRICED, GUARD = "tree.bounded", "tree.delegate_priced", "tree.inward_guard"
LEAK_FREE = "trial.leak_free"
A_MOMENT_S = 0.02
Lay = Callable[[Any, Any], None]


def of_kind(kind: type[Branch]) -> Lay:
    """Every branch of every tree is of this kind."""

    def lay(controller: Any, config: Any) -> None:
        controller.trees.kind = kind

    return lay


def priced(prices: Callable[[Prices], Prices]) -> Lay:
    """What is admitted costs something else."""

    def lay(controller: Any, config: Any) -> None:
        controller.trees.prices = prices(controller.trees.prices)

    return lay


# What the tree may hold


class BreadthUnchecked(Branch):
    """How deep a tree may be is checked, how wide is not."""

    __slots__ = ()

    def asked_of_pools(self, asked: TreeLimits) -> Iterator[tuple[str, int]]:
        return (one for one in super().asked_of_pools(asked) if one[0] != FAN_OUT)


class DepthUnchecked(Branch):
    """How wide a tree may be is checked, how deep is not."""

    __slots__ = ()

    def lacks(self, asked: TreeLimits) -> str | None:
        kept, self.depth_left = self.depth_left, None
        try:
            return super().lacks(asked)
        finally:
            self.depth_left = kept


class FreshForTheChild(Branch):
    """A sub-agent gets what the run at the top of its tree was given, beside it."""

    __slots__ = ()
    FRESH: tuple[str, ...] = DIVIDED

    def child(self, asked: TreeLimits) -> Branch:
        made = super().child(asked)
        *_, top = self.upwards()
        fresh = {name: Pool(n) for name in self.FRESH if (n := getattr(top.limits, name)) is not None}
        made.pools = {**made.pools, **fresh}
        return made


class AgentBudgetOfEachRun(FreshForTheChild):
    """What an agent may use is counted for each of its sub-agents anew."""

    __slots__ = ()
    FRESH = (AGENT_TOKENS,)


class BytesOfOneLevel(Branch):
    """Only what the supervisor itself is answered is summed."""

    __slots__ = ()

    def fill_bytes(self, bytes_: int) -> str | None:
        return super().fill_bytes(bytes_) if self.parent is None else None


class PayloadNotKept(Branch):
    """What a branch hands up is handed up, however much it is."""

    __slots__ = ()

    def fill_windows(self, bytes_: int, tokens: int) -> str | None:
        return super().fill_windows(0, tokens)


class WindowsOfOneLevel(Branch):
    """What is streamed up is not counted at the levels above."""

    __slots__ = ()

    def upwards(self) -> Iterator[Branch]:
        yield self


class SessionFreedEarly(Branch):
    """A session counts while its own calls run: an agent that waits for its sub-agents holds none."""

    __slots__ = ()

    def delegate(self, asked: TreeLimits) -> Branch | str:
        branch = super().delegate(asked)
        if not isinstance(branch, str) and SESSIONS in branch.pools:
            branch.pools[SESSIONS].left += 1
        return branch

    def settle(self) -> None:
        settled = self.settled
        super().settle()
        if self.settled and not settled and self.parent is not None and SESSIONS in self.pools:
            self.pools[SESSIONS].left -= 1


class SettledLater(Branch):
    """Twin: a branch is settled a moment after it is over, by something that runs beside."""

    __slots__ = ()

    def end(self) -> None:
        get_running_loop().call_later(A_MOMENT_S, super().end)


class CountedByWalking(Branch):
    """Twin: how deep a branch is is found by walking up, not from a number that it carries."""

    __slots__ = ()

    def lacks(self, asked: TreeLimits) -> str | None:
        for distance, level in enumerate(self.upwards()):
            if level.limits.depth is not None and distance + 1 + (asked.depth or 0) > level.limits.depth:
                return "depth"
        return super().lacks(asked)


def crash_never_settles(controller: Any, config: Any) -> None:
    """Nobody looks after a branch whose agent is gone."""
    controller.look_after = lambda run: None


# What is admitted


class TakenOneByOne(Branch):
    """Twin: the calls of a batch are paid for one by one, and all given back if one cannot be."""

    __slots__ = ()

    def admit(self, steps: int) -> str | None:
        credits, before = self.pools.get(CREDITS), self.iterations_left
        for taken in range(steps):
            self.iterations_left = before
            missing = super().admit(1)
            if missing is not None:
                self.iterations_left = before
                if credits is not None:
                    credits.left += taken * self.trees.prices.tool
                return missing
        return None


# Guards of one agent


class NoIterationCap(Branch):
    """A loop goes on for as long as its plan does."""

    __slots__ = ()

    def admit(self, steps: int) -> str | None:
        self.iterations_left = None
        return super().admit(steps)


class NoBranchCeiling(Branch):
    """What one branch uses is counted, and stops nothing."""

    __slots__ = ()

    def spent(self) -> str | None:
        self.branch_tokens_left = None
        return super().spent()


def guard_of_all(controller: Any, config: Any) -> None:
    """One agent that loops has all agents of its tenant stopped."""
    healthy = controller.refusal
    looped: set[str] = set()

    def refusal(run: Run, batch: Batch, now_ns: int) -> tuple[str, str] | None:
        if run.tenant in looped and run.branch is not None and run.branch.limits.iterations is not None:
            return BUDGET_EXHAUSTED, ITERATIONS
        found: tuple[str, str] | None = healthy(run, batch, now_ns)
        if found == (BUDGET_EXHAUSTED, ITERATIONS):
            looped.add(run.tenant)
        return found

    controller.refusal = refusal


class HeardLater(Branch):
    """Twin: what a call has used is known a moment after its answer, by something that runs beside."""

    __slots__ = ()

    def take_in(self, body: Mapping[str, Any]) -> str | None:
        get_running_loop().call_later(A_MOMENT_S, super().take_in, body)
        return None


broken("tree_breadth_unchecked", "how deep a tree may be is checked, how wide is not", of_kind(BreadthUnchecked),
       BOUNDED)  # fmt: skip
broken("tree_depth_unchecked", "how wide a tree may be is checked, how deep is not", of_kind(DepthUnchecked), BOUNDED)
broken("tree_fresh_for_the_child", "a sub-agent gets a fresh budget, beside its parent's", of_kind(FreshForTheChild),
       BOUNDED, also=(PRICED, GUARD))  # fmt: skip
broken("tree_bytes_of_one_level", "bytes are summed at the supervisor's level only", of_kind(BytesOfOneLevel), BOUNDED)
broken("tree_payload_not_kept", "what a branch hands up has no cap", of_kind(PayloadNotKept), BOUNDED)
broken("tree_windows_of_one_level", "what is streamed up is not counted at the levels above",
       of_kind(WindowsOfOneLevel), BOUNDED)  # fmt: skip
broken("tree_session_freed_early", "a session is freed while its branch still runs", of_kind(SessionFreedEarly),
       BOUNDED)  # fmt: skip
broken("tree_crash_never_settled", "a branch whose agent is gone is never settled", crash_never_settles, LEAK_FREE)
broken("tree_all_cost_one", "a delegation and a call of a tool both count one", priced(lambda prices: Prices(1, 1)),
       PRICED)  # fmt: skip
broken("tree_delegation_free", "calls of tools are counted, delegations are not",
       priced(lambda prices: replace(prices, delegate=0)), PRICED)  # fmt: skip
broken("tree_tools_cost_as_delegations", "a call of a tool costs as much as a delegation",
       priced(lambda prices: replace(prices, tool=prices.delegate)), PRICED, also=(BOUNDED, GUARD))  # fmt: skip
broken("tree_no_iteration_cap", "a loop goes on for as long as its plan does", of_kind(NoIterationCap), GUARD)
broken("tree_no_branch_ceiling", "what one branch uses stops nothing", of_kind(NoBranchCeiling), GUARD)
broken("tree_agent_budget_of_each_run", "what an agent may use is counted for each sub-agent anew",
       of_kind(AgentBudgetOfEachRun), GUARD)  # fmt: skip
broken("tree_guard_of_all", "one agent that loops has all agents of its tenant stopped", guard_of_all, GUARD,
       also=(BOUNDED,))  # fmt: skip
twin("twin_tree_settled_later", "a branch is settled a moment after it is over", of_kind(SettledLater), BOUNDED)
twin("twin_tree_counted_by_walking", "how deep a branch is is found by walking up", of_kind(CountedByWalking), BOUNDED)
twin("twin_tree_paid_one_by_one", "calls are paid for one by one, all given back if one is missing",
     of_kind(TakenOneByOne), PRICED)  # fmt: skip
twin("twin_tree_heard_later", "what a call has used is known a moment after its answer", of_kind(HeardLater), GUARD)
