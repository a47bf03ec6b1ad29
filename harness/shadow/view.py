"""How a what-if is shown in the terminal: a table of tenants by policies, the log's own refusals first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from harness.recorded.errors import printable
from harness.report.grid import Cell, grid, line
from harness.report.text import MISSING, clean, count, millis, percent, seconds
from harness.shadow.figures import Figures, Tried, per_bin
from harness.shadow.find import Found, Point
from harness.shadow.traffic import Traffic

MOST_ROWS = 40
_BARS = " ▁▂▃▄▅▆▇█"


def spark(values: Sequence[float | None], most: float | None = None, width: int = 60) -> str:
    """A line of bars, the largest value `most` high; a value above nothing is never shown as nothing."""
    step = max(1, -(-len(values) // width))
    parts = [max((v or 0 for v in values[at : at + step]), default=0) for at in range(0, len(values), step)]
    top = max(parts, default=0) if most is None else most
    return "".join(_BARS[0 if not v or not top else max(1, min(8, round(8 * v / top)))] for v in parts)


def show(traffic: Traffic, found: Sequence[Tried], serving: str, patient: bool, console: Console) -> None:
    """The whole of it: what was played, the table, what agrees with the log, and when."""
    line(console, f"played    {len(traffic):,} calls of {sum(traffic.identities):,} tenants in "
                  f"{seconds(traffic.duration_ns)}; {serving}")  # fmt: skip
    if not traffic.with_status:
        line(console, "refusals  not in this log: no field is the status; name it: --map status=FIELD")
    _table(traffic, found, patient, console)
    if len(traffic.tenants) > MOST_ROWS:
        line(console, f"and {len(traffic.tenants) - MOST_ROWS} tenants more (--top N pools them, --json has them all)")
    for one in found:
        line(console, f"{one.policy.text}: {_against_log(traffic, one)}")
    _over_time(traffic, found, console)


def _table(traffic: Traffic, found: Sequence[Tried], patient: bool, console: Console) -> None:
    """One policy: a row a tenant. Several: a row for the log and for each policy, below one another."""
    own = [
        ("", title) for title in ("refused", *(("abandoned",) if patient else ()), "delayed", "mean wait", "p95 wait")
    ]
    logged = traffic.counts(traffic.refused).tolist()
    tenants = [
        (
            clean(name, 40) + (f" ({many:,} callers)" if many > 1 else ""),
            logged[place],
            [o.figures[place] for o in found],
        )
        for place, (name, many) in enumerate(zip(traffic.tenants, traffic.identities, strict=True))
    ][:MOST_ROWS]
    tenants.append(("all", sum(logged), [one.total for one in found]))
    if len(found) == 1:
        rows: list[list[Cell] | None] = [
            [Cell(name), Cell(count(one.calls)), _logged(refused, one.calls, traffic), *_cells(one, patient)]
            for name, refused, (one,) in tenants
        ]
        grid(console, [("", "tenant"), ("", "calls"), ("the log", "refused"), *own], rows)
        return
    rows = []
    for name, refused, figures in tenants:
        calls = figures[0].calls
        unknown = [Cell(MISSING)] * (len(own) - 1)
        rows.append([Cell(name), Cell("the log"), Cell(count(calls)), _logged(refused, calls, traffic), *unknown])
        for one, figure in zip(found, figures, strict=True):
            rows.append(
                [
                    Cell(name),
                    Cell(f"{clean(one.policy.text, 40)} x{one.workers}"),
                    Cell(count(calls)),
                    *_cells(figure, patient),
                ]
            )
        rows.append(None)
    grid(console, [("", "tenant"), ("", "by"), ("", "calls"), *own], rows[:-1], lead=2)


def _logged(refused: int, calls: int, traffic: Traffic) -> Cell:
    return Cell(_share(refused, calls)) if traffic.with_status else Cell("not logged")


def _cells(one: Figures, patient: bool) -> list[Cell]:
    lost = "red" if one.refused else ""
    return [
        Cell(_share(one.refused, one.calls), lost),
        *([Cell(_share(one.abandoned, one.calls), "red" if one.abandoned else "")] if patient else []),
        Cell(_share(one.delayed, one.calls)),
        Cell(_ms(one.mean_wait_ns)),
        Cell(_ms(one.p95_wait_ns)),
    ]


def _share(part: int, whole: int) -> str:
    return "0" if not part else f"{part:,} ({percent(part / whole)})"


def _ms(ns: float | None) -> str:
    return millis(None) if ns is None else f"{millis(ns / 1e6)} ms"


def _against_log(traffic: Traffic, one: Tried) -> str:
    waits = f"at most {one.peak_waiting:,} waiting"
    if not traffic.with_status:
        return waits
    agreed = one.agreement
    return (
        f"refuses {one.total.refused:,}, the log {agreed.both + agreed.only_log:,}; of these {agreed.both:,} are the "
        f"same calls, {agreed.only_log:,} were refused then only, {agreed.only_policy:,} would be now; {waits}"
    )


def _over_time(traffic: Traffic, found: Sequence[Tried], console: Console) -> None:
    """When calls came and when they were lost, all losses on one scale."""
    logged = per_bin(traffic, traffic.refused)
    most = max([*logged, *(n for one in found for n in one.refused_per_bin)], default=0)
    width = max(20, min(60, console.width - 48))
    names = [("calls", spark(per_bin(traffic), width=width), max(per_bin(traffic)))]
    if traffic.with_status:
        names.append(("refused in the log", spark(logged, most, width), max(logged)))
    names += [
        (f"lost, {clean(one.policy.text, 22)}", spark(one.refused_per_bin, most, width), max(one.refused_per_bin))
        for one in found
    ]
    line(console, f"over time, {len(logged)} parts of {seconds(max(1, traffic.duration_ns // len(logged)))} each:")
    for name, bars, top in names:
        line(console, f"{name:28}  |{bars}|  up to {top:,}", indent=2)


def rule_text(found: Found) -> str:
    """What `unmoved` meant, in one sentence."""
    rule = found.rule
    return (
        f"each ordinary tenant with enough calls, and all of them together, lose under {percent(rule.lost)} of their "
        f"calls and wait under {millis(rule.wait_ns / 1e6)} ms on average (upper ends at "
        f"{percent(rule.confidence, 0)}), and all together also in their worst window of {seconds(rule.window_ns)}; "
        "compared with a service on which nobody ever waits"
    )


def show_found(found: Found, console: Console) -> None:
    """The answer of --find workers: the number, what it means, what is near, and whether more always helped."""
    name = printable(found.policy.text, 60)
    if found.workers is None:
        line(console, Cell(f"{name}: no number of workers that was tried leaves the ordinary tenants unmoved", "bold"))
    else:
        line(console, Cell(f"{name}: {found.workers:,} workers", "bold"))
    line(console, f"unmoved: {rule_text(found)}", indent=2)
    line(console, f"judged one by one: {found.judged:,} ordinary tenants; {found.not_judged:,} have too few calls",
         indent=2)  # fmt: skip
    for point in _near(found):
        line(
            console,
            f"{point.workers:>7,} workers  {'unmoved' if point.unmoved else 'moved  '}  {_point(point)}",
            indent=2,
        )
    if not found.monotone:
        line(console, "more workers did not always help here: the number is the smallest from which on every number "
                      "that was tried held", indent=2)  # fmt: skip
    line(console, f"tried: {', '.join(f'{point.workers:,}' for point in found.points)}", indent=2)


def _near(found: Found) -> list[Point]:
    if found.workers is None:
        return list(found.points[-3:])
    at = next(i for i, point in enumerate(found.points) if point.workers == found.workers)
    return list(found.points[max(0, at - 2) : at + 3])


def _point(point: Point) -> str:
    if point.what == "wait":
        return (
            f"{clean(point.who, 60)}: mean wait {millis(point.measured / 1e6)} ms, upper end "
            f"{millis(point.upper / 1e6)} of {millis(point.bound / 1e6)}"
        )
    over = "more than " if point.stopped else ""
    return (
        f"{clean(point.who, 60)}: lost {over}{percent(point.measured, 2)}, upper end {percent(point.upper, 2)} of "
        f"{percent(point.bound, 2)}"
    )
