"""`overload replay`: recorded traffic, with or without a runaway laid over it, against a service; then the verdict."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.cli import targets
from harness.cli.metrics_port import Meter, metering, metrics_option
from harness.cli.reading import DURATION, RATE, SPEED, Parsed, ReadingOptions, opened, reading_options
from harness.errors import BadInput
from harness.profile.units import parse_duration
from harness.recorded import document, schedule
from harness.recorded.document import ReplanOption, ServiceOption
from harness.recorded.errors import printable
from harness.recorded.prepare import Plan, Prepared, Runaway, prepare
from harness.recorded.summary import LONG_NS, account_lines, prepared_json, takes_long

if TYPE_CHECKING:
    from harness.profile.loader import Loaded
    from harness.trial import Judged, Target

ACCOUNT = "recorded.json"
"""In the trial's folder: what became of every line of the log."""
KEY_VARIABLE = "OVERLOAD_ANONYMISE_KEY"
POLICIES = tuple(document.DEFAULT_QUEUE)
_SHOWN_TENANTS = 20


def parse_amplify(text: str) -> tuple[str, int]:
    """`TENANT=3`; the tenant may hold `=`."""
    tenant, equals, factor = text.rpartition("=")
    if not equals or not tenant or not re.fullmatch(r"[0-9]{1,4}", factor) or not 1 <= int(factor) <= 1000:
        raise ValueError("expected TENANT=N, N from 1 to 1000")
    return tenant, int(factor)


