"""The `overload` command: one file a command here, loaded when it is asked for.

Exit codes: 0 PASS, 1 FAIL, 2 bad input (nothing was sent), 3 INCONCLUSIVE, 4 INVALID, 70 a bug of overload itself,
74 a file or the output could not be read or written, 130 stopped by Ctrl-C before there was anything to judge, 141 the
reader of the output has gone.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from harness.errors import BadInput, TrialBroken

COMMANDS = {
    "demo": "demo",
    "run": "run",
    "simulate": "simulate",
    "lab": "lab",
    "burst": "burst",
    "replay": "replay",
    "learn": "learn",
    "shadow": "shadow",
    "calls": "calls",
    "watch": "watch",
    "check": "check",
    "report": "report",
    "baseline": "baseline",
    "diff": "diff",
    "explain": "explain",
    "profile": "profile",
    "target": "target",
    "stub": "stub",
    "serve": "serve",
    "judge": "judge",
    "defects": "defects",
    "verify": "verify",
    "worker": "worker",
}

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""What a disk says of itself, without saying of which file."""

EPILOG = """\b
Start here:
  overload demo                                    two short trials over real HTTP: one FAIL, one PASS
  overload simulate profiles/worked_example.yaml   the same scenario in virtual time, every variant
  overload run profiles/worked_example.yaml --time-scale 0.25
  overload verify                                  ten overload situations and more, each judged
  overload judge -- python my_agent.py             your own agent against refusals and failures, judged
\b
Exit codes: 0 PASS  1 FAIL  2 bad input, nothing was sent  3 INCONCLUSIVE  4 INVALID  130 stopped by Ctrl-C"""


class Lazy(click.Group):
    """Imports a command's module when the command is used: `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(f"harness.cli.{module}").command
        return command


@click.group(
    cls=Lazy, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="overload", prog_name="overload")
def overload() -> None:
    """Replays tenants, a runaway agent and recorded traffic against a service, and says with evidence who was hurt."""


def main(args: list[str] | None = None) -> Any:
    """Runs the command line and ends the process with its exit code. No traceback reaches a person."""
    try:
        code = overload.main(args=args, prog_name="overload", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("stopped by Ctrl-C", err=True)
        code = 130
    except click.ClickException as error:
        error.show()
        code = 2
    except BadInput as error:
        click.echo(str(error), err=True)
        code = 2
    except TrialBroken as error:
        click.echo(f"INVALID: {error}", err=True)
        code = 4
    except (BrokenPipeError, SystemExit):
        # Nobody reads us any more. click and rich would end with 1 then, which means FAIL here.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        code = 141
    except Exception as error:
        if os.environ.get("OVERLOAD_DEBUG"):
            raise
        code = 70
        said = f"a bug of overload: {error!r} (OVERLOAD_DEBUG=1 shows where)"
        if isinstance(error, OSError) and (error.filename or error.errno in _FULL):
            said, code = f"{error.filename or 'the output'}: cannot be read or written ({error.strerror})", 74
        click.echo(said, err=True)
    sys.exit(code if isinstance(code, int) else 0)
