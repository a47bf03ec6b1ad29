"""What a watch tells Prometheus, under the names that a trial has for the same (stub_service/exposition.py); the label
`source` is `log`. Names are in docs/metrics.md.

A log does not say why a call was made, so that re-plans here have `rounds="inferred"`: an upper bound (watching.py).
Tenants come from the log, so that the busiest have series of their own and the others share one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from harness.recorded.account import Account
from harness.recorded.watching import Counts, Row, Watch
from stub_service.exposition import (
    CALLS,
    COUNTER,
    FAILED,
    GAUGE,
    INFERRED,
    LOG,
    OFFERED,
    OTHERS,
    REFUSED,
    REPLAN_SHARE,
    REPLANS,
    SECONDS,
    SERVED,
    Busiest,
    Counters,
    Family,
    Metric,
    family,
    one,
    per_label,
)

WINDOW_CALLS = Metric("overload_watch_window_calls", GAUGE, "Calls in the window.", ("source", "tenant"))
ALERTING = Metric(
    "overload_watch_alerting", GAUGE, "Tenants over a threshold: 1 while this one is.", ("source", "tenant", "kind")
)
LINES = Metric("overload_watch_lines_total", COUNTER, "Lines read.")
BROKEN_LINES = Metric("overload_watch_broken_lines_total", COUNTER, "Lines not understood.")
NEWEST_LINE = Metric(
    "overload_watch_newest_line_seconds", GAUGE, "When the newest line was, seconds since 1970.", (), SECONDS
)
METRICS = (WINDOW_CALLS, ALERTING, LINES, BROKEN_LINES, NEWEST_LINE)
_COUNTED = (OFFERED, SERVED, REFUSED, FAILED, REPLANS)


def families(watch: Watch, account: Account, busiest: Busiest) -> list[Family]:
    """busiest: kept by whoever asks, from one look to the next."""
    rows = {row.tenant: row for row in watch.all_rows()}
    shown = busiest.look({name: _counters(row.total) for name, row in rows.items()}, _counters(watch.total))
    found = [family(CALLS, (((LOG, name), counters[0]) for name, counters in shown.items()))]
    for place, metric in enumerate(_COUNTED):
        more = (INFERRED,) if metric is REPLANS else ()
        found.append(family(metric, (((LOG, name, *more), counters[place]) for name, counters in shown.items())))
    windows = {name: row.window.offered for name, row in rows.items()}
    return [
        *found,
        family(REPLAN_SHARE, (((LOG, name, INFERRED), share) for name, share in _shares(shown, rows))),
        family(WINDOW_CALLS, (((LOG, name), value) for name, value in per_label(shown, windows))),
        family(ALERTING, sorted(_alerting(shown, rows).items())),
        one(LINES, account.lines),
        one(BROKEN_LINES, account.broken_lines),
        one(NEWEST_LINE, max(0, watch.now_ns) / 1e9),
    ]


def _counters(counts: Counts) -> Counters:
    return counts.offered, counts.served, counts.refused, counts.failed, counts.after_failure


def _shares(shown: dict[str, Counters], rows: dict[str, Row]) -> Iterator[tuple[str, float]]:
    """In the window; of the tenants that share a label none, since one of them could hide behind the others."""
    for name in shown:
        share = rows[name].window.share if name in rows and name != OTHERS else None
        if share is not None:
            yield name, share


def _alerting(shown: dict[str, Counters], rows: dict[str, Row]) -> Counter[tuple[str, str, str]]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for name, row in rows.items():
        for kind in row.alerting:
            counts[LOG, name if name in shown else OTHERS, kind] += 1
    return counts
