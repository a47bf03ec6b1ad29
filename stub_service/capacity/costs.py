"""What runs cost: admitted on a forecast, charged with what they use, settled when they end, crash or are cancelled.

    admit    a session of its size class (it may wait for it), the forecast of its tenant's bucket, memory, tools
    spend    a dependency's answer tells what the call has used
    settle   once, when the run has ended and nothing of it is under way any more: the claims go back, the bucket is
             charged with what was used, and the forecast learns
    vanish   a run whose caller has asked for nothing for the length of a lease, or whose deadline has passed, is ended

A run and its sub-agents share one account: a child's cost is carved out of its parent's claim, and the claim lasts as
long as the longest of them. Whatever becomes of a run, and however, its account is settled: nothing may leave one
open. It never looks at usage before the dependency has told it.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Mapping
from typing import Any

from stub_service.capacity.bucket import Bucket, Short
from stub_service.capacity.bucket import Claim as BucketClaim
from stub_service.capacity.context import MEMORY, SESSIONS, TOKENS, TOOLS, AdmissionContext, Denied
from stub_service.capacity.context import Claim as PoolClaim
from stub_service.capacity.cost_config import CHAT_TURN, CostConfig
from stub_service.capacity.forecast import Forecasts, Hints
from stub_service.capacity.ports import RunWish
from stub_service.capacity.records import CostDecision
from stub_service.capacity.runs import BUDGET_EXHAUSTED, EXPIRED, OPEN, THROTTLED, Run
from stub_service.capacity.sessions import GRANTED, TOO_LATE, Pool, Sessions
from stub_service.capacity.signals import signal_of

RETRY_POOL_NS = 1_000_000_000
"""What is told to a request that found a pool empty: nobody knows when a run will end."""
QUEUED, ADMITTED, REFUSED, SETTLED = "queued", "admitted", "refused", "settled"
DEADLINE, LEASE = "deadline", "lease"
MOST_USED = 10**15
LOOK_AGAIN_NS = 50_000_000


class Account:
    """What one run and its sub-agents have claimed and used. run: its id, once it is open; runs: those of the tree that
    are not over. learns: it did all that it set out to do. own: used by the run itself; delegated: prices of sub-agents
    that were claimed beside its forecast."""

    __slots__ = (
        "asked_ns", "basis", "bucket", "claim", "context", "deadline_ns", "delegated", "forecast", "hints", "learns",
        "own", "request", "request_class", "run", "runs", "settled", "size_class", "tenant", "timer", "touched_ns",
        "used", "wait_ns",
    )  # fmt: skip

    def __init__(
        self, tenant: str, request_class: str, size_class: str, hints: Hints, basis: int, forecast: int,
        bucket: Bucket | None, asked_ns: int, deadline_ns: int, request: str | None,
    ) -> None:  # fmt: skip
        self.tenant = tenant
        self.request_class = request_class
        self.size_class = size_class
        self.hints = hints
        self.basis = basis
        self.forecast = forecast
        self.bucket = bucket
        self.claim: BucketClaim | None = None
        self.context: AdmissionContext | None = None
        self.asked_ns = asked_ns
        self.deadline_ns = deadline_ns
        self.request = request
        self.run: str | None = None
        self.runs: dict[Run, None] = {}
        self.learns = True
        self.settled = False
        self.used = 0
        self.own = 0
        self.delegated = 0
        self.wait_ns: int | None = None
        self.touched_ns = asked_ns
        self.timer: TimerHandle | None = None

    @property
    def forecast_of(self) -> int:
        """What its forecast should have been: all that was used, less what was claimed apart, at the price of each
        sub-agent. To learn that as well would claim a delegation twice."""
        return max(self.own, self.used - self.delegated)

    def view(self) -> dict[str, Any]:
        """As the run's owner may read it."""
        return {"request_class": self.request_class, "forecast": self.forecast, "used": self.used,
                "settled": self.settled}  # fmt: skip


