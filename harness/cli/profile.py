"""`overload profile check FILE` and `overload profile schema`: what a profile says, before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from harness.cli.options import json_option, load_profile, profile_argument, set_option, time_scale_option
from harness.machine import usable_cores
from harness.profile.describe import Description, describe
from harness.profile.errors import Problem, ProfileError
from harness.profile.loader import Loaded
from harness.profile.schema import profile_schema

STUB = "stub"


@click.group(name="profile", short_help="Check a profile, or print the schema of profiles.")
def command() -> None:
    """Says what a profile will do, and prints the JSON Schema that editors complete from. Sends nothing."""


@command.command()
@profile_argument
@click.option("--variant", metavar="NAME", help="Lay this variant of the profile over it.")
@set_option
@time_scale_option
@click.option(
    "--target",
    default=STUB,
    show_default=True,
    metavar="stub|simulator|URL",
    help="What it is meant for: rates that the bundled stub cannot be trusted with here are refused for the stub only.",
)
@json_option
def check(
    profile: Path, variant: str | None, sets: tuple[str, ...], time_scale: float, target: str, as_json: bool
) -> int:
    """Says in plain sentences what PROFILE will send, what it can become at worst, and whether it is long enough for
    the verdicts that it asks for. Sends nothing. Every variant is checked too.

    \b
    overload profile check profiles/worked_example.yaml
    overload profile check profiles/worked_example.yaml --variant fair_queues --time-scale 0.25
    overload profile check profiles/worked_example.yaml --set tenants.D.replans.rounds=3 --json
    overload profile check profiles/worked_example.yaml --time-scale 0.1 --target simulator

    Exit code 0: sound. 2: not, and every problem is on standard error.
    """
    loaded = _load_all(profile, variant, sets, time_scale)
    described = describe(loaded.profile, cores=usable_cores())
    click.echo(_json(loaded, described) if as_json else _text(loaded, described))
    if target != STUB or described.stub_refusal is None:
        return 0
    click.echo(f"{profile}: {described.stub_refusal}", err=True)
    return 2


@command.command()
def schema() -> None:
    """Prints the JSON Schema of profiles, for completion and checks in an editor.

    \b
    overload profile schema > profile.schema.json
    """
    click.echo(json.dumps(profile_schema(), indent=2, ensure_ascii=False))


def _load_all(path: Path, variant: str | None, sets: tuple[str, ...], time_scale: float) -> Loaded:
    """The profile as asked for. Asked for plainly, its variants are loaded as well: none may be broken unnoticed."""
    loaded = load_profile(path, variant, sets, time_scale)
    problems: list[Problem] = []
    for name in loaded.variants if variant is None and not sets else ():
        try:
            load_profile(path, name, sets, time_scale)
        except ProfileError as error:
            problems += error.problems
    if problems:
        raise ProfileError(dict.fromkeys(problems))
    return loaded


def _text(loaded: Loaded, described: Description) -> str:
    lines = list(described.sentences)
    if loaded.variant:
        lines.insert(1, f"With variant {loaded.variant}.")
    if loaded.time_scale != 1:
        lines.insert(1, f"At time scale {loaded.time_scale:g}: durations and rates below are scaled.")
    others = [name for name in loaded.variants if name != loaded.variant]
    if others:
        lines.append(f"Variants: {', '.join(others)}.")
    return "\n".join(lines)


def _json(loaded: Loaded, described: Description) -> str:
    out: dict[str, Any] = {"variant": loaded.variant, "time_scale": loaded.time_scale, **described.to_json()}
    return json.dumps(out, indent=2, ensure_ascii=False)
