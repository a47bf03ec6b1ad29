"""`overload run`: drive a profile over real HTTP, and judge it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from harness import trial
from harness.checks.agreement import agreement
from harness.cli import options, targets
from harness.cli.distribution import announcing, page_of, web_options, workers_of, workers_options
from harness.cli.interrupting import until_interrupted
from harness.cli.metrics_port import Meter, metering, metrics_option
from harness.cli.output import live_progress, show_judged
from harness.cli.outputs import Outputs, outputs_options
from harness.ledger.reader import read_trial
from harness.profile.loader import Loaded
from harness.target.driver_process import ALONE, Workers


@click.command()
@options.profile_argument
@targets.target_option
@targets.dry_run_option
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="A variant of the profile. Repeatable.")
@options.set_option
@options.time_scale_option
@options.seed_option
@options.reports_option
@options.defect_option
@workers_options
@click.option("--against-simulation", is_flag=True, help="Hold the trial against its simulation, side by side.")
@metrics_option
@web_options
@outputs_options
@options.json_option
def command(
    profile: Path,
    target: str,
    dry_run: bool,
    variants: tuple[str, ...],
    sets: tuple[str, ...],
    time_scale: float,
    seed: int | None,
    reports: Path,
    defect: str | None,
    workers: int,
    remote_workers: int,
    listen: str,
    join_within: float,
    against_simulation: bool,
    metrics_port: int | None,
    web_ui: bool,
    web_port: int | None,
    outputs: Outputs,
    as_json: bool,
) -> int:
    """Drive PROFILE over real HTTP with Locust, judge it, and write a report. The exit code is the verdict.

    \b
    Examples:
      overload run profiles/worked_example.yaml --time-scale 0.25
      overload run profiles/worked_example.yaml --time-scale 0.25 --variant fair_queues --against-simulation
      overload run profiles/steady.yaml --target http://127.0.0.1:8080 --json
      overload run profiles/worked_example_x8.yaml --workers 2
      overload run profiles/worked_example.yaml --time-scale 0.25 --web-ui --metrics-port 9108
      overload run profiles/steady.yaml --junit out.xml --markdown summary.md --annotations github
      overload run profiles/steady.yaml --target docs/examples/nginx/target.yaml --dry-run
    """
    driven_by = replace(workers_of(workers, remote_workers, listen, join_within), page=page_of(web_ui, web_port))
    loads = [options.load_profile(profile, name, sets, time_scale, seed) for name in variants or (None,)]
    where = targets.target_of(target)
    if dry_run:
        return targets.dry_run(loads, where)
    if isinstance(where, str) and where != trial.STUB and time_scale != 1:
        click.echo(
            f"note: --time-scale {time_scale:g} scales what the callers do. The service at {target} keeps its own "
            f"times; a stub is scaled alike by: overload stub {profile} --time-scale {time_scale:g}",
            err=True,
        )
    with metering(metrics_port) as meter:
        trials = (run_one(loaded, where, reports, defect, against_simulation, driven_by, meter) for loaded in loads)
        return show_judged(until_interrupted(trials), as_json, outputs, "overload run")


def run_one(
    loaded: Loaded,
    target: trial.Target,
    reports: Path,
    defect: str | None = None,
    against: bool = False,
    workers: Workers = ALONE,
    meter: Meter = lambda loaded, on_progress: on_progress,
) -> trial.Judged:
    """One live trial with its progress shown; with `against`, its simulation beside it."""
    targets.announce(loaded, target)
    name = loaded.profile.name + (f"-{loaded.variant}" if loaded.variant else "")
    folder = trial.new_folder(reports, name)
    with live_progress(loaded.profile, name) as on_progress:
        judged = trial.run(loaded, folder, target, defect, announcing(meter(loaded, on_progress)), workers)
    if not against or judged.interrupted:
        return judged
    simulated = trial.new_folder(reports, f"{name}-simulated")
    trial.simulate(loaded, simulated, defect)
    return judged.with_verdict(agreement(judged.trial, read_trial(simulated)))
