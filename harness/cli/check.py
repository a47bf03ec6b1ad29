"""`overload check`: judge a trial's folder again, offline."""

from __future__ import annotations

from pathlib import Path

import click

from harness import trial
from harness.cli.options import json_option
from harness.cli.output import show_judged
from harness.cli.outputs import Outputs, outputs_options


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@click.option("--only", help="Only these checks, separated by commas.")
@outputs_options
@json_option
def command(folder: Path, only: str | None, outputs: Outputs, as_json: bool) -> int:
    """Judge the trial in DIR from its files alone. The exit code is the verdict.

    \b
    Examples:
      overload check reports/20250102-030405-worked-example
      overload check reports/20250102-030405-worked-example --only fairness.ordinary_unmoved --json
      overload check reports/20250102-030405-worked-example --junit out.xml --markdown summary.md
    """
    names = [name.strip() for name in only.split(",") if name.strip()] if only else None
    return show_judged([trial.judge(folder, names, write=False)], as_json, outputs, "overload check")
