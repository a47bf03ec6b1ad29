"""`overload report`: write a trial's reports again, offline."""

from __future__ import annotations

from pathlib import Path

import click

from harness import trial
from harness.cli.options import json_option
from harness.cli.output import show_judged


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@json_option
def command(folder: Path, as_json: bool) -> int:
    """Write report.html and report.json of the trial in DIR, and show it. The exit code is the verdict.

    \b
    Examples:
      overload report reports/20250102-030405-worked-example
    """
    return show_judged([trial.judge(folder)], as_json)
