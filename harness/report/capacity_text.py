"""The capacity layer's part of the report in a terminal: a row a traffic class, a row a bulkhead, and some lines.

Compact: what does not occur is left out, and said to be absent only where its absence is news.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console

from harness.report.capacity import Capacity, ClassRow
from harness.report.columns import time_cell
from harness.report.cost import Costs
from harness.report.grid import Cell, grid, line
from harness.report.text import MISSING, clean, count, fit, seconds

_NAME_WIDTH = 24
_MOST_REASONS = 8
_MOST_TRANSITIONS = 12
SHOWN_OUTCOMES = ("served", "throttled", "expired", "budget_exhausted", "dependency_unavailable")
"""Columns of their own where they occur; the rest share one."""
_SHORT = {"budget_exhausted": "budget", "dependency_unavailable": "unavail."}
NOTE = (
    "latency: of batches that were served, due to done. wait: in the controller's queue, of steps. In ms. "
    "in use: most calls under way at once at the dependency."
)


def show_capacity(capacity: Capacity, console: Console) -> None:
    """Prints the whole part."""
    console.print()
    line(console, Cell("Capacity", "bold"), f"  {count(capacity.runs)} runs, {count(capacity.steps)} steps")
    class_table(capacity.classes, console)
    console.print()
    _bulkheads(capacity, console)
    console.print()
    if capacity.cost is not None:
        cost_table(capacity.cost, console)
        console.print()
    for label, said in sentences(capacity):
        line(console, Cell(f"{label}: ", "bold"), clean(said, 1_000))
    line(console, Cell(NOTE, "dim"))


def class_table(classes: Sequence[ClassRow], console: Console) -> None:
    shown = [name for name in SHOWN_OUTCOMES if any(row.outcomes.get(name) for row in classes)]
    header = [("", "class"), ("", "runs"), ("", "steps"), *(("", _SHORT.get(name, name)) for name in shown)]
    header += [("", "other"), *((group, q) for group in ("latency", "wait") for q in ("p50", "p95", "p99"))]
    grid(console, header, [_class_row(row, shown) for row in classes])


def _class_row(row: ClassRow, shown: Sequence[str]) -> list[Cell]:
    other = sum(number for name, number in row.outcomes.items() if name not in shown)
    figures = [row.runs, row.steps, *(row.outcomes.get(name, 0) for name in shown), other]
    times = [time_cell(times, q) for times in (row.latency, row.wait) for q in ("p50", "p95", "p99")]
    return [
        Cell(fit(clean(row.traffic_class), _NAME_WIDTH), "bold"),
        *(Cell(text, "dim" if text in ("0", MISSING) else "") for text in (*map(count, figures), *times)),
    ]


def _bulkheads(capacity: Capacity, console: Console) -> None:
    header = [("", "bulkhead"), ("", "limit"), ("in", "use"), ("", "waiting"), ("", "calls"), ("", "failed")]
    rows: list[Sequence[Cell] | None] = [
        [
            Cell(fit(clean(one.name), _NAME_WIDTH), "bold"),
            *(Cell(count(n)) for n in (one.limit, one.peak, one.waiting, one.arrivals, one.failed)),
        ]
        for one in capacity.bulkheads
    ]
    total = [Cell("(all together)", "bold"), Cell(count(capacity.ceiling)), Cell(count(capacity.peak))]
    rows.append([*total, Cell(MISSING, "dim"), Cell(MISSING, "dim"), Cell(MISSING, "dim")])
    grid(console, header, rows)


def sentences(capacity: Capacity) -> list[tuple[str, str]]:
    """(label, what is to be said) in the order of reading."""
    refusals = [f"{count(n)} {who} {outcome} ({why})" for who, outcome, why, n in capacity.refusals]
    runs = [f"{count(n)} {who} {outcome} ({why})" for who, outcome, why, n in capacity.refused_runs]
    said = [("refused runs", _joined(runs))] if runs else []
    said.append(("refused steps" if runs else "refused", _joined(refusals) or "nothing"))
    if capacity.expired:
        late = f"{count(capacity.started_late)} calls started after their deadline"
        said.append(
            ("expired", f"{count(capacity.expired)} steps; {late if capacity.started_late else 'none started late'}")
        )
    elif capacity.started_late:
        said.append(("started late", f"{count(capacity.started_late)} calls after their deadline"))
    said.append(("attempts a step", attempts(capacity.attempts)))
    denied = _joined([f"{count(n)} {why}" for why, n in capacity.denied.items()])
    back = f"; {count(capacity.read_backs)} read-backs" if capacity.read_backs else ""
    said.append(("retries", f"{count(capacity.retries)} tokens spent; denied: {denied or 'none'}{back}"))
    said.append(("circuits", circuits(capacity)))
    return said


def cost_table(costs: Costs, console: Console) -> None:
    """A row a tenant: runs admitted, refused at each pool, and tokens."""
    header = [
        ("", "tenant"),
        ("", "admitted"),
        *(("refused at", clean(pool, 16)) for pool in costs.pools),
        ("", "settled"),
    ]
    header += [("tokens", "forecast"), ("tokens", "used"), ("lowest", "balance")]
    cells = [
        [
            Cell(fit(clean(row.tenant), _NAME_WIDTH), "bold"),
            *(
                _figure(number)
                for number in (row.admitted, *(row.refused.get(pool, 0) for pool in costs.pools), row.settled)
            ),
            *(_figure(number) for number in (row.forecast, row.used, row.lowest_balance)),
        ]
        for row in costs.tenants
    ]
    line(console, Cell("Cost", "bold"), "  runs by tenant, as the layer tells it")
    grid(console, header, cells)
    line(console, Cell("most at once: ", "bold"), most_at_once(costs))


def _figure(number: float | None) -> Cell:
    return Cell(count(number), "" if number else "dim")


def most_at_once(costs: Costs) -> str:
    """`4 sessions, 7 memory writes, 12 tool calls in use; 30 runs in the queue, the oldest for 1.2 s`."""
    used = f"{count(costs.most['sessions'])} sessions, {count(costs.most['memory'])} memory writes, "
    used += f"{count(costs.most['tools'])} tool calls in use"
    waited = f"; {count(costs.most['queue'])} runs in the queue, the oldest for {seconds(costs.oldest_ns)}"
    left = f". {count(costs.left_out)} more tenants are not shown" if costs.left_out else ""
    return used + (waited if costs.most["queue"] else "") + left


def attempts(distribution: Mapping[int, int]) -> str:
    """`0 for 102, 1 for 354`."""
    return ", ".join(f"{number} for {count(steps)}" for number, steps in distribution.items()) or "no step"


def circuits(capacity: Capacity) -> str:
    """Each circuit's way: `billing open at 1.25 s (failures), half-open at 1.65 s (cooled_down)`."""
    by_name: dict[str, list[str]] = {}
    for one in capacity.transitions[:_MOST_TRANSITIONS]:
        why = f" ({one.reason})" if one.reason else ""
        by_name.setdefault(one.dependency, []).append(f"{one.state} at {seconds(one.t_ns)}{why}")
    left = len(capacity.transitions) + capacity.left_out - _MOST_TRANSITIONS
    more = f"; and {count(left)} transitions more" if left > 0 else ""
    return "; ".join(f"{name} {', '.join(way)}" for name, way in by_name.items()) + more or "none moved"


