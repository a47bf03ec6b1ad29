"""From open logs to a folder of schedule files, with an account of every line: the whole way, in its fixed order.

Two passes, because the busiest tenants are known only at the end: the first reads, sorts, cuts the window and puts the
calls on the trial's clock; the second folds, amplifies, lays the runaway over its tenant and writes.
"""

from __future__ import annotations

import difflib
import heapq
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path
from random import Random

from harness.profile.units import show_duration
from harness.recorded import transform
from harness.recorded.account import Account
from harness.recorded.errors import RecordedError, printable
from harness.recorded.lines import Source
from harness.recorded.reader import Reading, read
from harness.recorded.record import NO_TENANT, Record
from harness.recorded.schedule import Writer
from harness.recorded.sorting import CHUNK, Spool, in_order
from harness.workload.callers import Arrival
from harness.workload.pacers import even

NS_PER_S = 1_000_000_000
MAX_IDENTITIES = 1_000_000
_GRAIN_NS = 1_000_000
"""A trial lasts whole milliseconds, so that its duration reads well."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of the window: an instant since 1970, or (relative) nanoseconds after the first call of the log."""

    ns: int
    relative: bool


@dataclass(frozen=True, slots=True)
class Runaway:
    """Further calls of one tenant, evenly spaced in [from_ns, to_ns) of the trial; None: the middle third.

    cost: of each call; None: the mean of what that tenant's calls cost.
    """

    tenant: str
    rate_per_s: Fraction
    from_ns: int | None = None
    to_ns: int | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with what was read. See transform.py for the order."""

    begin: Bound | None = None
    end: Bound | None = None
    squeeze_ns: int | None = None
    speed: Fraction = Fraction(1)
    top: int | None = None
    amplify: Mapping[str, int] = field(default_factory=dict)
    runaway: Runaway | None = None
    anonymise_key: bytes | None = None
    seed: int = 1


@dataclass(frozen=True, slots=True)
class PlannedTenant:
    """recorded: calls of the log. added: by amplification and the runaway. refused: recorded calls refused then."""

    name: str
    recorded: int
    added: int
    refused: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The tenant at place i has the schedule file of that number. begin_ns: when the trial begins, in the log's time.

    peak_per_s: most calls due in one second. runaway: its name, window and cost settled; runaway_peak_per_s: of it.
    """

    tenants: tuple[PlannedTenant, ...]
    duration_ns: int
    begin_ns: int
    peak_per_s: int
    runaway_peak_per_s: int
    account: Account
    runaway: Runaway | None


