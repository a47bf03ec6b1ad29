"""A trial's calls, counted and timed: a row a tenant and phase, and the same over time in bins.

Pure and vectorised: a million calls in about a second. What the numbers mean:

- a call belongs to the phase in which it was due, and ends in one outcome: that of its last attempt;
- due: all that the tenant wanted; offered: what was sent (due without held back and dropped);
- served share: served / (offered - open), None without any;
- queue wait: of served calls, as the service told it. `wait_all` adds abandoned calls, as having waited their whole
  patience (design rule: else a service that makes people give up looks fast);
- latency: `done - due` of served calls, which is what people feel;
- a percentile is shown whatever its samples, and marked as thin below the number that may carry a verdict.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.ledger import outcomes as o
from harness.ledger.reader import Ints, Trial
from harness.report.frame import Frame, frame_of

Mask = npt.NDArray[np.bool_]

P95_SAMPLES, P99_SAMPLES = 300, 1_000
WHOLE, NO_PHASE = "whole", "other"
MOST_TENANTS = 40


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds; None without samples. p95 and p99 may carry a verdict only if `p95_firm`, `p99_firm`."""

    samples: int
    mean_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None

    @property
    def p95_firm(self) -> bool:
        return self.samples >= P95_SAMPLES

    @property
    def p99_firm(self) -> bool:
        return self.samples >= P99_SAMPLES


@dataclass(frozen=True, slots=True)
class Row:
    """kind: `tenant`, `pooled` (all ordinary tenants together), `rest` (tenants without a row of their own).

    outcomes: every terminal outcome that occurred, with its count; the named fields are taken from it. other: ends that
    no column names (coalesced, cancelled, needs_person).
    """

    tenant: str
    kind: str
    ordinary: bool
    phase: str
    due: int
    offered: int
    served: int
    refused: int
    abandoned: int
    failed: int
    held_back: int
    dropped: int
    open: int
    other: int
    replans: int
    attempts: int
    outcomes: dict[str, int]
    wait: Times
    wait_all: Times
    latency: Times

    @property
    def served_share(self) -> float | None:
        ended = self.offered - self.open
        return self.served / ended if ended else None

    @property
    def replan_share(self) -> float | None:
        return self.replans / self.due if self.due else None


@dataclass(frozen=True, slots=True)
class Summary:
    """rows: tenants in the order of the profile, each with its phases in order of time and the whole; then the rest,
    then the ordinary tenants pooled."""

    frame: Frame
    rows: tuple[Row, ...]
    calls: int
    left_out: int

    def whole(self) -> list[Row]:
        return [row for row in self.rows if row.phase == WHOLE]


def most_hurt_first(summary: Summary) -> list[tuple[Row, Row]]:
    """(calm, burst) of each tenant that has both: ordinary ones first, the least served first."""
    by_tenant: dict[str, dict[str, Row]] = {}
    for row in summary.rows:
        if row.kind == "tenant":
            by_tenant.setdefault(row.tenant, {})[row.phase] = row
    pairs = [(rows["calm"], rows["burst"]) for rows in by_tenant.values() if {"calm", "burst"} <= rows.keys()]
    pairs = [pair for pair in pairs if pair[1].served_share is not None]
    return sorted(pairs, key=lambda pair: (not pair[0].ordinary, pair[1].served_share or 0.0))


def charted(summary: Summary) -> set[str]:
    """Tenants worth a chart where not all can have one: the four most hurt, and the three with most calls."""
    hurt = [burst.tenant for _, burst in most_hurt_first(summary)[:4]]
    loud = sorted((row for row in summary.whole() if row.kind == "tenant"), key=lambda row: -row.due)
    return {*hurt, *[row.tenant for row in loud if row.tenant not in hurt][:3]}


def attempts_of(trial: Trial) -> Ints:
    """How often each call was sent."""
    made = (trial.calls.attempt >= 1).astype(np.int64)
    if trial.calls is not trial.attempts:
        order = np.lexsort((trial.calls.seq, trial.calls.tenant))
        key = (trial.calls.tenant << 40 | trial.calls.seq)[order]
        rows = trial.attempts.taken(trial.retried)
        place = np.searchsorted(key, rows.tenant << 40 | rows.seq)
        np.add.at(made, order[np.minimum(place, len(key) - 1)], 1)
    return made


def summarise(trial: Trial, keep: Collection[str] = (), most: int = MOST_TENANTS) -> Summary:
    """keep: tenants that get a row of their own even if they are small. most: how many get one at most."""
    frame = frame_of(trial)
    groups = groups_of(trial, keep, most)
    table = _Table(trial, frame)
    codes = table.phase + groups.of_tenant[table.tenant] * table.phases
    order = np.argsort(codes.astype(np.int32), kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(groups.count * table.phases + 1))
    rows: list[Row] = []
    for group, name in enumerate(groups.names):
        kind = "tenant" if group < groups.own else "rest"
        who = (name, kind, name in groups.ordinary and kind == "tenant")
        first = group * table.phases
        parts = [order[bounds[first + i] : bounds[first + i + 1]] for i in range(table.phases)]
        rows += table.rows(who, parts)
    if len(frame.ordinary) > 1:
        rows += table.rows(("ordinary", "pooled", True), _pooled(trial, frame, table))
    return Summary(frame, tuple(rows), len(table.tenant), groups.left_out)