def _joined(items: Sequence[str]) -> str:
    more = f", and {count(len(items) - _MOST_REASONS)} kinds more" if len(items) > _MOST_REASONS else ""
    return ", ".join(items[:_MOST_REASONS]) + more


def variants_table(rows: Sequence[tuple[str, str, Capacity]], console: Console) -> None:
    """Variants of a profile below each other. rows: (name, word, capacity)."""
    header = [("", "row"), ("", "verdict"), ("", "steps"), ("", "served"), ("", "refused"), ("", "expired")]
    turned_away = [sum(number for *_, number in one.refused_runs) for _, _, one in rows]
    header += [("runs", "refused")] if any(turned_away) else []
    header += [("retry", "tokens"), ("most in", "flight"), ("", "ceiling")]
    cells: list[Sequence[Cell] | None] = []
    for (name, word, one), runs in zip(rows, turned_away, strict=True):
        ends: dict[str, int] = {}
        for row in one.classes:
            for outcome, number in row.outcomes.items():
                ends[outcome] = ends.get(outcome, 0) + number
        refused = sum(number for *_, number in one.refusals) - one.expired
        figures = [
            one.steps,
            ends.get("served", 0),
            max(0, refused),
            one.expired,
            *([runs] if any(turned_away) else []),
        ]
        figures += [one.retries, one.peak]
        cells.append([Cell(clean(name, 28), "bold"), Cell(word), *map(Cell, map(count, [*figures, one.ceiling]))])
    grid(console, header, cells, lead=2)
