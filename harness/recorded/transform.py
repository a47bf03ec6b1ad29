"""What may be done to recorded calls on their way into a trial: pure functions over records in order of time.

Always in this order, so that a set of options means one thing:

    window -> squeeze -> speed -> top (fold) -> amplify -> runaway -> anonymise

    due = (squeezed(t) - squeezed(begin of the window)) / speed            [ns since the trial began]

Every function but `amplify` keeps the number of calls; `amplify` multiplies a tenant's exactly.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from random import Random

from harness.recorded.account import Account
from harness.recorded.record import NO_TENANT, Record

REST = "rest"
"""The tenant into which all but the top N are folded."""


def window(records: Iterable[Record], from_ns: int | None, to_ns: int | None, account: Account) -> Iterator[Record]:
    """Those in [from_ns, to_ns), instants of the log; counts the others."""
    for record in records:
        if (from_ns is not None and record.t_ns < from_ns) or (to_ns is not None and record.t_ns >= to_ns):
            account.outside += 1
        else:
            account.kept += 1
            yield record


class TrialClock:
    """Log time to trial time. `at` must be asked in order: it remembers the last instant and what it has cut so far."""

    def __init__(self, begin_ns: int, squeeze_ns: int | None, speed: Fraction) -> None:
        self._last_ns = begin_ns
        self._cut_ns = begin_ns
        self._squeeze_ns = squeeze_ns
        self._num, self._den = speed.denominator, speed.numerator
        self.squeezed_gaps = 0
        self.squeezed_ns = 0

    def at(self, t_ns: int) -> int:
        """Nanoseconds since the trial began, rounded down."""
        gap_ns = t_ns - self._last_ns
        limit = self._squeeze_ns
        if limit is not None and gap_ns > limit:
            self._cut_ns += gap_ns - limit
            self.squeezed_gaps += 1
            self.squeezed_ns += gap_ns - limit
        self._last_ns = t_ns
        return (t_ns - self._cut_ns) * self._num // self._den


def on_trial_clock(records: Iterable[Record], clock: TrialClock) -> Iterator[Record]:
    """Squeezes long silences and changes the speed: t_ns becomes the due instant."""
    at = clock.at
    for record in records:
        yield Record(at(record.t_ns), *record[1:])


def busiest(counts: Mapping[str, int], top: int | None, keep: Iterable[str] = ()) -> list[str]:
    """The `top` tenants with most calls, and those to keep anyway, busiest first; ties by name."""
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    chosen = set(ranked if top is None else ranked[:top]) | (set(keep) & set(counts))
    return [name for name in ranked if name in chosen]


def rest_name(kept: Iterable[str]) -> str:
    """`rest`, or another name if one of the tenants is called that."""
    taken, name = set(kept), REST
    while name in taken:
        name += "_"
    return name


def fold(records: Iterable[Record], kept: Iterable[str], rest: str, account: Account) -> Iterator[Record]:
    """Calls of all tenants but `kept` become calls of the tenant `rest`."""
    names = frozenset(kept)
    for record in records:
        if record.tenant in names:
            yield record
        else:
            account.folded += 1
            yield record._replace(tenant=rest)


def amplify(
    records: Iterable[Record], factors: Mapping[str, int], spread_ns: int, end_ns: int, rng: Random, account: Account
) -> Iterator[Record]:
    """Each call of a tenant becomes `factors[tenant]` calls: itself, and copies that are due within `spread_ns` after
    it (before `end_ns`), so that they do not all hit the same instant. Holds the copies of one spread at a time."""
    waiting: list[tuple[int, int, Record]] = []
    made = 0
    for record in records:
        while waiting and waiting[0][0] <= record.t_ns:
            yield heapq.heappop(waiting)[2]
        yield record
        room_ns = max(1, min(spread_ns, end_ns - record.t_ns))
        for _ in range(factors.get(record.tenant, 1) - 1):
            made += 1
            account.amplified += 1
            due = record.t_ns + int(rng.random() * room_ns)
            heapq.heappush(waiting, (due, made, Record(due, *record[1:])))
    while waiting:
        yield heapq.heappop(waiting)[2]


class Anonymiser:
    """Names become keyed hashes (HMAC-SHA-256, cut to 48 bits): the same for the same key, and no way back without it.

    A plain hash would not do: all of IPv4 is hashed in minutes. Paths keep their depth only.
    """

    def __init__(self, key: bytes, keep: Iterable[str] = (NO_TENANT,)) -> None:
        self._key = key
        self._keep = frozenset(keep)
        self._known: dict[str, str] = {}

    def name(self, tenant: str) -> str:
        if tenant in self._keep:
            return tenant
        hidden = self._known.get(tenant)
        if hidden is None:
            digest = hmac.new(self._key, tenant.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
            hidden = self._known[tenant] = f"t-{digest[:12]}"
        return hidden

    @staticmethod
    def path(path: str | None) -> str | None:
        return None if path is None else "/" + "/".join("_" for part in path.split("?", 1)[0].split("/") if part)
