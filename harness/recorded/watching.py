"""A growing access log, tenant by tenant: offered, served, refused, inferred re-plan share, over a sliding window.

For the weeks after a rollout: the same numbers that a trial has, from what the service logs anyway. A log does not say
why a call was made, so a re-plan is a call within W after a failure of the same identity, and the share is labelled
inferred: for a busy identity it is an upper bound (harness/recorded/learn.py).

    share over the last `window`    = calls after a failure / calls
    rise                            = share - share over the `window`s before it, at most `baseline` of them

Time is the log's: an instant is what the newest line says, so that a log of last week gives what it gave then. What may
be told of is bounded: MOST_TENANTS are kept one by one (the longest silent goes first, into `(others)`), each with one
count a slot of the window. Never reads a clock or a file.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.profile.units import NS_PER_S
from harness.recorded.record import Record

MOST_TENANTS = 10_000
OTHERS = "(others)"
SLOTS = 12
"""Parts of a window: what is older than a window leaves it in twelfths."""

LEVEL, RISE = "level", "rise"


@dataclass(frozen=True, slots=True)
class Rules:
    """share: alert above it; None: never. rise: alert when the share has risen by more than this; None: never.

    least_calls: with fewer in the window, a tenant alerts nobody. within_ns: W. baseline: windows before this one.
    """

    window_ns: int = 300 * NS_PER_S
    within_ns: int = 5 * NS_PER_S
    share: float | None = 0.2
    rise: float | None = None
    least_calls: int = 50
    baseline: int = 6
    refusals: frozenset[int] = frozenset((429, 503))


@dataclass(slots=True)
class Counts:
    """Calls of one slot, or of many. offered = served + refused + failed + other (1xx, 3xx, 4xx, unknown)."""

    offered: int = 0
    served: int = 0
    refused: int = 0
    failed: int = 0
    after_failure: int = 0
    took_ns: int = 0
    timed: int = 0

    def add(self, other: Counts) -> None:
        self.offered += other.offered
        self.served += other.served
        self.refused += other.refused
        self.failed += other.failed
        self.after_failure += other.after_failure
        self.took_ns += other.took_ns
        self.timed += other.timed

    def take(self, other: Counts) -> None:
        """The inverse of `add`."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) - getattr(other, name))

    @property
    def share(self) -> float | None:
        """The inferred re-plan share; None without calls."""
        return self.after_failure / self.offered if self.offered else None


@dataclass(slots=True)
class Tenant:
    """slots: (number of the slot, its counts), oldest first. total: since the watch began."""

    name: str
    slots: deque[tuple[int, Counts]] = field(default_factory=deque)
    total: Counts = field(default_factory=Counts)
    last_failure_ns: int = -1
    last_ns: int = -1
    alerting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Row:
    """One tenant now. window: counts of the last window. before: share over the windows before; None: too few calls."""

    tenant: str
    window: Counts
    before: float | None
    total: Counts
    alerting: frozenset[str]


@dataclass(frozen=True, slots=True)
class Alert:
    """began: it has just been passed (else: it is over). value and bound: shares. calls: in the window."""

    tenant: str
    kind: str
    began: bool
    value: float
    bound: float
    calls: int
    at_ns: int

    def __str__(self) -> str:
        what = "inferred re-plan share" if self.kind == LEVEL else "rise of the inferred re-plan share"
        state = "over" if self.began else "no longer over"
        points = "%" if self.kind == LEVEL else "points"
        measured, calls = f"{self.value * 100:.1f} {points}", f"({self.calls:,} calls)"
        return f"{self.tenant}: {what} {measured}, {state} {self.bound * 100:g} {calls}"


