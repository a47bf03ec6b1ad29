"""`overload judge`: what a real caller did right and wrong, from what arrived at the stand-in."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError
from rich.console import Console

from harness.callers.judge import CHECKS, Judged, judge, known
from harness.callers.log import read_log
from harness.callers.parameters import Params
from harness.checks.verdict import exit_code
from harness.cli import standing_in
from harness.cli.options import json_option
from harness.cli.output import echo_json
from harness.errors import BadInput
from harness.report.callers import callers_json, show_callers
from stub_service.provider import forms

MANIFEST = "stand_in.json"
_MOST_FOLDERS = 200


class _WithCommand(click.Command):
    """`judge DIR`, or `judge [options] -- COMMAND...`: what follows the first `--` is a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta["overload.command"] = args[place + 1 :]
            args = args[:place]
        return super().parse_args(ctx, args)


def _list(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    width = max(len(name) for name in CHECKS)
    for name, check in CHECKS.items():
        click.echo(f"{name:<{width}}  {check.judges}")
    ctx.exit(0)


@click.command(cls=_WithCommand)
@click.argument(
    "folder", type=click.Path(file_okay=False, path_type=Path), required=False, metavar="[DIR | -- COMMAND...]"
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="NAME",
    help="With a command: run it against this one, or a group (default: suite). Repeatable.",
)
@click.option(
    "--limit",
    type=click.FloatRange(0.1, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With a command: how long it may take in each scenario.",
)
@click.option("--form", type=click.Choice(forms.FORMS), help="With a command: serve this interface only.")
@click.option(
    "--evidence",
    type=click.Path(file_okay=False, path_type=Path),
    help="With a command: a new folder for what arrives (default: one under reports/).",
)
@click.option("--only", help="Only these checks, separated by commas.")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="BOUND=VALUE",
    help="Change one bound, e.g. attempts=5 or early=20ms. Repeatable.",
)
@click.option(
    "--list-checks", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="Print what is judged."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, folder: Path | None, scenarios: tuple[str, ...], limit: float, form: str | None,
    evidence: Path | None, only: str | None, sets: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Judge a caller: from the evidence in DIR, or by running a COMMAND against each scenario in turn.

    A COMMAND finds the URLs in its environment: OPENAI_BASE_URL, ANTHROPIC_BASE_URL, AWS_ENDPOINT_URL, OVERLOAD_URL,
    with credentials that name no one. It is stopped at --limit. Its own exit code is shown, and decides nothing.

    \b
    Examples:
      overload judge reports/20250102-030405-serve-down
      overload judge reports/20250102-030405-serve-down --only one_owner --set attempts=5 --json
      overload judge -- python my_agent.py
      overload judge --scenario retry_after --limit 30 -- python my_agent.py --once
    """
    params, names = _params(sets), known([name.strip() for name in (only or "").split(",") if name.strip()])
    words = ctx.meta.get("overload.command")
    if words is None:
        if folder is None:
            raise BadInput("nothing to judge: give a folder of evidence, or -- and a command to run")
        if scenarios or evidence or form:
            raise BadInput(
                "--scenario, --form and --evidence are for a command: overload judge --scenario NAME -- COMMAND"
            )
        folders = _folders(folder)
    else:
        if folder is not None or not words:
            raise BadInput("give a folder, or -- and a command: overload judge -- python my_agent.py")
        folders = _run_all(words, scenarios or ("suite",), evidence, limit, form)
    return _show([judge(str(found), _read(found), params, names) for found in folders], as_json)


def _run_all(
    words: list[str], names: tuple[str, ...], evidence: Path | None, limit_s: float, form: str | None
) -> list[Path]:  # fmt: skip
    """Runs the command once a scenario, and returns their folders."""
    chosen = standing_in.scenarios_named(names)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: with the command, in order
    base = evidence or standing_in.new_folder("judge")
    folders = []
    for number, scenario in enumerate(chosen, 1):
        standing_in.note(f"[{number}/{len(chosen)}] {scenario.name}: {scenario.about}")
        folders.append(base / scenario.name)
        asyncio.run(standing_in.run_against(scenario, folders[-1], words, limit_s, form))
    standing_in.note(f"evidence: {base}")
    return folders


def _show(judged: list[Judged], as_json: bool) -> int:
    if as_json:
        echo_json(callers_json(judged))
    else:
        show_callers(judged, Console())
    return exit_code(verdict.word for one in judged for verdict in one.verdicts)


def _params(sets: tuple[str, ...]) -> Params:
    given: dict[str, Any] = {}
    for text in sets:
        name, equals, value = text.partition("=")
        if not equals or name not in Params.model_fields:
            raise BadInput(f"--set {text}: expected BOUND=VALUE, with one of {', '.join(Params.model_fields)}")
        given[name] = value
    try:
        return Params.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(
            f"--set {first['loc'][0]}={first['input']}: {first['msg'].removeprefix('Value error, ')}"
        ) from None


def _folders(folder: Path) -> list[Path]:
    """The folder itself, or those in it that hold evidence."""
    if (folder / MANIFEST).is_file():
        return [folder]
    found = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
    if not found:
        raise BadInput(f"{folder}: holds no {MANIFEST}; give a folder that `overload serve` wrote, or one with several")
    return found[:_MOST_FOLDERS]


def _read(folder: Path) -> Any:
    try:
        with (folder / "arrivals.jsonl").open("rb") as arrivals:
            return read_log(str(folder), (folder / MANIFEST).read_bytes(), arrivals)
    except OSError as error:
        raise BadInput(f"{error.filename or folder}: cannot be read ({error.strerror})") from None
