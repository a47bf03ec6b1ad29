"""A recorded log as columns: who called when, what became of it then, and how long a worker would have been busy.

A million calls are a few dozen megabytes here, so that several policies can be tried on one reading. Times are put on
the trial's clock (ns since the window began, silences squeezed). A call's service time is, in this order:

    from its cost, if that was asked for     base + per unit * cost
    from the log                             its duration, less its queue time where the log has that
    the mean of the log's                    of its tenant, else of all: for calls that were refused then, whose
                                             duration is that of a refusal, and for those without one
    as given

What was never recorded cannot be tried: calls that a refusal provoked are in the log, those that it prevented are not.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.recorded.account import Account
from harness.recorded.errors import RecordedError
from harness.recorded.lines import Source
from harness.recorded.prepare import MAX_IDENTITIES, Bound, instant_of, must_be_usable
from harness.recorded.reader import Reading, read
from harness.recorded.record import Record
from harness.recorded.transform import rest_name

Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

MOST_CALLS = 10_000_000
"""About a gigabyte with everything that is made of them."""
MOST_SERVICE_NS = 10**15
"""Eleven days: what is longer is a wrong unit, and would only make sums overflow."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How long a call takes. given_ns: where nothing else says. from_log: take the log's durations.
    per_unit_ns: with a recorded cost, base_ns and so much for each unit of it."""

    given_ns: int
    from_log: bool = True
    per_unit_ns: int | None = None
    base_ns: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """One place a call, in order of time. refused, failed: what the log says of it (failed: a 5xx that is no refusal).

    identities: how many callers are behind each tenant: many behind the rest, shown as one, played as many.
    callers, caller: their names, and the place of each call's, where they are not the tenants. measured: calls whose
    service time is the log's own. with_status: calls of which the log says how they ended.
    """

    tenants: tuple[str, ...]
    identities: tuple[int, ...]
    tenant: Small
    due_ns: Ints
    service_ns: Ints
    refused: Bools
    failed: Bools
    cost: npt.NDArray[np.float64]
    begin_ns: int
    duration_ns: int
    measured: int
    with_status: int
    callers: tuple[str, ...] = ()
    caller: Small | None = None

    @property
    def each(self) -> tuple[tuple[str, ...], Small]:
        """(names, place of each call's): whom a policy tells apart."""
        return (self.tenants, self.tenant) if self.caller is None else (self.callers, self.caller)

    def __len__(self) -> int:
        return len(self.due_ns)

    def counts(self, mask: Bools | None = None) -> Ints:
        """Calls of each tenant, or those of the mask."""
        tenant = self.tenant if mask is None else self.tenant[mask]
        return np.bincount(tenant, minlength=len(self.tenants)).astype(np.int64)


def gather(
    sources: Sequence[Source],
    how: Reading,
    account: Account,
    serving: Serving,
    begin: Bound | None = None,
    end: Bound | None = None,
    squeeze_ns: int | None = None,
    top: int | None = None,
    keep: Iterable[str] = (),
    max_broken: float = 0.05,
    refusals: frozenset[int] = frozenset((429, 503)),
) -> Traffic:
    """Reads everything. All but the `top` busiest tenants (and those to keep) are shown as one. Raises
    RecordedError."""
    columns = _Columns()
    columns.fill(read(sources, how, account))
    must_be_usable(sources, how, account, max_broken)
    read_ns: Ints = np.frombuffer(columns.t_ns, dtype=np.int64)
    order: Ints = np.argsort(read_ns, kind="stable")
    when = read_ns[order]
    first_ns = int(when[0])
    from_ns, to_ns = instant_of(begin, first_ns), instant_of(end, first_ns)
    if from_ns is not None and to_ns is not None and from_ns >= to_ns:
        raise RecordedError("--to", "the window ends before it begins", "give a --to after --from")
    inside = np.ones(len(when), dtype=np.bool_)
    if from_ns is not None:
        inside &= when >= from_ns
    if to_ns is not None:
        inside &= when < to_ns
    account.kept, account.outside = int(inside.sum()), int((~inside).sum())
    if not account.kept:
        raise RecordedError("--from/--to", f"no call lies in the window ({account.read:,} were read)", "widen it")
    order, when = order[inside], when[inside]
    begin_ns = first_ns if from_ns is None else from_ns
    due = _squeezed(when - begin_ns, squeeze_ns, account)
    status: Ints = np.frombuffer(columns.status, dtype=np.int16)[order].astype(np.int64)
    refused = np.isin(status, sorted(refusals))
    names = list(columns.places)
    caller: Small = np.frombuffer(columns.tenant, dtype=np.int32)[order]
    tenants, identities, tenant = _pooled(caller, names, top, keep, account)
    service, measured = _service_ns(columns, order, tenant, refused, len(tenants), serving)
    return Traffic(
        tenants, identities, tenant, due, service, refused, (status >= 500) & ~refused, columns.costs(order),
        begin_ns, int(due[-1]) + 1, measured, int((status > 0).sum()),
        *((tuple(names), caller) if max(identities) > 1 else ()),
    )  # fmt: skip


class _Columns:
    def __init__(self) -> None:
        self.t_ns, self.tenant, self.status = array("q"), array("i"), array("h")
        self.cost, self.took_ns = array("d"), array("q")
        self.places: dict[str, int] = {}

    def costs(self, order: Ints) -> npt.NDArray[np.float64]:
        return np.asarray(np.frombuffer(self.cost, dtype=np.float64)[order])

    def fill(self, records: Iterable[Record]) -> None:
        places = self.places
        t_ns, tenant, status = self.t_ns.append, self.tenant.append, self.status.append
        cost, took = self.cost.append, self.took_ns.append
        for record in records:
            name = record[2]
            place = places.get(name)
            if place is None:
                place = places[name] = len(places)
                if place >= MAX_IDENTITIES:
                    raise RecordedError("--tenant", f"more than {MAX_IDENTITIES:,} tenants", "take another field")
            t_ns(record[0])
            tenant(place)
            status(record[3])
            cost(record[4])
            took(max(1, record[8] - max(0, record[5])) if record[8] >= 0 else -1)
            if len(self.t_ns) > MOST_CALLS:
                raise RecordedError("", f"more than {MOST_CALLS:,} calls", "take a part of them with --from and --to")


def _squeezed(due: Ints, squeeze_ns: int | None, account: Account) -> Ints:
    if squeeze_ns is None:
        return due
    gaps = np.diff(due, prepend=0)
    cut = np.maximum(gaps - squeeze_ns, 0)
    account.squeezed_gaps, account.squeezed_ns = int((cut > 0).sum()), int(cut.sum())
    return np.asarray(due - np.cumsum(cut))


def _pooled(
    tenant: Small, names: list[str], top: int | None, keep: Iterable[str], account: Account
) -> tuple[tuple[str, ...], tuple[int, ...], Small]:
    """(names, callers behind each, place of each call's): busiest first, the others as one last tenant."""
    calls = np.bincount(tenant, minlength=len(names))
    there = [place for place in range(len(names)) if calls[place]]
    ranked = sorted(there, key=lambda place: (-calls[place], names[place]))
    wanted = set(keep)
    own = [place for rank, place in enumerate(ranked) if top is None or rank < top or names[place] in wanted]
    own = ranked if len(own) >= len(ranked) - 1 else own
    new_place = np.full(len(names), len(own), dtype=np.int32)
    new_place[own] = np.arange(len(own), dtype=np.int32)
    shown = [names[place] for place in own]
    identities = [1] * len(own)
    if len(own) < len(ranked):
        shown.append(rest_name(shown))
        identities.append(len(ranked) - len(own))
        account.folded = int(calls.sum() - calls[own].sum())
    return tuple(shown), tuple(identities), new_place[tenant]


def _service_ns(
    columns: _Columns, order: Ints, tenant: Small, refused: Bools, tenants: int, serving: Serving
) -> tuple[Ints, int]:
    """(service time of each call, how many of them were measured)."""
    if serving.per_unit_ns is not None:
        cost = columns.costs(order)
        by_cost = np.minimum(serving.base_ns + np.maximum(cost, 0.0) * serving.per_unit_ns, float(MOST_SERVICE_NS))
        return np.maximum(by_cost.astype(np.int64), 1), int((cost >= 0).sum())
    took: Ints = np.minimum(np.frombuffer(columns.took_ns, dtype=np.int64)[order], MOST_SERVICE_NS)
    known = (took >= 0) & ~refused
    if not serving.from_log or not known.any():
        return np.full(len(order), min(max(1, serving.given_ns), MOST_SERVICE_NS), dtype=np.int64), 0
    counts = np.bincount(tenant[known], minlength=tenants)
    sums = np.bincount(tenant[known], weights=took[known].astype(np.float64), minlength=tenants)
    overall = float(took[known].mean())
    mean = np.array([total / n if n else overall for total, n in zip(sums.tolist(), counts.tolist(), strict=True)])
    service: Ints = np.where(known, took, mean[tenant].astype(np.int64))
    return np.maximum(service, 1), int(known.sum())
