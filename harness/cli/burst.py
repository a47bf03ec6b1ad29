"""`overload burst`: one tenant runs away for a while, the ordinary ones are watched beside it, a verdict at the end."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from harness import checks, trial
from harness.cli import options, targets
from harness.cli.metrics_port import metering, metrics_option
from harness.cli.output import show_judged
from harness.cli.outputs import Outputs, outputs_options
from harness.cli.reading import DURATION, RATE, Parsed
from harness.cli.replay import parse_replans
from harness.cli.run import run_one
from harness.errors import BadInput
from harness.profile.loader import from_document
from harness.profile.units import NS_PER_S, show_duration
from harness.recorded.document import ReplanOption
from harness.target.file import Described

DEFAULT_ORDINARY = ("ordinary-1", "ordinary-2", "ordinary-3")
RECOVERY_NS = 10_000_000_000
REPLAN_AFTER = "@500ms"


def replans_of(text: str) -> ReplanOption:
    """`2x3`, or `2x3@500ms`."""
    return parse_replans(text if "@" in text else text + REPLAN_AFTER)


def named(text: str) -> tuple[str, ...]:
    """`A,B,C`; the names of tenants themselves are checked as a profile's are."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("expected names separated by commas, such as A,B,C")
    return names


@click.command()
@targets.target_option
@click.option("--tenant", required=True, metavar="NAME", help="Who runs away.")
@click.option("--rate", type=RATE, required=True, help="What it sends in the burst: 40/s.")
@click.option("--for", "lasts", type=DURATION, default="40s", show_default=True, help="How long the burst lasts.")
@click.option("--calm", type=DURATION, help="How long before it. Default: as long as the burst.")
@click.option("--base-rate", type=RATE, help="What it sends outside the burst. Default: as an ordinary tenant.")
@click.option(
    "--replans",
    type=Parsed("NxR[@DELAY]", replans_of),
    help="Each refused or abandoned call becomes N new ones, DELAY (500ms) later, for R rounds: 2x3.",
)
@click.option(
    "--ordinary",
    type=Parsed("A,B,C", named),
    help="Who is watched. Default: the other tenants of the target file's credentials, else three made up.",
)
@click.option("--ordinary-rate", type=RATE, default="8/s", show_default=True, help="What each of them sends.")
@click.option("--patience", type=DURATION, default="2s", show_default=True, help="How long each waits for its answer.")
@click.option(
    "--policy",
    type=click.Choice(("shared_fifo", "fair_queues")),
    default="shared_fifo",
    show_default=True,
    help="Of the bundled stub (8 workers, 200 ms); a target of your own keeps its own.",
)
@options.seed_option
@options.reports_option
@targets.dry_run_option
@metrics_option
@outputs_options
@options.json_option
def command(
    target: str,
    tenant: str,
    rate: Fraction,
    lasts: int,
    calm: int | None,
    base_rate: Fraction | None,
    replans: ReplanOption | None,
    ordinary: tuple[str, ...] | None,
    ordinary_rate: Fraction,
    patience: int,
    policy: str,
    seed: int | None,
    reports: Path,
    dry_run: bool,
    metrics_port: int | None,
    outputs: Outputs,
    as_json: bool,
) -> int:
    """One tenant runs away; are the others unmoved? The exit code is the verdict.

    \b
    Examples:
      overload burst --tenant D --rate 40/s --for 20s --replans 2x3
      overload burst --tenant D --rate 40/s --for 20s --replans 2x3 --policy fair_queues
      overload burst --target http://127.0.0.1:8080 --tenant D --rate 40/s --ordinary A,B,C --ordinary-rate 16/s
      overload burst --target staging.yaml --tenant D --rate 40/s --for 40s --dry-run
    """
    where = targets.target_of(target)
    watched = ordinary if ordinary is not None else _ordinary_of(where, tenant)
    if tenant in watched:
        raise BadInput(f"--ordinary {','.join(watched)}: '{tenant}' runs away, so it cannot be among those watched")
    base = ordinary_rate if base_rate is None else base_rate
    if not ordinary_rate:
        raise BadInput("--ordinary-rate 0/s: who sends nothing cannot be hurt; give those that are watched a rate")
    if rate <= base:
        raise BadInput(
            f"--rate {_rate(rate)}: no burst, for '{tenant}' sends {_rate(base)} without it; give a higher --rate, or "
            "a lower --base-rate"
        )
    calm_ns = lasts if calm is None else calm
    if not calm_ns or not lasts:
        raise BadInput("--for and --calm must be longer than zero: the burst is judged against the calm before it")
    document = _document(tenant, rate, base, replans, watched, ordinary_rate, calm_ns, lasts, patience)
    document["seed"] = seed if seed is not None else 1
    if where == trial.STUB:
        bound = {"queue": 200} if policy == "shared_fifo" else {"queue_per_tenant": 50}
        document["service"] = {"workers": 8, "service_time": "200ms", "admission": {"policy": policy, **bound}}
    loaded = from_document(document, origin="overload burst", checks=checks.PARAMETERS)
    if dry_run:
        return targets.dry_run([loaded], where)
    with metering(metrics_port) as meter:
        judged = run_one(loaded, where, reports, meter=meter)
        return show_judged([judged], as_json, outputs, "overload burst")


def _ordinary_of(where: trial.Target, tenant: str) -> tuple[str, ...]:
    if isinstance(where, Described):
        known = tuple(name for name in where.target.credentials.tenants if name != tenant)
        if known:
            return known
    return DEFAULT_ORDINARY


def _document(
    tenant: str,
    rate: Fraction,
    base: Fraction,
    replans: ReplanOption | None,
    ordinary: tuple[str, ...],
    ordinary_rate: Fraction,
    calm_ns: int,
    lasts_ns: int,
    patience_ns: int,
) -> dict[str, Any]:
    """The profile of the burst, as somebody would write it."""
    until = calm_ns + lasts_ns
    burst = {"from": show_duration(calm_ns), "to": show_duration(until), "rate": _rate(rate)}
    runaway: dict[str, Any] = {"rate": [_rate(base), burst]}
    if replans is not None:
        again = {"calls": replans.calls, "after": show_duration(replans.after_ns), "rounds": replans.rounds}
        runaway["replans"] = again
    # Even tenants at one instant would queue behind each other in every round.
    step_ns = min(int(NS_PER_S / ordinary_rate), calm_ns) // (len(ordinary) + 1)
    steady = {
        name: {"rate": _rate(ordinary_rate), "phase": f"{place * step_ns}ns"} for place, name in enumerate(ordinary)
    }
    return {
        "name": "burst",
        "about": f"{tenant} runs away; the others are watched.",
        "duration": show_duration(until + RECOVERY_NS),
        "phases": {
            "calm": ["0s", show_duration(calm_ns)],
            "burst": [show_duration(calm_ns), show_duration(until)],
            "recovery": [show_duration(until), show_duration(until + RECOVERY_NS)],
        },
        "patience": show_duration(patience_ns),
        "patience_until": "done",
        "tenants": {**steady, tenant: runaway},
        "ordinary": list(ordinary),
        "checks": ["fairness.ordinary_unmoved", "fairness.refusals_structured", "agent.replan_share"],
    }


def _rate(rate: Fraction) -> str:
    """As a profile writes it, exactly where it can."""
    for unit, size in (("s", 1), ("m", 60), ("h", 3600)):
        if (rate * size).denominator == 1:
            return f"{int(rate * size)}/{unit}"
    return f"{float(rate):.9f}/s"
