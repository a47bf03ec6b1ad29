"""Who may have the next slot of a bulkhead: reserves of traffic classes, shares of tenants, and what is lent of them.

Of `limit` slots, R_k are kept for class k, and of the rest S_t for tenant t. A call of class k uses its class's reserve
first ("own"), then the common slots. With own_k and common_t in use, a call of class c and tenant s starts

    own     if own_c < R_c  and  free > sum over k != c of (F_k - own_k)+                 nobody's floor is touched
    common  if free > sum over k != c of (R_k - own_k)+  +  sum over t != s of (S_t - common_t)+
    lent    the same with F_k in place of R_k for each higher class k that lends

A class lends while it has shown no demand for `quiet_ns`; as soon as one of its calls asks, it lends nothing more, and
what is out comes back as those calls end (a running call is never killed). After its latency has risen over
`slow_ns` it lends nothing for four times as long. Floors F_k and shares S_t are never lent. The ceiling over all
bulkheads is such an object, too. Never lets in_use exceed the limit to honour a reserve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stub_service.capacity.config import TRAFFIC_CLASSES, Reserve, TenantShare

NO, OWN, COMMON, LENT = range(4)
RANK = {name: rank for rank, name in enumerate(TRAFFIC_CLASSES)}
"""0 goes first."""

QUIET_CALLS = 5
"""A class that has not asked for so many expected service times lends its reserve."""
SLOW_CALLS = 2.0
"""Its latency has risen when a call took more than so many expected service times, waiting included."""
HOLD_AFTER_SLOW = 4

OnLend = Callable[[int, str, int, str | None], None]
"""(now_ns, `lent` or `taken_back`, rank of the class whose reserve it is, reason)."""


class Slots:
    """limit may be changed at any time; calls that run over a lowered limit run on."""

    __slots__ = (
        "_all_reserved",
        "_lendable",
        "back_until_ns",
        "common",
        "floors",
        "in_use",
        "lent",
        "limit",
        "on_lend",
        "own",
        "quiet_ns",
        "reserves",
        "shares",
        "shares_unmet",
        "slow_ns",
    )

    def __init__(
        self,
        limit: int,
        reserves: Sequence[Reserve],
        shares: Sequence[TenantShare],
        expected_ns: int,
        on_lend: OnLend,
    ) -> None:
        self.limit = limit
        self.in_use = 0
        self.reserves = [0] * len(TRAFFIC_CLASSES)
        self.floors = [0] * len(TRAFFIC_CLASSES)
        for reserve in reserves:
            self.reserves[RANK[reserve.traffic_class]] = reserve.slots
            self.floors[RANK[reserve.traffic_class]] = reserve.floor
        self._all_reserved = sum(self.reserves)
        self._lendable = [rank for rank, slots in enumerate(self.reserves) if slots]
        self.own = [0] * len(TRAFFIC_CLASSES)
        self.shares = {share.tenant: share.slots for share in shares if share.slots}
        self.shares_unmet = sum(self.shares.values())
        self.common: dict[str, int] = dict.fromkeys(self.shares, 0)
        self.quiet_ns = QUIET_CALLS * expected_ns
        self.slow_ns = int(SLOW_CALLS * expected_ns)
        self.back_until_ns = [-1] * len(TRAFFIC_CLASSES)
        self.lent = [False] * len(TRAFFIC_CLASSES)
        self.on_lend = on_lend

    def demand(self, rank: int, now_ns: int) -> None:
        """A call of this class asks for a slot: its reserve is lent no more."""
        if self.reserves[rank]:
            self._take_back(rank, now_ns, now_ns + self.quiet_ns, "demand")

    def observed(self, rank: int, latency_ns: int, now_ns: int) -> None:
        """A call of this class ended, after so long with its wait."""
        if latency_ns > self.slow_ns and self.reserves[rank]:
            self._take_back(rank, now_ns, now_ns + HOLD_AFTER_SLOW * self.quiet_ns, "latency")

    def _take_back(self, rank: int, now_ns: int, until_ns: int, reason: str) -> None:
        self.back_until_ns[rank] = max(self.back_until_ns[rank], until_ns)
        if self.lent[rank]:
            self.lent[rank] = False
            self.on_lend(now_ns, "taken_back", rank, reason)

    def may_start(self, rank: int, tenant: str, now_ns: int) -> int:
        """NO, or from what the slot would come: OWN, COMMON, LENT."""
        free = self.limit - self.in_use
        if free <= 0:
            return NO
        if self.own[rank] < self.reserves[rank]:
            return OWN if free > self._floors_unmet(rank) else NO
        kept = self.shares_unmet
        if kept and (share := self.shares.get(tenant)):
            kept -= max(0, share - self.common[tenant])
        if free > kept + self._all_reserved:  # most often: no need to count who is owed what
            return COMMON
        whole, floored = self.kept_for_others(rank, now_ns)
        if free > kept + whole:
            return COMMON
        return LENT if free > kept + floored else NO

    def kept_for_others(self, rank: int, now_ns: int) -> tuple[int, int]:
        """Free slots that a call of this class must leave: with nothing lent, and with what may be lent to it."""
        whole = floored = 0
        for other in self._lendable:
            missing = self.reserves[other] - self.own[other]
            if other == rank or missing <= 0:
                continue
            whole += missing
            floored += max(0, self.floors[other] - self.own[other]) if self.lends(other, rank, now_ns) else missing
        return whole, floored

    def lends(self, lender: int, rank: int, now_ns: int) -> bool:
        """Whether that class lends to a call of class `rank` now: only downwards, and only while it is quiet."""
        return lender < rank and now_ns >= self.back_until_ns[lender]

    def _floors_unmet(self, rank: int) -> int:
        return sum(max(0, self.floors[k] - self.own[k]) for k in self._lendable if k != rank)

    def start(self, how: int, rank: int, tenant: str, now_ns: int) -> None:
        """Takes the slot; how: what `may_start` has just said."""
        self.in_use += 1
        if how == OWN:
            self.own[rank] += 1
            return
        if tenant in self.shares:
            self.common[tenant] += 1
            if self.common[tenant] <= self.shares[tenant]:
                self.shares_unmet -= 1
        if how == LENT:
            self._note_lent(rank, now_ns)

    def _note_lent(self, rank: int, now_ns: int) -> None:
        for other in self._lendable:
            if not self.lent[other] and self.own[other] < self.reserves[other] and self.lends(other, rank, now_ns):
                self.lent[other] = True
                self.on_lend(now_ns, "lent", other, None)

    def end(self, how: int, rank: int, tenant: str) -> None:
        """Gives the slot back; how, rank, tenant: as it was started."""
        self.in_use -= 1
        if how == OWN:
            self.own[rank] -= 1
        elif tenant in self.shares:
            if self.common[tenant] <= self.shares[tenant]:
                self.shares_unmet += 1
            self.common[tenant] -= 1

    def usable(self, rank: int, tenant: str, now_ns: int) -> int:
        """How many slots calls of this class and tenant could have if they had all that they may (at least 1)."""
        kept = self.shares_unmet - max(0, self.shares.get(tenant, 0) - self.common.get(tenant, 0))
        return max(1, self.limit - kept - self.kept_for_others(rank, now_ns)[1])

    def ever(self, rank: int, tenant: str) -> bool:
        """Whether such a call could start if nothing ran and all was lent that may be."""
        floors = sum(self.floors[k] for k in self._lendable if k != rank)
        if self.reserves[rank]:
            return self.limit > floors
        shares = sum(slots for of, slots in self.shares.items() if of != tenant)
        kept = sum(self.floors[k] if k < rank else self.reserves[k] for k in self._lendable)
        return self.limit > shares + kept

    def next_lending_ns(self, now_ns: int) -> int | None:
        """When a class that holds its reserve back may lend it again, if nothing else happens."""
        return min((at for k in self._lendable if (at := self.back_until_ns[k]) > now_ns), default=None)
