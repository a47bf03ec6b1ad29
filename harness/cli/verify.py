"""`overload verify`: drive the situations of `profiles/verification`, and say of each rule whether it holds."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from harness import trial, verify
from harness.cli import options, targets
from harness.cli.output import echo_json
from harness.cli.outputs import FILE, Outputs, must_be_writable, outputs_options
from harness.errors import BadInput
from harness.report.results import of_verification
from harness.report.verification import Verification, document
from harness.report.verification_view import Board, page, show
from harness.target.file import Described


@click.command()
@click.option("--only", metavar="NAMES", help="Only these, separated by commas: v05,v07 or v05.one_retry_owner.")
@click.option("--preset", type=click.Choice(list(verify.PRESETS)),
              help="core (default): the ten verification tests and those beside them. first: v02 and v05, the two to "
              "run before autonomous traffic is raised. all: every situation.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Every situation: fairness, agents, cost, trees and floods, too.")
@click.option("--target", default=trial.STUB, show_default=True, metavar="stub|URL|FILE",
              help="The bundled stub, a stub that runs already on this machine, or a target file.")  # fmt: skip
@targets.dry_run_option
@click.option("--simulate", is_flag=True, help="In virtual time instead of over HTTP: seconds, no load, no HTTP.")
@options.defect_option
@options.time_scale_option
@options.reports_option
@outputs_options
@click.option("--html", "html_file", type=FILE, metavar="FILE",
              help="Write the table as a page, linked to the reports.")  # fmt: skip
@options.json_option
def command(
    only: str | None,
    preset: str | None,
    every: bool,
    target: str,
    dry_run: bool,
    simulate: bool,
    defect: str | None,
    time_scale: float,
    reports: Path,
    html_file: Path | None,
    outputs: Outputs,
    as_json: bool,
) -> int:
    """Drive the bundled stub through ten overload situations and more, and judge each. No configuration is needed.

    The exit code is the worst verdict: 0 PASS, 1 FAIL, 3 INCONCLUSIVE, 4 INVALID. Each situation is a trial of its own,
    with its ledger and report. docs/verify.md says what each does and how to read it.

    \b
    Examples:
      overload verify                                  the ten and those beside them, in about a minute
      overload verify --all                            every situation, in two to three minutes
      overload verify --preset first                   v02 and v05
      overload verify --only v05,v07 --junit out.xml
      overload verify --simulate                       in virtual time
      overload verify --defect three_layer_retry       what it looks like when a rule is broken
      overload verify --target staging.yaml            a service of your own (docs/targets.md)
    """
    if simulate and target != trial.STUB:
        raise BadInput("--simulate runs in virtual time, so it takes no --target; leave one of them out")
    if sum((only is not None, preset is not None, every)) > 1:
        raise BadInput("--only, --preset and --all each choose; give one of them")
    preset = "all" if every else preset or "core"
    where = target_of(target, time_scale)
    must_be_writable(html_file)
    cases = verify.chosen(only, preset)
    chosen = verify.Options(reports, trial.SIMULATOR if simulate else where, defect, time_scale)
    if dry_run:
        return _dry_run(cases, chosen)
    _announce(cases, chosen)
    stop = threading.Event()
    with (
        Board([(case.name, case.title) for case in cases], Console(file=sys.stderr)) as board,
        _stopped_by_ctrl_c(stop),
    ):
        outcomes = verify.run(cases, chosen, _told_to(board), stop)
    if not outcomes and stop.is_set():
        raise click.exceptions.Abort
    found = verify.verification(cases, outcomes, chosen)
    written = [*outputs.write(of_verification(found), as_json), *_write(found, html_file)]
    if as_json:
        echo_json(document(found))
    else:
        show(found, Console(), written)
    return found.exit_code


@contextmanager
def _stopped_by_ctrl_c(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C lets trials under way drain and be written; a second one gives up."""

    def interrupted(signum: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def target_of(text: str, time_scale: float = 1.0) -> trial.Target:
    """Raises BadInput for what cannot be verified."""
    target = targets.target_of(text)
    if isinstance(target, Described) and time_scale != 1:
        raise BadInput(
            f"--time-scale {time_scale:g}: the service at {target.target.url} keeps its own times; leave it out"
        )
    return target


def _announce(cases: Sequence[verify.Case], chosen: verify.Options) -> None:
    """What will be sent where, a line a situation, on standard error."""
    if not isinstance(chosen.target, Described):
        return
    for case in cases:
        if verify.withheld(case, chosen) is None:
            click.echo(f"{case.name}: ", nl=False, err=True)
            targets.announce(verify.load_case(case, chosen), chosen.target)


def _dry_run(cases: Sequence[verify.Case], chosen: verify.Options) -> int:
    """What would be driven, and what would be withheld and why. Sends nothing."""
    for case in cases:
        forbidden = verify.withheld(case, chosen)
        if forbidden is not None:
            click.echo(f"{case.name}: not driven. {forbidden.sentence} {forbidden.add}")
            continue
        loaded = verify.load_case(case, chosen)
        if isinstance(chosen.target, Described):
            targets.announce(loaded, chosen.target)
        click.echo(f"{case.name}: profile {loaded.profile.name} would be sent; nothing was sent")
    return 0


def _told_to(board: Board) -> verify.Tell:
    def tell(case: verify.Case, state: str, outcome: verify.Outcome | None) -> None:
        if outcome is None:
            board.running(case.name)
        else:
            verdict = outcome.verdict
            board.done(case.name, verdict.word, outcome.seconds, verdict.sentence)

    return tell


def _write(found: Verification, html_file: Path | None) -> list[str]:
    """Writes the page, if it was asked for; a line for it."""
    if html_file is None:
        return []
    try:
        html_file.write_bytes(page(found, html_file.resolve().parent).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be written ({error.strerror})") from None
    return [f"page    {html_file}"]
