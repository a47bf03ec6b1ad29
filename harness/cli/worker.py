"""`overload worker`: one worker of a trial that several machines drive, started by hand or by a cluster.

The process becomes the worker itself, so that signals and exit codes are its own.
"""

from __future__ import annotations

import os
import sys

import click

from harness.target.driver_process import DEFAULT_PORT


@click.command()
@click.option(
    "--master",
    required=True,
    metavar="HOST[:PORT]",
    help=f"Where `overload run ... --remote-workers N` runs; port {DEFAULT_PORT} if none is given.",
)
@click.option("--name", default="", metavar="NAME", help="What it is called in the record. Default: its host and pid.")
@click.option(
    "--join-within",
    type=click.FloatRange(1, 86_400),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to look for the master.",
)
def command(master: str, name: str, join_within: float) -> None:
    """Be a worker of a trial whose master runs elsewhere. It gets profile, target and its tenants from the master;
    tokens come from its own OVERLOAD_TOKENS. It ends with the trial.

    \b
    Examples:
      overload run profiles/steady.yaml --target http://127.0.0.1:8080 --remote-workers 2     (on one machine)
      overload worker --master 10.0.0.5                                                       (on each other)

    \b
    Exit codes: 0 its part is whole in the master's record. 2 it took no part. 4 the master is gone, or holds it for
    lost. See docs/distributed.md.
    """
    arguments = ["--worker", "--master", master, "--join-within-s", f"{join_within:g}"]
    if name:
        arguments += ["--name", name]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "harness.live", *arguments])
