"""`overload demo`: the worked example over real HTTP, twice: one shared queue, then a fair queue for each tenant."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from harness import trial
from harness.checks.verdict import Word
from harness.cli import options
from harness.cli.output import live_progress, show_judged

PROFILE = Path(__file__).resolve().parents[2] / "profiles" / "worked_example.yaml"
TIME_SCALE = 0.3
EXPECTED = ((None, Word.FAIL), ("fair_queues", Word.PASS))


@click.command()
@options.reports_option
@click.option("--time-scale", type=click.FloatRange(0.25, 1), default=TIME_SCALE, show_default=True)
def command(reports: Path, time_scale: float) -> int:
    """Two short trials over real HTTP: an agent runs away while three steady tenants work.

    With one shared queue the steady tenants are hurt (FAIL); with a fair queue for each they are not (PASS). The exit
    code is 0 when both came out so.
    """
    console = Console()
    as_expected = True
    for variant, expected in EXPECTED:
        loaded = options.load_profile(PROFILE, variant, (), time_scale)
        name = loaded.profile.name + (f"-{variant}" if variant else "")
        console.rule(f"{name}: {'a fair queue for each tenant' if variant else 'one shared queue'}")
        with live_progress(loaded.profile, name) as on_progress:
            judged = trial.run(loaded, trial.new_folder(reports, name), trial.STUB, None, on_progress)
        show_judged([judged], as_json=False)
        if judged.interrupted:
            return judged.exit_code
        as_expected = as_expected and judged.word == expected
    console.print(
        "\nThe agent did the same in both trials. What differs is the queue in front of the workers.\n"
        "Next: overload simulate profiles/worked_example.yaml   (every variant, in virtual time)",
        highlight=False,
    )
    return 0 if as_expected else 1