class CostControl:
    """Its parts are attributes, so that each can be replaced: `buckets`, `forecasts`, `sessions`, `memory`, `tools`.

    vanished: told of a run whose caller is gone, and why; it ends the run.
    """

    def __init__(
        self,
        config: CostConfig,
        now_ns: Callable[[], int],
        record: Callable[[CostDecision], None],
        vanished: Callable[[Run, str], None],
    ) -> None:
        self.config = config
        self.now_ns = now_ns
        self.record = record
        self.vanished = vanished
        self.forecasts = Forecasts(config.classes, config.learning)
        self.sessions = Sessions(config.sessions, config.queues)
        self.memory = Pool(config.memory)
        self.tools = Pool(config.tools)
        self.buckets: dict[str, Bucket | None] = {}
        self.open: dict[Account, None] = {}
        self._limits = {one.tenant: one for one in config.buckets}

    def bucket_of(self, tenant: str) -> Bucket | None:
        """Its own, made when it is first asked for; None: the tenant is not limited."""
        if tenant not in self.buckets:
            limits = self._limits.get(tenant) or self._limits.get("")
            self.buckets[tenant] = Bucket(limits.rate_per_s, limits.burst, self.now_ns()) if limits else None
        return self.buckets[tenant]

    async def admit(self, tenant: str, wish: RunWish, deadline_ns: int, request: str | None) -> Account | Denied:
        """The account of a run that may begin, all claims made; or why it may not, none made. It may wait, until its
        deadline at most."""
        account = self.account_for(tenant, wish, deadline_ns, request)
        account.context = self.context_of(account)
        denied = await account.context.claim()
        if denied is not None:
            self.tell(account, REFUSED, denied.reason, denied.wait_ns)
            return denied
        account.touched_ns = self.now_ns()
        self.open[account] = None
        return account

    def account_for(self, tenant: str, wish: RunWish, deadline_ns: int, request: str | None) -> Account:
        """What the request is expected to cost."""
        request_class = wish.request_class or CHAT_TURN
        hints = wish.forecast or Hints()
        bucket = self.bucket_of(tenant)
        basis = self.forecasts.basis(request_class, hints)
        forecast = self.forecasts.forecast(tenant, request_class, basis, bucket.burst if bucket else None)
        size_class = self.forecasts.classes[request_class].size_class
        return Account(
            tenant, request_class, size_class, hints, basis, forecast, bucket, self.now_ns(), deadline_ns, request
        )

    def context_of(self, account: Account) -> AdmissionContext:
        return AdmissionContext(self.claims_of(account))

    def claims_of(self, account: Account) -> list[PoolClaim]:
        """What a request claims, in turn: first what it may have to wait for, and nothing after that waits."""
        return [
            SessionClaim(self, account),
            TokenClaim(self, account),
            CountClaim(self.memory, account.hints.memory, MEMORY),
            CountClaim(self.tools, account.hints.tools, TOOLS),
        ]

    def began(self, account: Account, run: Run) -> None:
        """The run, or a sub-agent of it, is open."""
        run.account = account
        account.runs[run] = None
        if account.run is None:
            account.run = run.id
            self.tell(account, ADMITTED, None)
            self._arm(account)

    def spend(self, run: Run, body: Mapping[str, Any]) -> None:
        """A dependency's answer says what the call has used; one that does not says nothing."""
        account = run.account
        usage = body.get("usage")
        tokens = usage.get("tokens") if isinstance(usage, Mapping) else None
        if account is None or type(tokens) is not int or not 0 < tokens <= MOST_USED:
            return
        account.used += tokens
        if run.id == account.run:
            account.own += tokens
        self.charge(account, tokens)

    def delegate(self, account: Account, price: int) -> Denied | None:
        """Claims the price of a sub-agent of its tenant's bucket, beside what the run has claimed (None); or says why
        not."""
        bucket, claim = account.bucket, account.claim
        if bucket is None or claim is None or not price:
            return None
        short = bucket.widen(claim, price, self.now_ns())
        if short is None:
            account.delegated += price
            return None
        return Denied(BUDGET_EXHAUSTED if short.debt else THROTTLED, TOKENS, short.wait_ns)

    def not_delegated(self, account: Account, price: int) -> None:
        """The sub-agent was refused for another reason."""
        if account.bucket is not None and account.claim is not None and price:
            account.bucket.narrow(account.claim, price)
            account.delegated -= price

    def charge(self, account: Account, cost: int) -> None:
        if account.bucket is not None and account.claim is not None:
            account.bucket.spend(account.claim, cost)

    def seen(self, run: Run, now_ns: int) -> None:
        """The run asked for something, or something of it ended: what is over is settled."""
        account = run.account
        if account is None:
            return
        account.touched_ns = now_ns
        if run.state == OPEN or run.active or run not in account.runs:
            return
        del account.runs[run]
        account.learns = account.learns and run.outcome == "done"
        if not account.runs:
            self.settle(account, run.outcome)

    def settle(self, account: Account, how: str | None) -> None:
        """Once an account. how: the outcome of the run, for the record."""
        if account.settled:
            return
        account.settled = True
        self.open.pop(account, None)
        if account.timer is not None:
            account.timer.cancel()
        assert account.context is not None
        account.context.release()
        if account.learns and account.used:
            self.learn(account)
        self.tell(account, SETTLED, how)

    def learn(self, account: Account) -> None:
        self.forecasts.learn(account.tenant, account.request_class, account.basis, account.forecast_of)

    def abandon(self, account: Account) -> None:
        """Nothing began after all."""
        account.learns = False
        self.settle(account, "not_opened")

    def _arm(self, account: Account, not_before_ns: int = 0) -> None:
        due_ns = account.deadline_ns
        if self.config.lease_ns:
            due_ns = min(due_ns, account.touched_ns + self.config.lease_ns)
        left_s = max(0, max(due_ns, not_before_ns) - self.now_ns()) / 1e9
        account.timer = get_running_loop().call_later(left_s, self.look_after, account)

    def look_after(self, account: Account) -> None:
        """Whether its caller is still there: while anything of it is under way, it is taken to be."""
        now_ns, lease_ns = self.now_ns(), self.config.lease_ns
        root = next((run for run in account.runs if run.id == account.run), None)
        if account.settled or root is None:
            return
        if any(run.active for run in account.runs):
            account.touched_ns = now_ns
            self._arm(account, now_ns + LOOK_AGAIN_NS)
        elif now_ns >= account.deadline_ns:
            self.vanished(root, DEADLINE)
        elif lease_ns and now_ns >= account.touched_ns + lease_ns:
            self.vanished(root, LEASE)
        else:  # the loop rounds: never early
            self._arm(account)

    def tell(self, account: Account, outcome: str, reason: str | None, wait_ns: int | None = None) -> None:
        """One row of the record, with the figures just after the decision."""
        now_ns, bucket = self.now_ns(), account.bucket
        self.record(
            CostDecision(
                t_ns=now_ns,
                outcome=outcome,
                reason=reason,
                run=account.run,
                tenant=account.tenant,
                request_class=account.request_class,
                size_class=account.size_class,
                forecast=account.forecast,
                actual=account.used if outcome == SETTLED else None,
                balance=round(bucket.balance(now_ns), 3) if bucket else None,
                reserved=bucket.reserved if bucket else None,
                sessions=self.sessions.taken,
                memory=self.memory.in_use,
                tools=self.tools.in_use,
                queue=self.sessions.queued,
                queue_age_ns=self.sessions.oldest_ns(now_ns),
                queue_wait_ns=account.wait_ns,
                retry_after_ns=wait_ns,
                request=account.request,
            )
        )

    def leftovers(self) -> dict[str, int]:
        """What is still held: zero, every one, when nothing is on its way."""
        return {
            "reserved_cost": sum(bucket.reserved for bucket in self.buckets.values() if bucket),
            "sessions": self.sessions.taken,
            "waiting_runs": self.sessions.queued,
            "memory": self.memory.in_use,
            "tools": self.tools.in_use,
            "accounts": len(self.open),
        }


