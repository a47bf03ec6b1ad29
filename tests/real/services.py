"""Starts the real services of docs/examples: installed ones, in the foreground, each in a folder of its own.

The files of an example are what its page tells people to run, so they are what is tested: only addresses and the folder
below /tmp are replaced, by free ports and by a temporary folder. What is started here is stopped by its id.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness import trial
from harness.checks.verdict import Verdict, Word
from harness.profile.loader import Loaded
from harness.simulate.service import capacity_config, shared_service
from harness.target.file import load_target
from harness.target.stub import StubProcess
from harness.trial import Judged
from tests.live.driving import loaded, on_time, skip_if_late

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
_ADDRESS = re.compile(r"(127\.0\.0\.1|localhost):(\d{4,5})\b")
_START_S = 90.0
_STOP_S = 5.0


def installed(name: str) -> str:
    """Path of a program; skips the test where there is none."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin")
    if found is None:
        pytest.skip(
            f"{name} is not installed: apt-get install --no-install-recommends nginx haproxy redis-server apache2"
        )
    return found


def services_python() -> Path:
    """The interpreter of the services' virtual environment; skips the test where there is none."""
    # Services are started in folders of their own: a relative place would be looked for there.
    found = (ROOT / os.environ.get("OVERLOAD_SERVICES", ".venv-services")).absolute() / "bin" / "python"
    if not found.exists():
        pytest.skip("the services' virtual environment is missing: make services")
    return found


@dataclass(frozen=True, slots=True)
class Example:
    """A copy of an example's folder. port: as its files say -> as it is here."""

    folder: Path
    ports: Mapping[str, int]

    def address(self, port: int) -> str:
        return f"127.0.0.1:{self.ports[str(port)]}"

    def profile(self, name: str = "profile.yaml") -> Loaded:
        return loaded(self.folder / name)

    def drive(self, target: str = "target.yaml", profile: str = "profile.yaml") -> dict[str, Verdict]:
        """One trial of it; driven again while the harness itself was late."""
        return {verdict.check: verdict for verdict in self.trial(target, profile).verdicts}

    def trial(self, target: str = "target.yaml", profile: str = "profile.yaml") -> Judged:
        described, made = load_target(self.folder / target), self.profile(profile)
        reports = self.folder / "reports"
        judged = on_time(lambda: trial.run(made, trial.new_folder(reports, made.profile.name), described))
        skip_if_late(judged.verdicts)
        assert judged.verdicts
        return judged


def example(name: str, folder: Path) -> Example:
    """Copies it, with free ports in place of its own, and this folder in place of /tmp/overload-<name>."""
    folder = folder / name
    shutil.copytree(EXAMPLES / name, folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    texts = {path: path.read_text() for path in files}
    known = sorted({port for text in texts.values() for _, port in _ADDRESS.findall(text)})
    ports = dict(zip(known, free_ports(len(known)), strict=True))
    for path, text in texts.items():
        moved = _ADDRESS.sub(lambda match: f"{match[1]}:{ports[match[2]]}", text)
        path.write_text(moved.replace(f"/tmp/overload-{name}", str(folder)))
    return Example(folder, ports)


def free_ports(n: int) -> list[int]:
    held = [socket.socket() for _ in range(n)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


@contextmanager
def running(command: list[str], address: str, folder: Path, more: Mapping[str, str] | None = None) -> Iterator[None]:
    """A service in the foreground, from when its port answers until the block ends."""
    host, _, port = address.rpartition(":")
    with (folder / "said.txt").open("ab") as said:
        child = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env={**os.environ, **(more or {})}
        )
    try:
        end = time.monotonic() + _START_S
        while not _answers(host, int(port)):
            if child.poll() is not None or time.monotonic() > end:
                pytest.fail(f"{command[0]} did not start: {(folder / 'said.txt').read_text()[-2000:]}")
            time.sleep(0.05)
        yield
    finally:
        child.terminate()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 0.5).close()
    except OSError:
        return False
    return True


def nginx(of: Example, config: str, port: int = 8080) -> AbstractContextManager[None]:
    files = ["-p", str(of.folder), "-c", str(of.folder / config)]
    return running([installed("nginx"), "-e", "stderr", *files, "-g", "daemon off;"], of.address(port), of.folder)


@contextmanager
def stub(
    of: Example, port: int = 9000, profile: str = "profile.yaml", dependencies_only: bool = False
) -> Iterator[None]:
    """`overload stub` at one of the example's ports."""
    made = of.profile(profile).profile
    shared = shared_service(made) if made.service is not None and not dependencies_only else None
    capacity = capacity_config(made) if made.capacity is not None else None
    evidence = of.folder / f"evidence-{port}"
    evidence.mkdir(exist_ok=True)
    with StubProcess(
        shared, evidence, capacity=capacity, dependencies_only=dependencies_only, port=of.ports[str(port)]
    ):  # fmt: skip
        yield


def sound(verdicts: Mapping[str, Verdict]) -> None:
    """The trial itself is to be trusted."""
    for name in ("trial.conserved", "trial.on_time"):
        assert verdicts[name].word is Word.PASS, verdicts[name].sentence
