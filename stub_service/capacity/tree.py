"""The delegation tree: a run and all the sub-agents below it, held as one, whichever of them spends.

Divided: what a sub-agent names of these is carved out of its parent's, and what it leaves goes back when its branch is
over. What it does not name it shares with its parent.

    fan_out         sub-agents that are opened, in all
    sessions        runs that are open at once, itself included; each is held until its longest branch is over
    bytes           of all answers, at whatever level they come in
    credits         what is admitted: a delegation costs delegate_cost, a call of a tool tool_cost
    agent_tokens    what all calls have used, as their answers say

Windows, of each level by itself: what comes in at one level is streamed up, and comes in at every level above.

    payload         bytes that a run hands up: its own answers', and those of all below it
    context_tokens  tokens that come into a run's context window, likewise

Caps, of each run by itself: `depth` (levels below it), `iterations` (batches), `branch_tokens` (of its own calls).

What is asked for is checked and taken at once, all or nothing. What an answer uses is known only when it is there: one
that does not fit into bytes, payload or context is cut off, fills what was left, and from then on nothing starts.
A branch is settled once, when its run is over, nothing of it is under way, and all branches below it are settled:
however each of them ended. Source: nested budgets of hierarchical schedulers (a child is paid out of its parent's).
Plain arithmetic: no clock, nothing awaited between a check and what it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

DEPTH, FAN_OUT, SESSIONS, BYTES, PAYLOAD, CONTEXT = "depth", "fan_out", "sessions", "bytes", "payload", "context"
CREDITS, AGENT_TOKENS, ITERATIONS, BRANCH_TOKENS = "credits", "agent_tokens", "iterations", "branch_tokens"
REASONS = (
    DEPTH, FAN_OUT, SESSIONS, BYTES, PAYLOAD, CONTEXT, CREDITS, AGENT_TOKENS, ITERATIONS, BRANCH_TOKENS
)  # fmt: skip
"""Of a refusal: what the tree had too little of."""
DIVIDED = (FAN_OUT, SESSIONS, BYTES, CREDITS, AGENT_TOKENS)
UNSAID_PAYLOAD = 100_000_000
MOST_USED = 10**15


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """None: not limited, or (of a sub-agent) not named. payload of a tree: 100 MB unless it is named."""

    depth: int | None = None
    fan_out: int | None = None
    sessions: int | None = None
    bytes: int | None = None
    payload: int | None = None
    context_tokens: int | None = None
    credits: int | None = None
    agent_tokens: int | None = None
    iterations: int | None = None
    branch_tokens: int | None = None

    def over(self, defaults: TreeLimits) -> TreeLimits:
        """These, and the defaults for what is not named."""
        mine = {one.name: getattr(self, one.name) for one in fields(self)}
        return TreeLimits(**{name: getattr(defaults, name) if n is None else n for name, n in mine.items()})


NO_LIMITS = TreeLimits()


@dataclass(frozen=True, slots=True)
class Prices:
    """In credits."""

    delegate: int = 1
    tool: int = 1


class Pool:
    """So many of one thing, for a branch and for all below it that name none of their own."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Trees:
    """Those of one controller. kind: what a branch is, so that it can be replaced. branches: not yet settled."""

    def __init__(self, defaults: TreeLimits, prices: Prices) -> None:
        self.defaults = defaults
        self.prices = prices
        self.kind: type[Branch] = Branch
        self.used = False
        self.branches = 0

    def root(self, asked: TreeLimits | None) -> Branch | None:
        """Of a run that its tenant opens. None: nothing of it is limited, and nothing is counted."""
        limits = self.defaults if asked is None else asked.over(self.defaults)
        if limits == NO_LIMITS:
            return None
        self.used = True
        limits = limits if limits.payload is not None else replace(limits, payload=UNSAID_PAYLOAD)
        pools = {name: Pool(n) for name in DIVIDED if (n := getattr(limits, name)) is not None}
        branch = self.kind(self, limits, pools, None)
        if SESSIONS in pools:
            pools[SESSIONS].left -= 1
        return branch

    def leftovers(self) -> dict[str, int]:
        """What is still held; nothing to say where no tree was ever counted."""
        return {"branches": self.branches} if self.used else {}


