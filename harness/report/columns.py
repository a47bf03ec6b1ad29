"""The columns of the tenant and phase table, once, for the terminal and for HTML.

A cell is text; a number that may not carry a verdict (a percentile of too few samples) is marked with THIN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.report.summary import P95_SAMPLES, P99_SAMPLES, Row, Times
from harness.report.text import count, millis, percent

THIN = "*"
THIN_NOTE = f"{THIN} fewer than {P95_SAMPLES} (p95) or {P99_SAMPLES:,} (p99) samples: reported, never judged by."
WAIT_NOTE = (
    "wait: time in the service's queue, of served calls. wait+: abandoned calls counted as having waited their whole "
    "patience. latency: done - due, of served calls. All in ms."
)
COUNT_NOTE = (
    "due = offered + held back + dropped. served %: of offered calls, without those still open at the end. "
    "re-plans: calls that follow a failure; their %: of all due."
)


@dataclass(frozen=True, slots=True)
class Column:
    """group, title: two lines of heading. about: what it is, in words. always: shown even if all of it is zero."""

    group: str
    title: str
    about: str
    cell: Callable[[Row], str]
    always: bool = True
    any_of: Callable[[Row], int] | None = None

    def wanted(self, rows: Iterable[Row]) -> bool:
        return self.always or self.any_of is None or any(self.any_of(row) for row in rows)


def _counted(title: str, about: str, value: Callable[[Row], int], always: bool, group: str = "") -> Column:
    return Column(group, title, about, lambda row: count(value(row)), always, value)


def _share(group: str, about: str, share: Callable[[Row], float | None]) -> Column:
    return Column(group, "%", about, lambda row: percent(share(row)).removesuffix(" %"))


def _timed(group: str, which: str, about: str, times: Callable[[Row], Times]) -> Column:
    return Column(group, which, f"{_WHICH[which]} {about}, ms", lambda row: time_cell(times(row), which))


def time_cell(times: Times, which: str) -> str:
    """`mean`, `p50`, `p95` or `p99` in ms, marked where the samples are too few to judge by."""
    text = millis(getattr(times, f"{which}_ms"))
    thin = times.samples > 0 and not getattr(times, f"{which}_firm", True)
    return text + THIN if thin else text


_WHICH = {"mean": "mean", "p50": "median", "p95": "95th percentile of", "p99": "99th percentile of"}

COUNTS: tuple[Column, ...] = (
    Column("", "due", "wanted by the tenant", lambda r: count(r.due), False, lambda r: r.due - r.offered),
    _counted("offered", "calls that were sent", lambda r: r.offered, True),
    _counted("calls", "answered as asked", lambda r: r.served, True, "served"),
    _share("served", "served, of offered without those still open", lambda r: r.served_share),
    _counted("refused", "turned away at admission without having started", lambda r: r.refused, True),
    _counted("aband.", "abandoned: the caller's patience ran out", lambda r: r.abandoned, True),
    _counted("failed", "no answer, a broken one, or an error", lambda r: r.failed, False),
    _counted("other", "coalesced, cancelled, or needs a person", lambda r: r.other, False),
    _counted("open", "unfinished at the drain limit", lambda r: r.open, False),
    _counted("dropped", "could not be sent by the generator", lambda r: r.dropped, False),
    _counted("held", "held back by the caller's own budget", lambda r: r.held_back, False),
    _counted("calls", "calls that follow a failure", lambda r: r.replans, True, "re-plans"),
    _share("re-plans", "calls that follow a failure, of all due", lambda r: r.replan_share),
)

_WAIT = "queue wait of served calls"
_WAIT_ALL = "queue wait, abandoned calls at full patience"
_LATENCY = "latency (done - due) of served calls"
TIMES: tuple[Column, ...] = (
    *(_timed("wait", which, _WAIT, lambda r: r.wait) for which in _WHICH),
    *(_timed("wait+", which, _WAIT_ALL, lambda r: r.wait_all) for which in ("mean", "p95")),
    *(_timed("latency", which, _LATENCY, lambda r: r.latency) for which in _WHICH),
)


def absent(rows: Sequence[Row]) -> str:
    """One sentence for the columns left out because nothing is in them."""
    words = {"failed": "failed", "open": "was left open", "dropped": "was dropped", "held": "was held back"}
    none = [words[column.title] for column in COUNTS if column.title in words and not column.wanted(rows)]
    if not none:
        return ""
    return f"No call {none[0]}." if len(none) == 1 else f"No call {', '.join(none[:-1])} or {none[-1]}."
