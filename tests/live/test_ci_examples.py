"""The examples for GitHub Actions and GitLab CI: their shell steps are run as they are written, against a real stub.

What their servers do is done here by hand: variables, one shell a step, a step that fails ends the job, `always()`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.live.driving import MOST_TRIES

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("curl") is None, reason="the examples wait for the service with curl"),
]

GITHUB = yaml.safe_load((ROOT / "docs" / "ci" / "github.yml").read_text())
GITLAB = yaml.safe_load((ROOT / "docs" / "ci" / "gitlab.yml").read_text())
PROFILE = """
name: short
duration: 5s
phases: {calm: [0s, 2s], burst: [2s, 5s]}
patience: 2s
service: {workers: WORKERS, service_time: 400ms, admission: {policy: fair_queues, queue_per_tenant: 5}}
tenants:
  A: {rate: 30/s}
  B: {rate: 30/s, phase: 10ms}
ordinary: [A, B]
checks: [{fairness.ordinary_unmoved: {served_down_pp: 10, refusals_up_pp: 10, wait_up: 300ms}}]
"""


@dataclass
class Job:
    """One job in a checkout of its own. codes: of each step, by its name."""

    folder: Path
    env: dict[str, str]
    codes: dict[str, int]
    told: str = ""

    def step(self, name: str, script: str) -> int:
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        self.codes[name] = done.returncode
        self.told += f"--- {name}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.returncode

    @property
    def late(self) -> bool:
        """The harness was late, which proves nothing of the example."""
        return "trial.on_time" in self.told and 4 in self.codes.values()


def checkout(folder: Path, variables: dict[str, str], workers: int = 48, baseline: Path | None = None) -> Job:
    """The repository of somebody who copied the example: a profile, perhaps a baseline."""
    folder.mkdir()
    (folder / "profiles").mkdir()
    (folder / "profiles" / "steady.yaml").write_text(PROFILE.replace("WORKERS", str(workers)))
    if baseline is not None:
        (folder / "reports" / "baselines").mkdir(parents=True)
        shutil.copy(baseline, folder / "reports" / "baselines" / "steady.json")
    bin_ = folder / "bin"
    bin_.mkdir()
    command = bin_ / "overload"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m harness "$@"\n')
    command.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mine = {name: str(value).replace("8080", str(port)) for name, value in variables.items()}
    path = f"{bin_}:{os.environ['PATH']}"
    return Job(folder, {**os.environ, **mine, "PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}, {})


def github(job: Job, save: bool) -> Job:
    """Steps in order; after one that failed only those that run always."""
    failed = False
    for step in GITHUB["jobs"]["overload"]["steps"]:
        name, condition = step.get("name", ""), step.get("if", "")
        wanted = {"${{ !inputs.save_baseline }}": not save, "${{ inputs.save_baseline }}": save}.get(condition, True)
        if "run" not in step or name == "Install" or not wanted or (failed and "always()" not in condition):
            continue
        failed |= job.step(name, step["run"]) != 0
    return job


def gitlab(job: Job) -> Job:
    """`script` is one shell, `after_script` another that always runs."""
    made = GITLAB["overload"]
    job.step("script", "\n".join(made["script"]))
    job.step("after_script", "\n".join(made["after_script"]))
    return job


def on_time(drive: Callable[[int], Job]) -> Job:
    """The first job in which the harness was not late; skips the test if there is none."""
    for attempt in range(MOST_TRIES):
        job = drive(attempt)
        if not job.late:
            return job
    pytest.skip(f"the machine was too busy, {MOST_TRIES} times")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """The baseline that the workflow, started by hand, keeps."""
    folder = tmp_path_factory.mktemp("save")
    job = on_time(lambda attempt: github(checkout(folder / f"{attempt}", GITHUB["env"]), save=True))
    assert set(job.codes.values()) == {0}, job.told
    assert set(job.codes) == {
        "Start the service", "Wait until it is ready", "Verify", "Save a baseline", "Stop the service",
    }  # fmt: skip
    return job.folder / "ci-reports" / "baselines" / "steady.json"


def test_github_gates_a_service_that_is_as_it_was(saved, tmp_path):
    job = on_time(lambda n: github(checkout(tmp_path / f"{n}", GITHUB["env"], baseline=saved), save=False))
    assert job.codes["Gate"] in (0, 3), job.told  # 3: a busy machine leaves a change of waits open
    assert "Traceback" not in job.told
    assert job.codes["Stop the service"] == 0
    summary = (job.folder / "summary.md").read_text()
    assert "overload run" in summary
    assert "overload diff" in summary
    assert ET.parse(job.folder / "ci-reports" / "gate.xml").getroot().find("testsuite").get("name") == "overload diff"


def test_github_stops_a_service_that_is_worse(saved, tmp_path):
    steps = {step["name"]: step["run"] for step in GITHUB["jobs"]["overload"]["steps"] if "run" in step}

    def drive(attempt: int) -> Job:
        job = checkout(tmp_path / f"{attempt}", GITHUB["env"], workers=2, baseline=saved)
        for name in ("Start the service", "Wait until it is ready", "Verify", "Gate", "Stop the service"):
            job.step(name, steps[name])
        return job

    job = on_time(drive)
    assert job.codes["Gate"] == 1, job.told
    assert "::error title=FAIL short.A burst served share::" in job.told


def test_github_without_a_baseline_says_what_to_do(tmp_path):
    job = checkout(tmp_path / "job", GITHUB["env"])
    steps = {step["name"]: step["run"] for step in GITHUB["jobs"]["overload"]["steps"] if "run" in step}
    assert job.step("Gate", steps["Gate"]) == 2
    assert "with save_baseline, and commit what it keeps" in job.told


def test_gitlab_gates_too(saved, tmp_path):
    variables: dict[str, Any] = GITLAB["overload"]["variables"]
    job = on_time(lambda attempt: gitlab(checkout(tmp_path / f"{attempt}", variables, baseline=saved)))
    assert job.codes["script"] in (0, 3), job.told
    assert job.codes["after_script"] == 0, job.told
    assert "Traceback" not in job.told
    assert (job.folder / "ci-reports" / "gate.md").read_text().startswith("### ")