class SessionClaim:
    """A session of the account's size class: at once, or after its turn in the queue, or never."""

    def __init__(self, costs: CostControl, account: Account) -> None:
        self.costs = costs
        self.account = account

    async def take(self) -> Denied | None:
        costs, account = self.costs, self.account
        size_class, now_ns = account.size_class, costs.now_ns()
        if costs.sessions.take_at_once(size_class):
            account.wait_ns = 0
            return None
        waiter = costs.sessions.join(size_class, now_ns)
        if waiter is None:
            return Denied(THROTTLED, SESSIONS, RETRY_POOL_NS)
        costs.tell(account, QUEUED, SESSIONS)
        try:
            told = await signal_of(waiter.future, account.deadline_ns, costs.now_ns, TOO_LATE)
        except BaseException:
            costs.sessions.leave(waiter)
            raise
        account.wait_ns = costs.now_ns() - now_ns
        if told == GRANTED:
            return None
        costs.sessions.leave(waiter)
        return Denied(EXPIRED, DEADLINE)

    def give_back(self) -> None:
        self.costs.sessions.give_back(self.account.size_class)


class TokenClaim:
    """The forecast, of the bucket of the account's tenant. Giving it back settles it at what was used."""

    def __init__(self, costs: CostControl, account: Account) -> None:
        self.costs = costs
        self.account = account

    async def take(self) -> Denied | None:
        account = self.account
        if account.bucket is None:
            return None
        claim = account.bucket.reserve(account.forecast, self.costs.now_ns())
        if isinstance(claim, Short):
            return Denied(BUDGET_EXHAUSTED if claim.debt else THROTTLED, TOKENS, claim.wait_ns)
        account.claim = claim
        return None

    def give_back(self) -> None:
        account = self.account
        if account.bucket is not None and account.claim is not None:
            account.bucket.settle(account.claim, self.costs.now_ns())


class CountClaim:
    """So many of a pool."""

    def __init__(self, pool: Pool, count: int, name: str) -> None:
        self.pool = pool
        self.count = count
        self.name = name

    async def take(self) -> Denied | None:
        return None if self.pool.take(self.count) else Denied(THROTTLED, self.name, RETRY_POOL_NS)

    def give_back(self) -> None:
        self.pool.give_back(self.count)