class Watch:
    """`add` each record as it is read, `alerts` whenever wanted, `rows` to show it."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.now_ns = -1
        self.late = 0
        self._slot_ns = max(1, rules.window_ns // SLOTS)
        self._tenants: OrderedDict[str, Tenant] = OrderedDict()
        self._others = Tenant(OTHERS)
        self.total = Counts()

    def add_all(self, records: Iterable[Record]) -> int:
        """How many there were."""
        added = 0
        for record in records:
            self.add(record)
            added += 1
        return added

    def add(self, record: Record) -> None:
        """Records may be a little out of order: each counts in its own slot; one older than all of them is `late`."""
        slot = record.t_ns // self._slot_ns
        oldest = self.now_ns // self._slot_ns - SLOTS * (1 + self.rules.baseline)
        if self.now_ns >= 0 and slot <= oldest:
            self.late += 1
            return
        self.now_ns = max(self.now_ns, record.t_ns)
        tenant = self._tenant(record.tenant)
        one = self._counted(tenant, record)
        for counts in (self._slot(tenant, slot), tenant.total, self.total):
            counts.add(one)
        self._forget(tenant)

    def _tenant(self, name: str) -> Tenant:
        tenant = self._tenants.get(name)
        if tenant is not None:
            self._tenants.move_to_end(name)
            return tenant
        if len(self._tenants) >= MOST_TENANTS:
            _, gone = self._tenants.popitem(last=False)
            self._others.total.add(gone.total)
            for slot, counts in gone.slots:
                self._slot(self._others, slot).add(counts)
        tenant = self._tenants[name] = Tenant(name)
        return tenant

    def _counted(self, tenant: Tenant, record: Record) -> Counts:
        refused = record.status in self.rules.refusals
        failed = record.status >= 500 and not refused
        since = record.t_ns - tenant.last_failure_ns
        follows = tenant.last_failure_ns >= 0 and 0 <= since <= self.rules.within_ns
        if refused or failed:
            tenant.last_failure_ns = max(tenant.last_failure_ns, record.t_ns)
        tenant.last_ns = max(tenant.last_ns, record.t_ns)
        timed = record.duration_ns >= 0
        served = 200 <= record.status < 400 and not refused
        return Counts(1, served, refused, failed, follows, record.duration_ns if timed else 0, timed)

    @staticmethod
    def _slot(tenant: Tenant, slot: int) -> Counts:
        slots = tenant.slots
        if not slots or slots[-1][0] < slot:
            slots.append((slot, Counts()))
            return slots[-1][1]
        for number, counts in reversed(slots):
            if number == slot:
                return counts
            if number < slot:
                break
        place = next(i for i, (number, _) in enumerate(slots) if number > slot)
        slots.insert(place, (slot, Counts()))
        return slots[place][1]

    def _forget(self, tenant: Tenant) -> None:
        oldest = self.now_ns // self._slot_ns - SLOTS * (1 + self.rules.baseline)
        while tenant.slots and tenant.slots[0][0] <= oldest:
            tenant.slots.popleft()

    def advance(self, now_ns: int) -> None:
        """Nothing has been logged until this instant: the window moves on without lines."""
        self.now_ns = max(self.now_ns, now_ns) if self.now_ns >= 0 else self.now_ns

    def rows(self) -> list[Row]:
        """Busiest in the window first; those with nothing in it are left out."""
        rows = [row for row in [*self.all_rows(), self._row(self._others)] if row.window.offered]
        return sorted(rows, key=lambda row: (-row.window.offered, row.tenant))

    def all_rows(self) -> list[Row]:
        """Every tenant that is kept, in any order."""
        return [self._row(tenant) for tenant in self._tenants.values()]

    def _row(self, tenant: Tenant) -> Row:
        self._forget(tenant)
        first = self.now_ns // self._slot_ns - SLOTS
        window, before = Counts(), Counts()
        for slot, counts in tenant.slots:
            (window if slot > first else before).add(counts)
        enough = before.offered >= self.rules.least_calls
        return Row(tenant.name, window, before.share if enough else None, tenant.total, tenant.alerting)

    def alerts(self) -> list[Alert]:
        """What has begun or ended since this was asked last, worst first."""
        found: list[Alert] = []
        for tenant in self._tenants.values():
            row = self._row(tenant)
            over = dict(self._over(row))
            for kind in sorted(set(over) ^ tenant.alerting):
                value, bound = over.get(kind) or self._value(row, kind)
                found.append(Alert(row.tenant, kind, kind in over, value, bound, row.window.offered, self.now_ns))
            tenant.alerting = frozenset(over)
        return sorted(found, key=lambda alert: (not alert.began, -alert.value, alert.tenant))

    def alerting(self) -> list[str]:
        """Tenants over a threshold when `alerts` was asked last."""
        return [tenant.name for tenant in self._tenants.values() if tenant.alerting]

    def _over(self, row: Row) -> Iterable[tuple[str, tuple[float, float]]]:
        if row.window.offered < self.rules.least_calls:
            return
        for kind in (LEVEL, RISE):
            value, bound = self._value(row, kind)
            if value > bound:
                yield kind, (value, bound)

    def _value(self, row: Row, kind: str) -> tuple[float, float]:
        """(measured, bound) of a kind; a bound of 1 is never passed."""
        share = row.window.share or 0.0
        if kind == LEVEL:
            return share, 1.0 if self.rules.share is None else self.rules.share
        if self.rules.rise is None or row.before is None:
            return 0.0, 1.0
        return share - row.before, self.rules.rise