class Branch:
    """One run of a tree. own: the pools that it named; pools: those that it draws on, its own or its parent's."""

    __slots__ = (
        "below", "branch_tokens_left", "context_left", "depth_left", "ended", "iterations_left", "limits", "own",
        "parent", "payload_left", "pools", "request", "settled", "timer", "trees",
    )  # fmt: skip

    def __init__(self, trees: Trees, limits: TreeLimits, own: dict[str, Pool], parent: Branch | None) -> None:
        self.trees = trees
        self.limits = limits
        self.own = own
        self.parent = parent
        self.pools: dict[str, Pool] = {**(parent.pools if parent is not None else {}), **own}
        self.depth_left = limits.depth
        self.payload_left = limits.payload
        self.context_left = limits.context_tokens
        self.iterations_left = limits.iterations
        self.branch_tokens_left = limits.branch_tokens
        self.below = 0
        self.ended = self.settled = False
        self.request: str | None = None
        self.timer: Any = None
        trees.branches += 1

    def delegate(self, asked: TreeLimits) -> Branch | str:
        """A sub-agent's branch, with its price and all that it names taken from here; or what there was too little of,
        and nothing is taken."""
        missing = self.lacks(asked)
        if missing is not None:
            return missing
        for name, n in self.asked_of_pools(asked):
            if name in self.pools:
                self.pools[name].left -= n
        branch = self.child(asked)
        if SESSIONS in branch.own:
            branch.own[SESSIONS].left -= 1
        self.below += 1
        return branch

    def child(self, asked: TreeLimits) -> Branch:
        """What is not carved it inherits: caps as they stand, and of depth one level less."""
        own = {name: Pool(n) for name in DIVIDED if (n := getattr(asked, name)) is not None}
        limits = TreeLimits(
            depth=asked.depth if self.depth_left is None or asked.depth is not None else self.depth_left - 1,
            payload=_least(asked.payload, self.limits.payload),
            context_tokens=asked.context_tokens,
            iterations=_least(asked.iterations, self.limits.iterations),
            branch_tokens=_least(asked.branch_tokens, self.limits.branch_tokens),
        )
        return type(self)(self.trees, limits, own, self)

    def lacks(self, asked: TreeLimits) -> str | None:
        """What there is too little of for a sub-agent that asks for so much; None: nothing."""
        if self.depth_left is not None and 1 + (asked.depth or 0) > self.depth_left:
            return DEPTH
        for name, n in self.asked_of_pools(asked):
            if name in self.pools and n > self.pools[name].left:
                return name
        return self.spent()

    def asked_of_pools(self, asked: TreeLimits) -> Iterator[tuple[str, int]]:
        """(pool, how much of it) that a sub-agent takes from here."""
        yield FAN_OUT, 1 + (asked.fan_out or 0)
        yield SESSIONS, asked.sessions or 1
        yield BYTES, asked.bytes or 0
        yield CREDITS, self.trees.prices.delegate + (asked.credits or 0)
        yield AGENT_TOKENS, asked.agent_tokens or 0

    def admit(self, steps: int) -> str | None:
        """Takes what a batch of so many calls costs (None), or nothing and says what there was too little of."""
        if self.iterations_left is not None and self.iterations_left < 1:
            return ITERATIONS
        spent = self.spent()
        if spent is not None:
            return spent
        credits, price = self.pools.get(CREDITS), steps * self.trees.prices.tool
        if credits is not None:
            if price > credits.left:
                return CREDITS
            credits.left -= price
        if self.iterations_left is not None:
            self.iterations_left -= 1
        return None

    def give_back(self) -> None:
        """A call that was paid for never started."""
        if CREDITS in self.pools:
            self.pools[CREDITS].left += self.trees.prices.tool

    def spent(self) -> str | None:
        """What is used up, so that nothing may start; None: nothing is. Asked again before each start."""
        for name in (BYTES, AGENT_TOKENS):
            if name in self.pools and self.pools[name].left <= 0:
                return name
        if self.branch_tokens_left is not None and self.branch_tokens_left <= 0:
            return BRANCH_TOKENS
        for level in self.upwards():
            if level.payload_left is not None and level.payload_left <= 0:
                return PAYLOAD
            if level.context_left is not None and level.context_left <= 0:
                return CONTEXT
        return None

    def take_in(self, body: Mapping[str, Any]) -> str | None:
        """An answer came in, and goes up: what it uses counts here and above. Returns what it does not fit into."""
        tokens, bytes_ = used(body, "tokens"), used(body, "bytes")
        if AGENT_TOKENS in self.pools:
            self.pools[AGENT_TOKENS].left -= tokens
        if self.branch_tokens_left is not None:
            self.branch_tokens_left -= tokens
        cut = self.fill_bytes(bytes_)
        for level in self.upwards():
            cut = level.fill_windows(bytes_, tokens) or cut
        return cut

    def fill_bytes(self, bytes_: int) -> str | None:
        pool = self.pools.get(BYTES)
        if pool is None:
            return None
        fits = bytes_ <= pool.left
        pool.left = max(0, pool.left - bytes_)
        return None if fits else BYTES

    def fill_windows(self, bytes_: int, tokens: int) -> str | None:
        """At this level alone."""
        cut = None
        if self.context_left is not None:
            cut = CONTEXT if tokens > self.context_left else None
            self.context_left = max(0, self.context_left - tokens)
        if self.payload_left is not None:
            cut = PAYLOAD if bytes_ > self.payload_left else cut
            self.payload_left = max(0, self.payload_left - bytes_)
        return cut

    def upwards(self) -> Iterator[Branch]:
        level: Branch | None = self
        while level is not None:
            yield level
            level = level.parent

    def end(self) -> None:
        """Its run is over, and nothing of it is under way."""
        self.ended = True
        self.settle()

    def settle(self) -> None:
        """Once, and not before all branches below it: its session and what it has left of its own go back."""
        if self.settled or not self.ended or self.below:
            return
        self.settled = True
        self.trees.branches -= 1
        if self.timer is not None:
            self.timer.cancel()
        if SESSIONS in self.pools:
            self.pools[SESSIONS].left += 1
        parent = self.parent
        if parent is None:
            return
        for name, pool in self.own.items():
            if name in parent.pools:
                parent.pools[name].left += pool.left
        parent.below -= 1
        parent.settle()

    def view(self) -> dict[str, int]:
        """What is left, of all that is limited: as the run's owner may read it."""
        left = {
            DEPTH: self.depth_left, **{name: self.pools[name].left for name in DIVIDED if name in self.pools},
            PAYLOAD: self.payload_left, "context_tokens": self.context_left, ITERATIONS: self.iterations_left,
            BRANCH_TOKENS: self.branch_tokens_left,
        }  # fmt: skip
        return {name: max(0, n) for name, n in left.items() if n is not None}


def used(body: Mapping[str, Any], what: str) -> int:
    """How much of it an answer says that its call has used; 0 where it says nothing that can be."""
    usage = body.get("usage")
    n = usage.get(what) if isinstance(usage, Mapping) else None
    return n if type(n) is int and 0 < n <= MOST_USED else 0


def _least(*limits: int | None) -> int | None:
    named = [limit for limit in limits if limit is not None]
    return min(named) if named else None
