"""`overload simulate`: a profile and its variants in virtual time, one table, and the ensemble beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console

from harness import trial
from harness.checks.verdict import exit_code
from harness.cli import options
from harness.cli.interrupting import until_interrupted, worker_pool
from harness.cli.output import echo_json, show_judged
from harness.errors import BadInput
from harness.ledger.outcomes import TERMINAL
from harness.ledger.reader import Trial
from harness.machine import usable_cores
from harness.measure.tally import Tally
from harness.profile.loader import Loaded, variant_names
from harness.profile.model import Profile
from harness.report.capacity import capacity_of
from harness.report.capacity_text import variants_table
from harness.report.json_report import report_json
from harness.report.progress import CountProgress
from harness.report.terminal import show, worked_example_table
from harness.report.variants import FIELDS, Spread, VariantRow, variants_json
from harness.simulate.ensemble import Figures, figures_of, member
from harness.simulate.record import has_runs

BASE = "base"

PUBLISHED: dict[str, dict[str, float]] = {
    BASE: {
        "ordinary_served": 0.842, "worst_ordinary": 0.767, "agent_offers": 14_092, "replans": 11_852, "held_back": 0,
    },
    "no_replans": {"ordinary_served": 0.885, "agent_offers": 2_240, "replans": 0, "held_back": 0},
    "tenant_cap": {"ordinary_served": 0.898, "held_back": 0},
    "fair_queues": {
        "ordinary_served": 1.0, "worst_ordinary": 1.0, "agent_offers": 24_816, "replans": 22_576, "held_back": 0,
    },
    "budget": {"ordinary_served": 1.0, "worst_ordinary": 1.0, "agent_offers": 1_049, "replans": 0, "held_back": 1_191},
    "workers_doubled": {
        "ordinary_served": 1.0, "worst_ordinary": 1.0, "agent_offers": 2_240, "replans": 0, "held_back": 0,
    },
}  # fmt: skip
"""What was published for the worked example. Shown beside what comes out, never aimed at."""


@click.command()
@options.profile_argument
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only these variants. Default: all of them.")
@options.set_option
@options.time_scale_option
@options.seed_option
@options.reports_option
@options.defect_option
@click.option("--ensemble", type=click.IntRange(0, 100_000), default=0, metavar="N",
              help="N further trials of each row with the tenants' phases drawn at random (seeded).")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 256), default=usable_cores(), help="Processes for the ensemble.")
@click.option("--verbose", is_flag=True, help="The verdicts and tables of every row, not the comparison only.")
@options.json_option
def command(
    profile: Path,
    variants: tuple[str, ...],
    sets: tuple[str, ...],
    time_scale: float,
    seed: int | None,
    reports: Path,
    defect: str | None,
    ensemble: int,
    jobs: int,
    verbose: bool,
    as_json: bool,
) -> int:
    """Run PROFILE and its variants in virtual time: same policies, same callers, seconds instead of minutes.

    One trajectory of an overloaded service is not a prediction: with evenly spaced calls it hangs on the order of calls
    that are due in the same instant. `--ensemble 200` draws the tenants' phases and shows median and range.

    \b
    Examples:
      overload simulate profiles/worked_example.yaml
      overload simulate profiles/worked_example.yaml --ensemble 200
      overload simulate profiles/worked_example.yaml --variant fair_queues --verbose
      overload simulate profiles/worked_example.yaml --json
    """
    names: list[str | None] = list(variants) or [None, *variant_names(profile)]
    loads = [options.load_profile(profile, name, sets, time_scale, seed) for name in names]
    judged = until_interrupted(_simulated(loaded, reports, defect) for loaded in loads)
    if judged[-1].interrupted:
        return show_judged(judged[-1:], as_json)
    if all(has_runs(loaded.profile) for loaded in loads):
        if ensemble:
            raise BadInput("--ensemble draws the phases of tenants that call a shared service; this profile has runs")
        return _show_runs(judged, verbose, as_json)
    spreads = list(_ensembles(loads, ensemble, jobs))
    rows = [
        _row(loaded, one, figures_of(loaded.profile, _counted(one.trial)), ensemble, spread)
        for loaded, one, spread in zip(loads, judged, spreads, strict=True)
    ]
    code = exit_code(verdict.word for one in judged for verdict in one.verdicts)
    if as_json:
        trials = [report_json(one.trial, one.verdicts) for one in judged]
        echo_json({"exit_code": code, "rows": variants_json(rows), "trials": trials})
        return code
    console = Console()
    if verbose or len(judged) == 1:
        for one in judged:
            show(one.trial, one.verdicts, console)
    worked_example_table(rows, console)
    for one in judged:
        console.print(f"{one.word.value:12}  {one.trial.folder}", soft_wrap=True, highlight=False, markup=False)
    return code


def _simulated(loaded: Loaded, reports: Path, defect: str | None) -> trial.Judged:
    folder = trial.new_folder(reports, loaded.profile.name + (f"-{loaded.variant}" if loaded.variant else ""))
    return trial.run(loaded, folder, trial.SIMULATOR, defect)


def _counted(trial: Trial) -> Tally:
    """The trial's own calls, as an ensemble counts those of its members."""
    tally, calls = Tally(list(trial.tenants)), trial.calls
    columns = (calls.tenant, calls.round, calls.outcome, calls.queue_wait_ns)
    for tenant, round_, outcome, wait_ns in zip(*(column.tolist() for column in columns), strict=True):
        row = tally.tenants[tenant]
        row.due += 1
        row.replans += round_ > 0
        row.end(TERMINAL[outcome], wait_ns)
    return tally


