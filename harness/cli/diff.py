"""`overload diff`: what changed between a baseline and a later trial, as far as the evidence goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from harness.baseline.compare import Margins, compare
from harness.baseline.view import document, results, show
from harness.cli.baseline import folder_option, read_side
from harness.cli.options import json_option
from harness.cli.output import echo_json
from harness.cli.outputs import Outputs, outputs_options
from harness.errors import BadInput
from harness.profile.units import parse_duration


@click.command()
@click.argument("base", metavar="BASE")
@click.argument("new", metavar="NEW")
@click.option("--margin", "margins", multiple=True, metavar="1pp|50ms",
              help="How much a share (pp, points) or a wait (ms, s) may change. Repeatable. Default: as the checks': "
              "1pp, and half of the service time (all of it for the p95).")  # fmt: skip
@click.option("--across-environments", is_flag=True, help="Compare trials of different machines, versions or targets.")
@click.option("--all", "everything", is_flag=True, help="Show what did not change, too.")
@folder_option
@outputs_options
@json_option
def command(
    base: str,
    new: str,
    margins: tuple[str, ...],
    across_environments: bool,
    everything: bool,
    baselines: Path,
    outputs: Outputs,
    as_json: bool,
) -> int:
    """Hold NEW against BASE; each is a trial's folder, a baseline (a file, or its name), or a verification's JSON.

    A regression is a change for the worse that the evidence supports and that is larger than its margin. Exit code: 0
    no regression, and one that matters is ruled out; 1 a regression; 2 they cannot be compared, with the reason; 3
    cannot tell; 4 the new trial is INVALID. docs/baselines.md says how each figure is judged.

    \b
    Examples:
      overload diff steady reports/20250103-040506-steady
      overload diff reports/20250102-030405-steady reports/20250103-040506-steady --all
      overload diff verify verify.json --markdown summary.md --junit diff.xml
      overload diff steady reports/20250103-040506-steady --margin 2pp --margin 50ms
    """
    allowed = margins_of(margins)
    one, broken = read_side(base, baselines)
    if broken:
        raise BadInput(f"{base}: INVALID, so nothing can be compared with it ({broken}); drive it again")
    two, invalid = read_side(new, baselines)
    found = replace(compare(one, two, (base, new), allowed, across_environments), invalid=invalid)
    written = outputs.write(results(found), as_json)
    if as_json:
        echo_json(document(found))
        return found.exit_code
    console = Console()
    show(found, console, everything)
    for said in written:
        console.print(said, soft_wrap=True, highlight=False, markup=False)
    return found.exit_code


def margins_of(texts: tuple[str, ...]) -> Margins:
    """`1pp` is of shares, `50ms` of waits. Raises BadInput."""
    margins = Margins()
    for text in texts:
        points = text.strip().removesuffix("pp").removesuffix("%")
        try:
            if points != text.strip():
                value = float(points)
                if not 0 < value < 100:
                    raise ValueError
                margins = replace(margins, shares_pp=value)
            else:
                wait_ns = parse_duration(text)
                if not wait_ns > 0:
                    raise ValueError
                margins = replace(margins, wait_ms=wait_ns / 1e6)
        except ValueError:
            raise BadInput(
                f"--margin {text}: expected points such as 1pp, or a duration such as 50ms, over 0"
            ) from None
    return margins
