"""Drives real clients against the stand-in, all scenarios of a client at once, and judges what arrived.

Each scenario has a stand-in of its own; the client is one process that meets them all in threads. What has not ended by
the limit (a client that sleeps for ten minutes because it was asked to) is stopped, and judged by what came until then.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from harness.callers.judge import Judged, judge
from harness.callers.log import read_log
from harness.callers.parameters import Params
from stub_service.provider.scenarios import SCENARIOS
from stub_service.provider_shell import MANIFEST, StandIn

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("clients") / "callers.py"
FOLDER = "OVERLOAD_CLIENTS"
"""Environment variable: the virtual environment with the clients."""
MANY = {"down": 20}
"""Calls at a time, so that their delays can be compared; one in every other scenario."""
ONE_BY_ONE = ("tenacity_bare", "celery_over_openai", "celery_over_requests")
AT_ONCE = 4
START_S = 90.0
PATIENT_S = 8.0
PATIENT = {f"retry_after_{form}" for form in ("long", "longer", "epoch", "inf", "underscore", "ms")}
"""Here some clients sleep for minutes: when nothing else is left, they are watched no longer than PATIENT_S in all."""


def clients_python() -> Path | None:
    """The interpreter of the clients' virtual environment, if there is one (`make clients`)."""
    found = Path(os.environ.get(FOLDER, ROOT / ".venv-clients")) / "bin" / "python"
    return found if found.exists() else None


@dataclass(frozen=True, slots=True)
class Met:
    """What a client made of a scenario. said: of each call `served` or the name of what was raised; empty: it was
    still at it when it was stopped."""

    judged: Judged
    said: tuple[str, ...]

    def word(self, check: str) -> str:
        """The verdict's word on `caller.<check>`; `-` where it was not judged."""
        return next((v.word.value for v in self.judged.verdicts if v.check == f"caller.{check}"), "-")

    @property
    def gaps_s(self) -> list[float]:
        return [gap / 1e9 for call in self.judged.seen.calls for gap in call.gaps_ns()]

    @property
    def attempts(self) -> int:
        """Of the call that had the most."""
        return max((len(call.attempts) for call in self.judged.seen.calls), default=0)


async def meet(
    python: Path, client: str, scenarios: Sequence[str], folder: Path, limit_s: float
) -> dict[str, Met]:  # fmt: skip
    """scenario -> what the client made of it."""
    said: dict[str, tuple[str, ...]] = {}
    async with AsyncExitStack() as stack:
        stand_ins = {
            name: await stack.enter_async_context(StandIn(SCENARIOS[name], folder / client / name))
            for name in scenarios
        }
        wanted = {
            name: {"url": one.url, "calls": 1 if client in ONE_BY_ONE else MANY.get(name, 1)}
            for name, one in stand_ins.items()
        }
        said = await _run(python, client, scenarios, json.dumps(wanted).encode(), limit_s)
        for name, one in stand_ins.items():
            one.command_ended([client], 0 if name in said else None)
    return {name: Met(_judge(folder / client / name), said.get(name, ())) for name in scenarios}


async def _run(
    python: Path, client: str, names: Sequence[str], wanted: bytes, limit_s: float
) -> dict[str, tuple[str, ...]]:  # fmt: skip
    """scenario -> what became of its calls, of those that ended."""
    environment = {name: text for name, text in os.environ.items() if "PROXY" not in name.upper()}
    child = await asyncio.create_subprocess_exec(
        python, SCRIPT, client, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(wanted)
    child.stdin.close()
    said: dict[str, tuple[str, ...]] = {}
    loop = asyncio.get_running_loop()
    # Its start costs what a busy machine makes it cost: the limit counts from then on.
    end = loop.time() + START_S
    enough: float | None = None
    while (now := loop.time()) < end:
        try:
            line = await asyncio.wait_for(child.stdout.readline(), 0.25)
        except TimeoutError:
            line = b"\n"
        if not line:
            break
        if line == b"ready\n":
            end, enough = now + limit_s, now + PATIENT_S
        elif line.startswith(b"{"):
            told = json.loads(line)
            said[told["scenario"]] = tuple(told["said"])
        if enough is not None and now > enough and set(names) - set(said) <= PATIENT:
            break
    if len(said) < len(names):
        child.kill()
    await child.wait()
    return said


def _judge(folder: Path) -> Judged:
    with (folder / "arrivals.jsonl").open("rb") as arrivals:
        return judge(folder.name, read_log(folder.name, (folder / MANIFEST).read_bytes(), arrivals), Params())


async def meet_all(
    python: Path, wanted: Mapping[str, Sequence[str]], folder: Path, limits_s: Mapping[str, float], limit_s: float
) -> dict[str, dict[str, Met]]:
    """client -> scenario -> what it made of it; several clients at a time, for they mostly sleep."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(client: str, scenarios: Sequence[str]) -> dict[str, Met]:
        async with gate:
            return await meet(python, client, scenarios, folder, limits_s.get(client, limit_s))

    found = await asyncio.gather(*(one(client, scenarios) for client, scenarios in wanted.items()))
    return dict(zip(wanted, found, strict=True))


def versions(python: Path) -> dict[str, str]:
    """Of the clients that are installed beside this interpreter."""
    import subprocess

    code = (
        "import importlib.metadata as m, json; "
        "print(json.dumps({n: m.version(n) for n in ('openai', 'anthropic', 'httpx', 'tenacity', 'requests', 'urllib3',"
        " 'aiohttp', 'botocore', 'celery')}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit("this is a library of the tests; python -m tests.real.client_table writes the table")
