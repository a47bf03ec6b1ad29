"""`overload demo`: the worked example over real HTTP, twice: one shared queue, then a fair queue for each tenant."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from harness import trial
from harness.checks.verdict import Word, exit_code
from harness.cli import options
from harness.cli.output import live_progress, show_judged
from harness.shipped import PROFILES, shown

PROFILE = PROFILES / "worked_example.yaml"
TIME_SCALE = 0.3
EXPECTED = ((None, Word.FAIL), ("fair_queues", Word.PASS))


@click.command()
@options.reports_option
@click.option("--time-scale", type=click.FloatRange(0.25, 1), default=TIME_SCALE, show_default=True)
def command(reports: Path, time_scale: float) -> int:
    """Two short trials over real HTTP: an agent runs away while three steady tenants work.

    With one shared queue the steady tenants are hurt (FAIL); with a fair queue for each they are not (PASS). The exit
    code is 0 when both came out so, 4 when the machine was too busy to tell, else 1.
    """
    console = Console()
    as_expected = True
    invalid = False
    for variant, expected in EXPECTED:
        loaded = options.load_profile(PROFILE, variant, (), time_scale)
        name = loaded.profile.name + (f"-{variant}" if variant else "")
        console.rule(f"{name}: {'a fair queue for each tenant' if variant else 'one shared queue'}")
        with live_progress(loaded.profile, name) as on_progress:
            judged = trial.run(loaded, trial.new_folder(reports, name), trial.STUB, None, on_progress)
        show_judged([judged], as_json=False)
        if judged.interrupted:
            return judged.exit_code
        invalid = invalid or judged.word is Word.INVALID
        as_expected = as_expected and judged.word == expected
    if invalid:
        console.print(
            "\nA trial is INVALID, so nothing is claimed. When the machine is too busy, try again when it is idle, or\n"
            "more slowly: overload demo --time-scale 1",
            highlight=False,
            soft_wrap=True,
        )
        return exit_code([Word.INVALID])
    console.print(
        "\nThe agent did the same in both trials. What differs is the queue in front of the workers.\n"
        f"Next: overload simulate {shown(PROFILE)}   (every variant, in virtual time)",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return 0 if as_expected else 1
