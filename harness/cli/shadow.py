"""`overload shadow`: what a policy would have refused or delayed of a recorded log, and how many workers it takes."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from harness.cli.learn import parse_statuses
from harness.cli.output import echo_json
from harness.cli.reading import DURATION, Parsed, ReadingOptions, opened, reading_options
from harness.errors import BadInput
from harness.machine import usable_cores
from harness.recorded.account import Account
from harness.recorded.errors import printable
from harness.recorded.summary import read_lines
from harness.report.text import millis
from harness.shadow import figures, policies
from harness.shadow.figures import Tried
from harness.shadow.find import Found, Unmoved, find_workers
from harness.shadow.policies import Policy
from harness.shadow.traffic import Serving, Traffic, gather

_DEFAULT_TOP = 20
_BUSY_FACTOR = 1.3
_LONG = 100_000
"""From so many calls on, several policies are worth several processes."""


# fmt: off
@click.command()
@reading_options
@click.option("--policy", "asked", multiple=True, type=Parsed("NAME:KEY=N,...", policies.parse),
              default=("shared_fifo", "fair_queues"), show_default=True,
              help="A policy and its parameters, e.g. tenant_cap:queue=200,cap=4. Repeatable: side by side.")
@click.option("--workers", type=click.IntRange(1, 1_000_000),
              help="Workers of the service. Default: 1.3 times what is busy on average.")
@click.option("--service-time", type=DURATION, default="100ms", show_default=True,
              help="How long a call takes, where the log has no duration.")
@click.option("--ignore-durations", is_flag=True, help="Take --service-time for every call.")
@click.option("--cost-base", type=DURATION, help="With recorded cost: what every call takes (with --cost-per-unit).")
@click.option("--cost-per-unit", type=DURATION, help="With recorded cost: and this for each unit of its cost.")
@click.option("--patience", type=DURATION, help="How long callers wait to be started. Default: for ever.")
@click.option("--refusals", type=Parsed("STATUS,...", parse_statuses), default="429,503", show_default=True,
              help="Statuses by which the log says that a call was refused.")
@click.option("--find", type=click.Choice(["workers"]),
              help="The smallest number of workers at which ordinary tenants are unmoved.")
@click.option("--noisy", multiple=True, metavar="TENANT", help="Not an ordinary tenant. Repeatable. Default: none is.")
@click.option("--lost-margin", type=click.FloatRange(0.01, 50), default=1.0, show_default=True, metavar="PERCENT",
              help="Unmoved: fewer of their calls are refused or abandoned than this.")
@click.option("--wait-margin", type=DURATION, help="Unmoved: they wait less than this. Default: half a service time.")
@click.option("--window", type=DURATION, default="60s", show_default=True,
              help="Unmoved: all of them together also in their worst window of this length.")
@click.option("--forecast", is_flag=True,
              help="Judge a cost forecast on the recorded cost instead of policies: static against learning.")
@click.option("--basis", type=click.IntRange(1, 10**12), help="--forecast: cost of a call. Default: of the first 100.")
@click.option("--forecast-weight", type=click.FloatRange(0, 1, min_open=True), default=0.2, show_default=True,
              help="--forecast: how much of each error is taken over.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Write charts and table here.")
@click.option("--jobs", type=click.IntRange(1, 256), default=usable_cores(), help="Processes for several policies.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True,
              help="Of spreading calls over a second.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on standard output.")
def command(
    reading: ReadingOptions,
    asked: tuple[Policy, ...],
    workers: int | None,
    patience: int | None,
    refusals: frozenset[int],
    find: str | None,
    noisy: tuple[str, ...],
    lost_margin: float,
    wait_margin: int | None,
    window: int,
    forecast: bool,
    basis: int | None,
    forecast_weight: float,
    page: Path | None,
    jobs: int,
    seed: int,
    as_json: bool,
    **service: Any,
) -> int:
    """Play a recorded log against admission policies in virtual time: who would have been refused, who delayed.

    Nothing is sent. Beside what each policy does stands what the log says was refused. The busiest tenants (--top, 20
    unless given) are shown one by one, the others pooled. docs/shadow.md says what is assumed.

    \b
    Examples:
      overload shadow access.log --policy fair_queues --workers 8 --service-time 100ms
      overload shadow access.log --policy fair_queues:queue=50 --policy shared_fifo:queue=200 --html shadow.html
      overload shadow access.log --policy fair_queues --find workers --noisy 198.18.0.7 --service-time 2s
      overload shadow calls.jsonl --map time=ts,tenant=auth.sub,duration=took_ms --json
      overload shadow code.csv chat.csv --tenant file --map time=TIMESTAMP,cost=GeneratedTokens --forecast
    """
    if basis is not None and not forecast:
        raise BadInput("--basis belongs to --forecast; add it")
    serving = _serving(**service)
    account = Account()
    with opened(reading.logs) as sources:
        traffic = gather(
            sources, reading.reading(seed, paths=False), account, serving, reading.begin, reading.end,
            reading.squeeze_ns, reading.top or _DEFAULT_TOP, noisy, reading.max_broken, refusals,
        )  # fmt: skip
    if forecast:
        from harness.cli.forecast import judge_forecast

        return judge_forecast(traffic, account, basis, forecast_weight, as_json)
    count = workers or max(1, math.ceil(_BUSY_FACTOR * traffic.service_ns.sum(dtype=float) / traffic.duration_ns))
    said = f"{_service_text(traffic, service)}, {count:,} workers" + (
        "" if workers else f" ({_BUSY_FACTOR:g} x the mean)"
    )
    asked = tuple({policy.text: policy for policy in asked}.values())
    rule = _rule(traffic, noisy, lost_margin, wait_margin, window, patience)
    found = _tried(traffic, asked, count, patience, jobs)
    searched = _searched(traffic, asked, rule) if find else []
    if page is not None:
        _write(page, traffic, found, searched, reading, said)
    if as_json:
        echo_json({
            "account": account.as_json(), **figures.as_json(traffic, found),
            **({"find": [_found_json(one) for one in searched]} if find else {}),
        })  # fmt: skip
    else:
        _show(account, traffic, found, searched, said, patience is not None, page)
    return 1 if any(one.workers is None for one in searched) else 0


def _serving(service_time: int, ignore_durations: bool, cost_base: int | None, cost_per_unit: int | None) -> Serving:
    if cost_per_unit is None and cost_base is not None:
        raise BadInput("--cost-base belongs to --cost-per-unit; add it, or use --service-time")
    if not service_time:
        raise BadInput("--service-time: a service time is above zero")
    return Serving(service_time, not ignore_durations, cost_per_unit, cost_base or 0)


def _service_text(traffic: Traffic, given: dict[str, Any]) -> str:
    mean = f"{millis(float(traffic.service_ns.mean()) / 1e6)} ms a call"
    if given["cost_per_unit"] is not None:
        return f"{mean} from the cost of {traffic.measured:,} calls"
    if traffic.measured:
        return f"{mean}, from the log for {traffic.measured:,} calls"
    return f"{mean}, as given"


def _rule(
    traffic: Traffic, noisy: Sequence[str], lost: float, wait_ns: int | None, window_ns: int, patience_ns: int | None
) -> Unmoved:
    from harness.measure.intervals import lossless_needs, z_of

    if not window_ns or wait_ns == 0:
        raise BadInput("--window and --wait-margin are above zero")
    places = tuple(figures.tenant_places(traffic, noisy, "--noisy"))
    if len(places) == len(traffic.tenants):
        raise BadInput("--noisy: every tenant is noisy, none is left that could be hurt; name fewer")
    margin_ns = float(traffic.service_ns.mean()) / 2 if wait_ns is None else float(wait_ns)
    confidence = 0.95
    least = lossless_needs(lost / 100, z_of(confidence))
    return Unmoved(lost / 100, margin_ns, confidence, window_ns, least, places, patience_ns)


def _tried(traffic: Traffic, asked: Sequence[Policy], workers: int, patience_ns: int | None, jobs: int) -> list[Tried]:
    if len(asked) == 1 or jobs == 1 or len(traffic) < _LONG:
        return [figures.tried(traffic, policy, workers, patience_ns) for policy in asked]
    from harness.cli.interrupting import worker_pool

    with worker_pool(min(jobs, len(asked))) as pool:
        futures = [pool.submit(figures.tried, traffic, policy, workers, patience_ns) for policy in asked]
        return [future.result() for future in futures]


def _searched(traffic: Traffic, asked: Sequence[Policy], rule: Unmoved) -> list[Found]:
    from harness.report.progress import CountProgress

    telling = CountProgress("trials of --find", 20 * len(asked), Console(file=sys.stderr))
    with telling if len(traffic) > 50_000 else nullcontext(lambda more=1: None) as advance:
        return [find_workers(traffic, policy, rule, lambda workers: advance(1)) for policy in asked]


def _show(
    account: Account,
    traffic: Traffic,
    found: Sequence[Tried],
    searched: Sequence[Found],
    said: str,
    patient: bool,
    page: Path | None,
) -> None:
    from harness.shadow import view

    console = Console()
    for text in read_lines(account):
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    view.show(traffic, found, said, patient, console)
    for one in searched:
        view.show_found(one, console)
    if page is not None:
        console.print(f"charts    {page}", markup=False, highlight=False, soft_wrap=True)


def _write(
    path: Path, traffic: Traffic, found: Sequence[Tried], searched: Sequence[Found], reading: ReadingOptions, said: str
) -> None:
    from harness.shadow.page import page

    names = ", ".join(log.name for log in reading.logs)
    try:
        path.write_text(page(traffic, found, searched, f"What if: {printable(names, 100)}", said), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror}); give --html another file") from None


def _found_json(found: Found) -> dict[str, Any]:
    rule = asdict(found.rule)
    del rule["noisy"]
    return {
        "policy": found.policy.text,
        "workers": found.workers,
        "monotone": found.monotone,
        "judged": found.judged,
        "not_judged": found.not_judged,
        "unmoved": rule,
        "tried": [asdict(point) for point in found.points],
    }
