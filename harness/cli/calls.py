"""`overload calls`: every downstream call of a workflow, from a trial, a HAR or a trace."""

from __future__ import annotations

import io
from pathlib import Path

import click
from rich.console import Console

from harness.cli.output import echo_json
from harness.errors import BadInput
from harness.recorded.downstream import Listing, Row, as_json, listing
from harness.recorded.lines import Source
from harness.recorded.spans import FORMATS, read_calls
from harness.recorded.times import Clock, zone_of
from harness.report.grid import Cell, grid, line
from harness.report.text import MISSING, clean, count, millis, percent

ARRIVALS = "arrivals.jsonl"


# fmt: off
@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path), metavar="FILE|DIR")
@click.option("--format", "form", type=click.Choice(FORMATS), default="auto", show_default=True,
              help="What the file is.")
@click.option("--top", type=click.IntRange(1), default=50, show_default=True, help="Rows to show.")
@click.option("--json", "as_json_text", is_flag=True, help="All of it as JSON on standard output.")
def command(path: Path, form: str, top: int, as_json_text: bool) -> int:
    """List every downstream call: on what a workflow depends, how often, how slowly, how often again.

    The first thing to know before a rollout. DIR is a folder of a trial, or of `overload serve`. FILE is a HAR, a
    trace as OTLP JSON or as exported by Jaeger, or arrivals.jsonl. Ids in paths are collapsed; docs/recorded.md
    says how.

    \b
    Examples:
      overload calls reports/20250102-030405-v01
      overload calls session.har --top 20
      overload calls traces.json --json
    """
    # fmt: on
    file = path / ARRIVALS if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise BadInput(
            f"{path}: no {ARRIVALS} in it, so nothing is known of dependencies; give the folder of a trial with agent "
            "runs, a HAR or a trace"
        )
    try:
        with file.open("rb") as stream:
            source = Source(str(file), io.BufferedReader(stream.raw), file.stat().st_size, file.stem)
            seen, read_as = read_calls(source, form, Clock(zone_of("UTC")))
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror})") from None
    if not seen:
        raise BadInput(f"{file}: read as {read_as}, no call to a dependency in it (of a trace: no span of kind client)")
    found = listing(seen)
    if as_json_text:
        echo_json({"file": str(file), "format": read_as, **as_json(found)})
    else:
        _show(found, read_as, top, Console())
    return 0


_HEADER = [
    ("", "dependency"), ("", "method"), ("", "path"), ("", "calls"), ("", "share"), ("time", "p50"), ("time", "p95"),
    ("", "errors"), ("", "retries"), ("a workflow", "mean"), ("a workflow", "most"),
]  # fmt: skip


def _show(found: Listing, read_as: str, top: int, console: Console) -> None:
    per = list(found.workflows.values())
    dependencies = len({row.dependency for row in found.rows.values()})
    line(
        console,
        f"{found.calls:,} calls to {dependencies:,} dependencies, read as {read_as}; {len(per):,} workflows make "
        f"{found.calls / len(per):.1f} on average, at most {max(per):,}",
    )
    ranked = found.ranked()
    grid(console, _HEADER, [_cells(row, found) for row in ranked[:top]], lead=3)
    if len(ranked) > top:
        left = sum(row.calls for row in ranked[top:])
        line(console, f"and {len(ranked) - top:,} rows more with {left:,} calls (--top, or --json for all)")
    if found.pooled:
        line(console, f"{found.pooled:,} calls have paths beyond the number that is told apart")


def _cells(row: Row, found: Listing) -> list[Cell]:
    p50, p95 = row.took.quantile_ns(0.5), row.took.quantile_ns(0.95)
    return [
        Cell(clean(row.dependency, 40)),
        Cell(clean(row.method, 20) or MISSING),
        Cell(clean(row.path, 60) or MISSING),
        Cell(count(row.calls)),
        Cell(percent(row.calls / found.calls)),
        *(Cell(MISSING if ns is None else f"{millis(ns / 1e6)} ms") for ns in (p50, p95)),
        Cell(_some(row.errors, row.calls), "red" if row.errors else ""),
        Cell(_some(row.retries, row.calls), "red" if row.retries else ""),
        Cell(f"{row.mean:.1f}"),
        Cell(count(row.most)),
    ]


def _some(part: int, whole: int) -> str:
    return f"{part:,} ({percent(part / whole)})" if part else "0"