def _show_runs(judged: list[trial.Judged], verbose: bool, as_json: bool) -> int:
    """Trials of a capacity layer: what was published for the worked example says nothing of them."""
    if verbose or as_json or len(judged) == 1:
        return show_judged(judged, as_json)
    console = Console()
    found = [(one.trial.manifest.get("variant") or BASE, one.word.value, capacity_of(one.trial)) for one in judged]
    variants_table([(name, word, made) for name, word, made in found if made is not None], console)
    for one in judged:
        console.print(f"{one.word.value:12}  {one.trial.folder}", soft_wrap=True, highlight=False, markup=False)
    return exit_code(verdict.word for one in judged for verdict in one.verdicts)


def _row(loaded: Loaded, judged: trial.Judged, made: Figures, members: int, spread: Mapping[str, Spread]) -> VariantRow:
    name = loaded.variant or BASE
    return VariantRow(
        name=name,
        ordinary_served=made.ordinary_served,
        worst_ordinary=made.worst_ordinary,
        agent_offers=made.agent_offers,
        replans=made.replans,
        held_back=made.held_back,
        worker_seconds=made.worker_s,
        word=judged.word.value,
        trials=members,
        ensemble=spread,
        published=PUBLISHED.get(name, {}) if loaded.profile.name == "worked-example" else {},
    )


def _ensembles(loads: list[Loaded], members: int, jobs: int) -> Iterator[dict[str, Spread]]:
    """For each profile the spread of every field over its ensemble; {} without one."""
    if not members:
        yield from ({} for _ in loads)
        return
    console = Console(file=sys.stderr)
    with worker_pool(jobs) as pool, CountProgress("ensemble", len(loads) * members, console) as advance:
        for loaded in loads:
            yield _ensemble(loaded.profile, members, pool, advance)


def _ensemble(
    profile: Profile, members: int, pool: ProcessPoolExecutor, advance: Callable[[int], Any]
) -> dict[str, Spread]:
    futures = [pool.submit(_members, profile, range(at, min(at + 5, members))) for at in range(0, members, 5)]
    made: list[Figures] = []
    for future in futures:
        batch = future.result()
        made += batch
        advance(len(batch))
    columns: dict[str, list[float]] = {
        name: [value for one in made if (value := _values(one)[name]) is not None] for name in FIELDS
    }
    return {name: Spread(median(values), min(values), max(values)) for name, values in columns.items() if values}


def _members(profile: Profile, numbers: range) -> list[Figures]:
    return [member(profile, profile.seed, number) for number in numbers]


def _values(made: Figures) -> dict[str, float | None]:
    values = asdict(made)
    return {**values, "worker_seconds": values["worker_s"]}
