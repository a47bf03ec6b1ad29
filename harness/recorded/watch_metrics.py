"""What a watch tells Prometheus (text exposition format 0.0.4). Names are in docs/watch.md; all begin with `overload_`.

Tenant names come from a log, so labels are escaped and their number is bounded: beyond the first MOST_LABELS seen,
tenants share the label value `(others)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from harness.recorded.account import Account
from harness.recorded.watching import OTHERS, Counts, Row, Watch

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_LABELS = 1_000

Sample = tuple[str, float]
"""(labels as they stand in the text, value)"""


def metrics(watch: Watch, account: Account, known: dict[str, None]) -> str:
    """The whole text. known: labels given so far; kept by whoever asks, so that a tenant keeps its label."""
    rows = watch.all_rows()
    for row in rows:
        if row.tenant not in known and row.tenant != OTHERS and len(known) < MOST_LABELS:
            known[row.tenant] = None
    own = [row for row in rows if row.tenant in known]
    rest = Counts()
    rest.add(watch.total)
    for row in own:
        rest.take(row.total)
    families = [
        _totals("offered", "Calls in the log.", own, rest, lambda c: c.offered),
        _totals("served", "Calls answered with 2xx or 3xx.", own, rest, lambda c: c.served),
        _totals("refused", "Calls refused (429 and 503 unless told otherwise).", own, rest, lambda c: c.refused),
        _totals("failed", "Calls answered with another 5xx.", own, rest, lambda c: c.failed),
        _totals(
            "inferred_replans", "Calls soon after a failure of the same tenant.", own, rest, lambda c: c.after_failure
        ),
        family(
            "overload_watch_inferred_replan_share", "gauge", "Inferred re-plans over calls, in the window.",
            [(_tenant(row.tenant), row.window.share) for row in own if row.window.share is not None],
        ),
        family(
            "overload_watch_window_calls", "gauge", "Calls in the window.",
            [(_tenant(row.tenant), row.window.offered) for row in own],
        ),
        family(
            "overload_watch_alerting", "gauge", "1: over a threshold, by kind.",
            [(f"{_tenant(row.tenant)},kind={quoted(kind)}", 1) for row in own for kind in sorted(row.alerting)],
        ),
        family("overload_watch_lines_total", "counter", "Lines read.", [("", account.lines)]),
        family("overload_watch_broken_lines_total", "counter", "Lines not understood.", [("", account.broken_lines)]),
        family(
            "overload_watch_newest_line_seconds", "gauge", "When the newest line was, seconds since 1970.",
            [("", max(0, watch.now_ns) / 1e9)],
        ),
    ]  # fmt: skip
    return "".join(families)


def family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> str:
    """One metric with its heading; a sample has labels (or none) and a value."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{{{labels}}} {value}" if labels else f"{name} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A label value. Names that print were made so by the reader; what is left to escape are three characters."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


def _tenant(name: str) -> str:
    return f"tenant={quoted(name)}"


def _totals(name: str, about: str, own: list[Row], rest: Counts, of: Callable[[Counts], int]) -> str:
    samples: list[Sample] = [(_tenant(row.tenant), of(row.total)) for row in own]
    if rest.offered > 0:
        samples.append((_tenant(OTHERS), of(rest)))
    return family(f"overload_watch_{name}_total", "counter", about, samples)