def _pooled(trial: Trial, frame: Frame, table: _Table) -> list[Ints]:
    named = frozenset(frame.ordinary)
    ordinary = np.array([name in named for name in trial.tenants])[table.tenant]
    return [np.nonzero(ordinary & (table.phase == i))[0] for i in range(table.phases)]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """of_tenant: group of each tenant. The first `own` groups are tenants by themselves; a last one may be the rest."""

    names: tuple[str, ...]
    of_tenant: Ints
    own: int
    left_out: int
    ordinary: frozenset[str]

    @property
    def count(self) -> int:
        return len(self.names)


def groups_of(trial: Trial, keep: Collection[str], most: int) -> Groups:
    """The tenants shown by themselves: those to keep, then those with most calls; the others become one."""
    tenants = trial.tenants
    ordinary = frozenset(trial.manifest["profile"].get("ordinary") or ())
    if len(tenants) <= most:
        return Groups(tenants, np.arange(len(tenants)), len(tenants), 0, ordinary)
    rows = np.bincount(trial.calls.tenant, minlength=len(tenants))
    wanted = frozenset(keep)
    kept = np.array([name in wanted for name in tenants])
    shown = np.sort(np.lexsort((np.arange(len(tenants)), -rows, ~kept))[:most])
    of_tenant = np.full(len(tenants), most, dtype=np.int64)
    of_tenant[shown] = np.arange(most)
    names = (*(tenants[i] for i in shown), f"{len(tenants) - most:,} other tenants")
    return Groups(names, of_tenant, most, len(tenants) - most, ordinary)


class _Table:
    """The columns of a trial's ends that the rows are made of."""

    def __init__(self, trial: Trial, frame: Frame) -> None:
        calls = trial.calls
        self.frame = frame
        self.phases = len(frame.phases) + 1
        self.tenant = calls.tenant
        self.attempts = attempts_of(trial)
        self.outcome = calls.outcome
        self.replan = calls.round > 0
        self.phase = frame.phase_codes(calls.due_ns)
        self.served = calls.is_outcome(o.SERVED)
        self.abandoned = calls.is_outcome(o.ABANDONED)
        self.latency = calls.done_ns - calls.due_ns
        self.wait = calls.queue_wait_ns
        self.patience = frame.patience_ns[self.tenant]
        self.waits_told = bool(np.any(self.wait >= 0))

    def rows(self, who: tuple[str, str, bool], parts: list[Ints]) -> list[Row]:
        names = [*(name for name, _, _ in self.frame.phases), NO_PHASE]
        whole = np.concatenate(parts)
        rows = [self._row(who, name, part) for name, part in zip(names[:-1], parts[:-1], strict=True)]
        if self.frame.phases and len(parts[-1]):
            rows.append(self._row(who, NO_PHASE, parts[-1]))
        return [*rows, self._row(who, WHOLE, whole)]

    def _row(self, who: tuple[str, str, bool], phase: str, at: Ints) -> Row:
        counts = np.bincount(self.outcome[at], minlength=len(o.TERMINAL)).tolist()
        ends = dict(zip(o.TERMINAL, counts, strict=True))
        named = (o.SERVED, o.ABANDONED, o.FAILED, o.HELD_BACK, o.DROPPED, o.OPEN)
        refused = sum(ends[outcome] for outcome in o.REFUSED)
        served, wait, latency = self.served[at], self.wait[at], self.latency[at]
        known = served & (wait >= 0)
        patience = self.patience[at]
        gave_up = patience[self.abandoned[at] & (patience >= 0)]
        waits = wait[known]
        return Row(
            *who,
            phase,
            due=len(at),
            offered=len(at) - ends[o.HELD_BACK] - ends[o.DROPPED],
            served=ends[o.SERVED],
            refused=refused,
            abandoned=ends[o.ABANDONED],
            failed=ends[o.FAILED],
            held_back=ends[o.HELD_BACK],
            dropped=ends[o.DROPPED],
            open=ends[o.OPEN],
            other=len(at) - refused - sum(ends[outcome] for outcome in named),
            replans=int(np.count_nonzero(self.replan[at])),
            attempts=int(self.attempts[at].sum()),
            outcomes={outcome: count for outcome, count in ends.items() if count},
            wait=times_of(waits),
            wait_all=times_of(np.concatenate((waits, gave_up)) if self.waits_told else waits),
            latency=times_of(latency[served]),
        )


def times_of(values_ns: Ints) -> Times:
    """Mean and quantiles [ms] (linear between order statistics) of durations [ns]."""
    if not len(values_ns):
        return Times(0)
    p50, p95, p99 = (float(q) / 1e6 for q in np.quantile(values_ns, (0.5, 0.95, 0.99)))
    return Times(len(values_ns), float(values_ns.mean()) / 1e6, p50, p95, p99)