def parse_replans(text: str) -> ReplanOption:
    """`2x3@500ms`: 2 calls for each that failed, at most 3 rounds, 500 ms later."""
    match = re.fullmatch(r"(\d{1,3})x(\d{1,2})@(.+)", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= 100 or not 1 <= int(match[2]) <= 20:
        raise ValueError("expected CALLSxROUNDS@DELAY such as 2x3@500ms (up to 100 calls and 20 rounds)")
    return ReplanOption(int(match[1]), int(match[2]), parse_duration(match[3]))


def parse_size_for(text: str) -> tuple[str, Fraction]:
    """`calm:1.3`: the window, and how many times its mean load there shall be capacity for."""
    match = re.fullmatch(r"(calm|burst|recovery|all):(\d{1,3}(?:\.\d{1,3})?)", text, re.ASCII)
    if match is None or Fraction(match[2]) <= 0:
        raise ValueError("expected WINDOW:FACTOR such as calm:1.3 (calm, burst, recovery or all)")
    return match[1], Fraction(match[2])


@dataclass(frozen=True, slots=True)
class ServiceChoice:
    """One option of these three decides the workers: workers, size_for, profile (its service as it stands)."""

    options: ServiceOption
    workers: int | None
    size_for: tuple[str, Fraction]
    profile: Path | None


@click.command()
@reading_options
@click.option("--speed", type=SPEED, default="1", show_default=True, help="Replay so many times as fast (4, 0.5).")
@click.option(
    "--amplify",
    "amplified",
    multiple=True,
    type=Parsed("TENANT=N", parse_amplify),
    help="Each call of the tenant becomes N, spread over a second of the log. Repeatable.",
)
@click.option(
    "--anonymise",
    is_flag=True,
    help=f"Names become keyed hashes, paths keep their depth only. Key: ${KEY_VARIABLE}, else a fresh one.",
)
@click.option("--runaway", metavar="TENANT", help="Lay a runaway over this tenant.")
@click.option("--runaway-rate", type=RATE, help="Its further calls, evenly spaced: 200/s.")
@click.option("--runaway-from", type=DURATION, help="From when in the trial. Default: after a third.")
@click.option("--runaway-to", type=DURATION, help="Until when in the trial. Default: after two thirds.")
@click.option(
    "--runaway-replans",
    type=Parsed("NxR@DELAY", parse_replans),
    help="Each failed call becomes N new ones, DELAY later, for R rounds: 2x3@500ms.",
)
@click.option("--runaway-cost", type=click.FloatRange(0), help="Cost of each. Default: the mean of that tenant.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICIES),
    default=("shared_fifo",),
    show_default=True,
    help="Admission of the service. Repeatable: one trial each.",
)
@click.option("--workers", type=click.IntRange(1, 1_000_000), help="Workers of the service.")
@click.option(
    "--size-for",
    type=Parsed("WINDOW:FACTOR", parse_size_for),
    default="calm:1.3",
    show_default=True,
    help="Without --workers: enough for the mean load of a window, times a factor.",
)
@click.option("--service-time", type=DURATION, default="20ms", show_default=True, help="How long a call takes.")
@click.option("--cost-base", type=DURATION, help="With recorded cost: what every call takes (with --cost-per-unit).")
@click.option("--cost-per-unit", type=DURATION, help="With recorded cost: and this for each unit of its cost.")
@click.option("--cost-cap", type=DURATION, help="With recorded cost: at most this.")
@click.option(
    "--queue",
    type=click.IntRange(1, 10_000_000),
    help="Bound of the queue (fair_queues: of each tenant's). Default 200 (50).",
)
@click.option("--cap", type=click.IntRange(1, 1_000_000), help="tenant_cap: running calls a tenant. Default: half.")
@click.option(
    "--service",
    "service_profile",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PROFILE",
    help="Take the service of this profile instead of the options above.",
)
@click.option("--patience", type=DURATION, help="How long callers wait before they abandon. Default: for ever.")
@click.option(
    "--patience-until",
    type=click.Choice(["start", "done"]),
    default="start",
    show_default=True,
    help="Patience ends when the call is started, or when it is done.",
)
@targets.target_option
@click.option("--simulate", is_flag=True, help="In virtual time instead: nothing is sent.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing.")
@click.option(
    "--reports",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports"),
    show_default=True,
    help="Where the trial's folder is made.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True, help="Of all that is drawn.")
@metrics_option
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on standard output.")
def command(
    reading: ReadingOptions,
    runaway: str | None,
    runaway_rate: Fraction | None,
    runaway_from: int | None,
    runaway_to: int | None,
    runaway_replans: ReplanOption | None,
    runaway_cost: float | None,
    speed: Fraction,
    amplified: tuple[tuple[str, int], ...],
    anonymise: bool,
    policies: tuple[str, ...],
    patience: int | None,
    patience_until: str,
    target: str,
    simulate: bool,
    dry_run: bool,
    reports: Path,
    seed: int,
    metrics_port: int | None,
    as_json: bool,
    **service: Any,
) -> int:
    """Replay recorded traffic against a service, judge it, and write a report. The exit code is the verdict.

    Reads Apache and nginx access logs, JSON Lines, CSV and HAR (plain or gzip; - is standard input). Applied in this
    order: window, squeeze, speed, top, amplify, runaway, anonymise. docs/recorded.md says what each does.

    \b
    Examples:
      overload replay access.log --tenant remote_addr --top 20 --squeeze-gaps 5s --speed 10 --simulate
      overload replay access.log --top 4 --squeeze-gaps 5s --speed 60 --runaway 198.18.0.7 --runaway-rate 200/s
      overload replay code.csv chat.csv --map time=TIMESTAMP,cost=GeneratedTokens --cost-per-unit 1ms
      overload replay access.log --top 4 --target staging.yaml --dry-run
    """
    from harness.cli.interrupting import until_interrupted

    over = _runaway(runaway, runaway_rate, runaway_from, runaway_to, runaway_replans, runaway_cost)
    key = os.environ.get(KEY_VARIABLE, "").encode() or secrets.token_bytes(32)
    plan = Plan(
        reading.begin, reading.end, reading.squeeze_ns, speed, reading.top, dict(amplified), over,
        key if anonymise else None, seed,
    )  # fmt: skip
    choices = [_service_choice(policy, service) for policy in dict.fromkeys(policies)]
    if service["service_profile"] is not None and len(choices) > 1:
        raise BadInput("--service brings its own policy; leave --policy out")
    where = "simulator" if simulate else targets.target_of(target)
    ours = where in ("simulator", "stub")
    if len(choices) > 1 and not ours:
        raise BadInput("--policy: a target of its own keeps its policy; leave --policy out, or use --simulate")
    with tempfile.TemporaryDirectory(prefix="overload-schedule-") as temporary:
        folder = Path(temporary) / schedule.FOLDER
        with opened(reading.logs) as sources:
            prepared = prepare(sources, reading.reading(seed), plan, folder, reading.max_broken)
        name = reading.logs[0].name.removesuffix(".gz").rpartition(".")[0] or reading.logs[0].name
        documents = [
            _document(prepared, folder, name, choice, patience, patience_until, runaway_replans, seed)
            for choice in choices
        ]
        if not as_json:
            _show(prepared, [note for _, note in documents if ours], runaway_replans, Console())
        _announce([_loaded(made, name) for made, _ in documents], where, prepared, folder)
        if dry_run:
            return _dry(prepared, [made for made, _ in documents], as_json)
        if not simulate and prepared.duration_ns > LONG_NS:
            click.echo(f"note: {takes_long(prepared)}", err=True)
        if where == "stub":
            _refuse_over_limit(prepared, runaway_replans)
        account = prepared_json(prepared)
        with metering(metrics_port) as meter:
            trials = (_run(_loaded(made, name), folder, account, where, reports, meter) for made, _ in documents)
            return _finish(prepared, until_interrupted(trials), as_json)


def _runaway(
    tenant: str | None,
    rate: Fraction | None,
    from_ns: int | None,
    to_ns: int | None,
    replans: ReplanOption | None,
    cost: float | None,
) -> Runaway | None:
    if tenant is None:
        if any(value is not None for value in (rate, from_ns, to_ns, replans, cost)):
            raise BadInput("--runaway-…: no tenant runs away; add --runaway TENANT")
        return None
    if not rate:
        raise BadInput("--runaway: at what rate? add --runaway-rate, such as 200/s")
    return Runaway(tenant, rate, from_ns, to_ns, cost)


def _service_choice(policy: str, given: dict[str, Any]) -> ServiceChoice:
    by_cost = given["cost_per_unit"] is not None
    if not by_cost and (given["cost_base"] is not None or given["cost_cap"] is not None):
        raise BadInput("--cost-base and --cost-cap belong to --cost-per-unit; add it, or use --service-time")
    time_ns = (given["cost_base"] or 0) if by_cost else given["service_time"]
    if not by_cost and not time_ns:
        raise BadInput("--service-time: a service time is above zero")
    options = ServiceOption(
        policy, time_ns, given["cost_per_unit"], given["cost_cap"], given["queue"],
        given["cap"] if policy == "tenant_cap" else None,
    )  # fmt: skip
    return ServiceChoice(options, given["workers"], given["size_for"], given["service_profile"])


def _document(
    prepared: Prepared,
    folder: Path,
    name: str,
    choice: ServiceChoice,
    patience_ns: int | None,
    patience_until: str,
    replans: ReplanOption | None,
    seed: int,
) -> tuple[dict[str, Any], str]:
    """(the profile's document, one sentence on the service)."""
    if choice.profile is not None:
        from harness.profile.loader import load

        service = load(choice.profile).document.get("service")
        if service is None:
            raise BadInput(f"{choice.profile}: describes no service; add `service:`, or use --workers and --policy")
        note = f"service of {choice.profile}"
    elif choice.workers is not None:
        service = document.service_document(choice.options, choice.workers)
        note = f"{choice.options.policy}, {choice.workers} workers as asked"
    else:
        sizing = document.size(prepared, schedule.source(folder), *choice.size_for, choice.options)
        service = document.service_document(choice.options, sizing.workers)
        note = f"{choice.options.policy}, {sizing}"
    full = name if choice.profile is not None else f"{name}-{choice.options.policy}"
    made = document.replay_document(prepared, full, service, patience_ns, patience_until, replans, seed)
    return made, note


def _loaded(made: dict[str, Any], name: str) -> Loaded:
    from harness import checks
    from harness.profile.loader import from_document

    return from_document(made, origin=f"the replay of {printable(name, 80)}", checks=checks.PARAMETERS)


def _announce(loads: Sequence[Loaded], where: Target, prepared: Prepared, prepared_schedule: Path) -> None:
    """Of a target of one's own: the banner, and every rail that forbids the replay, before anything is sent."""
    from harness.trial import recorded_peaks

    planned = {tenant.name: tenant.recorded + tenant.added for tenant in prepared.tenants}
    for loaded in loads:
        calls = {
            name: planned.get(name, 0) for name, tenant in loaded.profile.tenants.items() if tenant.recorded is not None
        }
        targets.announce(loaded, where, recorded_peaks(loaded, prepared_schedule.parent), calls)


def _run(
    loaded: Loaded, prepared_schedule: Path, account: dict[str, Any], target: Target, reports: Path, meter: Meter
) -> Judged:
    """One trial: its folder gets its own copy of schedule and account first, so that it stays complete by itself."""
    from harness import trial
    from harness.cli.output import live_progress, silent

    folder = trial.new_folder(reports, loaded.profile.name)
    shutil.copytree(prepared_schedule, folder / schedule.FOLDER)
    (folder / ACCOUNT).write_bytes(orjson.dumps(account, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    quiet = target == trial.SIMULATOR
    with silent() if quiet else live_progress(loaded.profile, loaded.profile.name) as on_progress:
        return trial.run(loaded, folder, target, None, meter(loaded, on_progress))


def _refuse_over_limit(prepared: Prepared, replans: ReplanOption | None) -> None:
    from harness.machine import usable_cores
    from harness.profile.demand import stub_limit_per_s

    worst, most = document.worst_rate_per_s(prepared, replans), stub_limit_per_s(usable_cores())
    if worst > most:
        raise BadInput(
            f"the busiest second could reach {worst:,} calls, and the bundled stub is to be trusted with {most:,}/s "
            "on this machine; lower --speed, --runaway-rate or --runaway-replans, or use --simulate"
        )


def _finish(prepared: Prepared, judged: Sequence[Judged], as_json: bool) -> int:
    from harness.cli.output import echo_json, show_judged
    from harness.report.json_report import report_json

    if not as_json:
        return show_judged(judged, False)
    from harness.checks.verdict import exit_code

    code = exit_code(verdict.word for one in judged for verdict in one.verdicts)
    trials = [report_json(one.trial, one.verdicts) for one in judged]
    echo_json({"exit_code": code, "recorded": prepared_json(prepared), "trials": trials})
    return code


def _dry(prepared: Prepared, documents: Sequence[dict[str, Any]], as_json: bool) -> int:
    if as_json:
        from harness.cli.output import echo_json

        echo_json({"exit_code": 0, "recorded": prepared_json(prepared), "profiles": documents})
    else:
        click.echo("nothing was sent (--dry-run)")
    return 0


def _show(prepared: Prepared, services: Sequence[str], replans: ReplanOption | None, console: Console) -> None:
    for line in account_lines(prepared):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading in ("tenant", "recorded", "added", "planned", "refused then"):
        table.add_column(heading, justify="left" if heading == "tenant" else "right", overflow="fold")
    for tenant in prepared.tenants[:_SHOWN_TENANTS]:
        counts = (tenant.recorded, tenant.added, tenant.recorded + tenant.added, tenant.refused)
        mark = "  (runaway)" if prepared.runaway and tenant.name == prepared.runaway.tenant else ""
        table.add_row(escape(tenant.name) + mark, *(f"{count:,}" for count in counts))
    console.print(table)
    if len(prepared.tenants) > _SHOWN_TENANTS:
        console.print(f"and {len(prepared.tenants) - _SHOWN_TENANTS} tenants more")
    worst = document.worst_rate_per_s(prepared, replans)
    amplified = f"; {worst:,} if every call of the runaway fails" if worst > prepared.peak_per_s else ""
    notes = [f"busiest   {prepared.peak_per_s:,} calls in one second{amplified}"]
    for line in [*notes, *(f"service   {text}" for text in services)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