@dataclass(slots=True)
class _Counts:
    calls: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    costs: dict[str, list[float]] = field(default_factory=dict)

    def tee(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            name = record.tenant
            self.calls[name] += 1
            if len(self.calls) > MAX_IDENTITIES:
                raise RecordedError(
                    "--tenant",
                    f"more than {MAX_IDENTITIES:,} tenants",
                    "take a field that names the customer and not the call",
                )
            if record.status in (429, 503):
                self.refused[name] += 1
            if record.cost >= 0:
                total = self.costs.setdefault(name, [0.0, 0])
                total[0] += record.cost
                total[1] += 1
            yield record


def windowed(
    sources: Sequence[Source],
    how: Reading,
    begin: Bound | None,
    end: Bound | None,
    account: Account,
    max_broken: float,
    chunk: int = CHUNK,
) -> tuple[Iterator[Record], int, int | None]:
    """(calls in the window by time, instant at which it begins, instant at which it ends if one was given)."""
    ordered = in_order(read(sources, how, account), chunk)
    first = next(ordered, None)
    must_be_usable(sources, how, account, max_broken)
    assert first is not None
    from_ns = instant_of(begin, first.t_ns)
    to_ns = instant_of(end, first.t_ns)
    if from_ns is not None and to_ns is not None and from_ns >= to_ns:
        raise RecordedError("--to", "the window ends before it begins", "give a --to after --from")
    records = transform.window(chain([first], ordered), from_ns, to_ns, account)
    return records, first.t_ns if from_ns is None else from_ns, to_ns


def must_be_usable(sources: Sequence[Source], how: Reading, account: Account, max_broken: float) -> None:
    """Once all is read. Raises RecordedError if too much is broken, nothing is there, or no line names a tenant."""
    account.check_broken(max_broken)
    if not account.read:
        raise RecordedError(sources[0].name if sources else "", "no call in it", "is it the right file, and --format?")
    if account.without_tenant == account.read:
        raise RecordedError(
            "--tenant",
            f"'{printable(how.tenant or how.roles.get('tenant', ''))}' names nobody on any of {account.read:,} lines",
            "choose another field: remote_addr, user, file, header:x-tenant, field:NAME or path:N",
        )


def instant_of(bound: Bound | None, first_ns: int) -> int | None:
    return None if bound is None else bound.ns + first_ns * bound.relative


def prepare(
    sources: Sequence[Source],
    how: Reading,
    plan: Plan,
    folder: Path,
    max_broken: float = 0.05,
    chunk: int = CHUNK,
    show_text: bool = True,
) -> Prepared:
    """Writes the schedule files into `folder`. Raises RecordedError."""
    account = Account(show_text=show_text and plan.anonymise_key is None)
    counts = _Counts()
    with tempfile.TemporaryDirectory(prefix="overload-replay-") as temporary:
        records, begin_ns, end_ns = windowed(sources, how, plan.begin, plan.end, account, max_broken, chunk)
        clock = transform.TrialClock(begin_ns, plan.squeeze_ns, plan.speed)
        last = _Last()
        spool = Spool(last.tee(counts.tee(transform.on_trial_clock(records, clock))), Path(temporary), chunk)
        if not account.kept:
            raise RecordedError(
                "--from/--to", f"no call lies in the window ({account.read:,} were read)", "widen it; UTC unless --zone"
            )
        last_ns = last.ns + 1 if end_ns is None else max(last.ns + 1, clock.at(end_ns))
        account.squeezed_gaps, account.squeezed_ns = clock.squeezed_gaps, clock.squeezed_ns
        duration_ns = -(-last_ns // _GRAIN_NS) * _GRAIN_NS
        return _write(spool, counts, plan, folder, account, duration_ns, begin_ns)


class _Last:
    ns = 0

    def tee(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            self.ns = record.t_ns
            yield record


def _write(
    spool: Spool, counts: _Counts, plan: Plan, folder: Path, account: Account, duration_ns: int, begin_ns: int
) -> Prepared:
    named = [*plan.amplify, *([plan.runaway.tenant] if plan.runaway else [])]
    kept = transform.busiest(counts.calls, plan.top, named)
    rest = transform.rest_name(kept)
    names = kept if len(kept) == len(counts.calls) else [*kept, rest]
    for name in named:
        _must_be(name, names, counts.calls)
    runaway = _settled(plan.runaway, counts, kept, duration_ns) if plan.runaway else None
    hidden = transform.Anonymiser(plan.anonymise_key, (NO_TENANT, rest)) if plan.anonymise_key is not None else None
    spread_ns, rng = max(1, int(NS_PER_S / plan.speed)), Random(f"{plan.seed}:amplify")
    records = transform.fold(spool, kept, rest, account)
    records = transform.amplify(records, plan.amplify, spread_ns, duration_ns, rng, account)
    if runaway is not None:
        records = heapq.merge(records, _runaway(runaway, account), key=_due)
    peaks = _write_files(records, names, folder, hidden, runaway.tenant if runaway else None)

    recorded, refused = _of_names(counts.calls, kept, rest), _of_names(counts.refused, kept, rest)
    added = Counter({name: recorded[name] * (factor - 1) for name, factor in plan.amplify.items()})
    shown = {name: name if hidden is None else hidden.name(name) for name in names}
    if runaway is not None:
        added[runaway.tenant] += account.runaway
        runaway = replace(runaway, tenant=shown[runaway.tenant])
    tenants = tuple(PlannedTenant(shown[n], recorded[n], added[n], refused[n]) for n in names)
    return Prepared(tenants, duration_ns, begin_ns, *_per_s(peaks, duration_ns), account, runaway)


def _write_files(
    records: Iterable[Record],
    names: Sequence[str],
    folder: Path,
    hidden: transform.Anonymiser | None,
    runaway: str | None,
) -> tuple[int, int]:
    """Writes every call to its tenant's file; returns the most calls due in one second, of all and of the runaway."""
    writer = Writer(folder, len(names))
    places = {name: place for place, name in enumerate(names)}
    peak, runaway_peak = _Peak(), _Peak()
    for record in records:
        peak.add(record.t_ns)
        if record.tenant == runaway:
            runaway_peak.add(record.t_ns)
        path, body = (record.path, record.body) if hidden is None else (hidden.path(record.path), None)
        writer.add(places[record.tenant], Arrival(record.t_ns, record.cost, record.method, path, body))
    writer.close()
    return peak.most, runaway_peak.most


def _per_s(peaks: tuple[int, int], duration_ns: int) -> tuple[int, int]:
    """Calls within a second as rates: a trial shorter than a second sends as fast as if it went on for one."""
    short_ns = min(NS_PER_S, duration_ns)
    return -(-peaks[0] * NS_PER_S // short_ns), -(-peaks[1] * NS_PER_S // short_ns)


def _of_names(counts: Counter[str], kept: Sequence[str], rest: str) -> Counter[str]:
    own = Counter({name: counts[name] for name in kept})
    return own + Counter({rest: counts.total() - own.total()})


def _must_be(name: str, names: Sequence[str], counts: Mapping[str, int]) -> None:
    if name in names:
        return
    near = difflib.get_close_matches(name, list(counts)[:10_000], 3)
    busiest = ", ".join(printable(known, 40) for known in names[:5])
    meant = f"did you mean {' or '.join(printable(one, 40) for one in near)}?" if near else f"the busiest are {busiest}"
    raise RecordedError("--runaway/--amplify", f"no call in the window is of '{printable(name)}'", meant)


def _settled(runaway: Runaway, counts: _Counts, kept: Sequence[str], duration_ns: int) -> Runaway:
    """The runaway with its window and cost filled in. Raises RecordedError if the window is not one of the trial."""
    third_ns = duration_ns // 3 // _GRAIN_NS * _GRAIN_NS
    from_ns = third_ns if runaway.from_ns is None else runaway.from_ns
    to_ns = 2 * third_ns if runaway.to_ns is None else runaway.to_ns
    if not 0 <= from_ns < to_ns <= duration_ns:
        raise RecordedError(
            "--runaway-from/--runaway-to",
            f"{show_duration(from_ns)} to {show_duration(to_ns)} is no window of a {show_duration(duration_ns)} trial",
            "both count from the beginning of the trial, after squeezing and speed",
        )
    cost = runaway.cost
    if cost is None:
        own = [runaway.tenant] if runaway.tenant in kept else [name for name in counts.costs if name not in kept]
        sums = [counts.costs[name] for name in own if name in counts.costs]
        cost = sum(total for total, _ in sums) / sum(n for _, n in sums) if sums else -1.0
    return replace(runaway, from_ns=from_ns, to_ns=to_ns, cost=cost)


def _due(record: Record) -> int:
    return record.t_ns


def _runaway(runaway: Runaway, account: Account) -> Iterator[Record]:
    assert runaway.from_ns is not None
    assert runaway.to_ns is not None
    cost = -1.0 if runaway.cost is None else runaway.cost
    for due in even([(runaway.from_ns, runaway.to_ns, runaway.rate_per_s)], runaway.from_ns):
        account.runaway += 1
        yield Record(due, 0, runaway.tenant, cost=cost)


class _Peak:
    """Most calls due within one second of the trial."""

    def __init__(self) -> None:
        self.most = 0
        self._second = -1
        self._calls = 0

    def add(self, due_ns: int) -> None:
        second = due_ns // NS_PER_S
        self._calls = self._calls + 1 if second == self._second else 1
        self._second = second
        self.most = max(self.most, self._calls)
