"""What `serve` and `judge` share: scenarios by name, folders for evidence, a stand-in, and a command run against it.

The command is the user's own program: it is run as it is given, without a shell, with credentials of the stand-in in
place of real ones, in a process group of its own, and ended as a group when its time is over or this process stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from pathlib import Path

import click

from harness.errors import BadInput, TrialBroken
from stub_service.provider import forms
from stub_service.provider.scenario import Scenario
from stub_service.provider.scenarios import GROUPS, SCENARIOS
from stub_service.provider_shell import StandIn

REPORTS = Path("reports")
_WITHHELD = (
    "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_AUTH_TOKEN", "AWS_SESSION_TOKEN", "AWS_PROFILE",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy",
)  # fmt: skip
"""Not passed on: real credentials, and proxies that would stand between the caller and the stand-in."""
_END_S = 3.0
_PR_SET_PDEATHSIG = 1


def scenario_named(name: str) -> Scenario:
    if name not in SCENARIOS:
        several = f" ('{name}' is several scenarios: those are for overload judge -- COMMAND)" if name in GROUPS else ""
        raise BadInput(_unknown(name) + several)
    return SCENARIOS[name]


def scenarios_named(names: Sequence[str]) -> list[Scenario]:
    """Scenarios, and groups of them, in the order given, each once. Raises BadInput."""
    found: list[str] = []
    for name in names:
        if name not in GROUPS and name not in SCENARIOS:
            raise BadInput(_unknown(name))
        found += GROUPS.get(name, (name,))
    return [SCENARIOS[name] for name in dict.fromkeys(found)]


def _unknown(name: str) -> str:
    near = get_close_matches(name, (*SCENARIOS, *GROUPS), 1, 0.5)
    hint = f": did you mean {near[0]}?" if near else ""
    return f"there is no scenario '{name}'{hint} (overload serve --list prints them)"


def new_folder(name: str) -> Path:
    """A folder under reports/ that no one else has; only its name is made."""
    return REPORTS / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}-{name}"


@asynccontextmanager
async def opened(scenario: Scenario, folder: Path, *, form: str | None = None, port: int = 0) -> AsyncIterator[StandIn]:
    """A stand-in that serves. Raises BadInput where folder or port cannot be had, TrialBroken where the evidence
    cannot be written to its end."""
    broken: list[OSError] = []
    stand_in = StandIn(scenario, folder, form=form, port=port, on_broken=broken.append)
    try:
        await stand_in.__aenter__()
    except OSError as error:
        what = f"--evidence {folder}" if error.filename else f"--port {port}"
        remedy = "" if error.filename else "; --port 0 takes any free one"
        raise BadInput(f"{what}: cannot be used ({error.strerror}){remedy}") from None
    try:
        yield stand_in
    finally:
        await stand_in.__aexit__(None, None, None)
        if broken:
            raise TrialBroken(f"{folder}: the evidence could not be written to its end ({broken[0].strerror})")


async def run_against(
    scenario: Scenario, folder: Path, words: Sequence[str], limit_s: float, form: str | None = None
) -> int | None:
    """Runs the command against a stand-in of its own. Returns its exit code, None if it had to be stopped."""
    async with opened(scenario, folder, form=form) as stand_in:
        environment = {name: value for name, value in os.environ.items() if name not in _WITHHELD}
        environment |= forms.variables(stand_in.url)
        environment |= {"OVERLOAD_SCENARIO": scenario.name, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        try:
            # What the command prints goes where notes go: standard output is the verdict's.
            child = await asyncio.create_subprocess_exec(
                *words, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr.fileno(),
                process_group=0, preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )  # fmt: skip
        except OSError as error:
            raise BadInput(
                f"{words[0]}: cannot be run ({error.strerror}); give a command as you would type it"
            ) from None
        code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                code = await asyncio.wait_for(child.wait(), limit_s)
        finally:
            await _end(child)
        stand_in.command_ended(list(words), code)
        return code


def _die_with_parent() -> None:
    """In the child, before it becomes the command: it ends when this process does, however that ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _end(child: asyncio.subprocess.Process) -> None:
    """Ends the whole group, also what the command left running behind it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        if child.returncode is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), _END_S)


def note(text: str) -> None:
    """Said while things run: on standard error."""
    click.echo(text, err=True)
