"""Whole trials over real HTTP: profile in, verdict out; and what is left when something is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from harness import checks, trial
from harness.checks.agreement import agreement
from harness.checks.verdict import Word
from harness.ledger.reader import read_trial
from harness.ledger.stalls import STALLS
from harness.profile.loader import from_document
from harness.simulate.service import shared_service
from harness.target.stub import StubProcess
from tests.conftest import ROOT
from tests.live.driving import MOST_TRIES, drive, on_time, skip_if_late

pytestmark = pytest.mark.live

FAIR = {"policy": "fair_queues", "queue_per_tenant": 50}

DOCUMENT = {
    "name": "short",
    "duration": "9s",
    "phases": {"calm": ["0s", "4s"], "burst": ["4s", "8s"], "recovery": ["8s", "9s"]},
    "patience": "500ms",
    "patience_until": "start",
    "service": {"workers": 56, "service_time": "200ms", "admission": {"policy": "shared_fifo", "queue": 175}},
    "tenants": {
        "A": {"rate": "84/s"},
        "B": {"rate": "84/s", "phase": "4ms"},
        "agent": {
            "rate": ["42/s", {"from": "4s", "to": "8s", "rate": "220/s"}],
            "replans": {"calls": 2, "after": "200ms", "rounds": 1},
        },
    },
    "ordinary": ["A", "B"],
    "checks": ["fairness.ordinary_unmoved", "fairness.refusals_structured", "agent.replan_share"],
}


def loaded(**over):
    return from_document({**DOCUMENT, **over}, checks=checks.PARAMETERS)


def words(judged):
    return {verdict.check: verdict.word for verdict in judged.verdicts}


@pytest.fixture
def folder(tmp_path):
    return trial.new_folder(tmp_path, "trial")


@pytest.mark.parametrize(
    ("admission", "expected"),
    [(DOCUMENT["service"]["admission"], Word.FAIL), (FAIR, Word.PASS)],
    ids=["shared_fifo", "fair_queues"],
)
def test_one_shared_queue_hurts_the_others_and_fair_queues_do_not(tmp_path, admission, expected):
    judged = drive(loaded(service={**DOCUMENT["service"], "admission": admission}), tmp_path)
    skip_if_late(judged.verdicts)
    found = words(judged)
    assert found["fairness.ordinary_unmoved"] == expected, judged.verdicts
    assert found["fairness.refusals_structured"] == Word.PASS, judged.verdicts
    assert found["trial.conserved"] == Word.PASS, judged.verdicts
    assert found["trial.on_time"] == Word.PASS, judged.verdicts
    assert {path.name for path in judged.files.values()} == {"report.html", "report.json"}


def test_a_refusal_that_is_no_429_is_seen_over_http(tmp_path):
    judged = drive(loaded(), tmp_path, "refusal_as_503")
    found = next(verdict for verdict in judged.verdicts if verdict.check == "fairness.refusals_structured")
    if found.word is not Word.FAIL:
        skip_if_late(judged.verdicts)
    assert found.word is Word.FAIL, found.sentence
    assert found.witnesses


CALM = {
    "duration": "6s",
    "phases": {},
    "checks": [],
    "tenants": {"A": {"rate": "48/s"}, "B": {"rate": "30/s", "pace": "poisson"}, "C": {"rate": "20/s"}},
    "ordinary": ["A", "B", "C"],
}


def test_a_calm_trial_agrees_with_its_simulation(tmp_path):
    live = drive(loaded(**CALM), tmp_path)
    skip_if_late(live.verdicts)
    simulated = trial.new_folder(tmp_path, "simulated")
    trial.simulate(loaded(**CALM), simulated)
    assert words(live) == {"trial.conserved": Word.PASS, "trial.on_time": Word.PASS}
    verdict = agreement(live.trial, read_trial(simulated))
    assert verdict.word == Word.PASS, verdict
    other = trial.new_folder(tmp_path, "other")
    trial.simulate(loaded(**{**CALM, "duration": "7s"}), other)
    assert agreement(live.trial, read_trial(other)).word == Word.INVALID
    slow = {**CALM, "patience": None, "service": {**DOCUMENT["service"], "workers": 18}}
    waiting = trial.new_folder(tmp_path, "waiting")
    trial.simulate(loaded(**slow), waiting)
    assert agreement(live.trial, read_trial(waiting)).word == Word.FAIL


def test_a_stub_that_runs_already_is_a_target_with_evidence(tmp_path):
    made = loaded(**CALM)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with StubProcess(shared_service(made.profile), elsewhere) as stub:
        judged = on_time(lambda: trial.run(made, trial.new_folder(tmp_path, "trial"), stub.url))
    skip_if_late(judged.verdicts)
    assert words(judged) == {"trial.conserved": Word.PASS, "trial.on_time": Word.PASS}, judged.verdicts
    assert judged.trial.manifest["evidence"]["decisions"] is True
    assert (judged.trial.folder / STALLS).exists()
    assert sum(1 for _ in judged.trial.decisions()) == 3 * len(judged.trial.calls)


@pytest.mark.untimed
def test_a_stub_that_dies_half_way_leaves_an_invalid_trial_with_every_call_accounted_for(folder):
    made = loaded(**CALM)
    killed = []

    def kill(event):
        if event["now_ns"] > 2_000_000_000 and not killed:
            killed.append([os.kill(pid, signal.SIGKILL) for pid in children_of(folder, b"stub_service")])

    judged = trial.run(made, folder, trial.STUB, on_progress=kill)
    assert judged.word == Word.INVALID
    calls = judged.trial.calls
    assert len(calls) == sum(n for phases in judged.trial.manifest["plan"].values() for n in phases.values())
    assert calls.is_outcome("failed").sum() > len(calls) / 3
    assert calls.is_outcome("served").sum() > 0
    assert "broken" in judged.trial.manifest["ended"]["reason"]


def children_of(folder, module=b""):
    """Process ids of the stub and the driver of this trial."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            if str(folder).encode() in line and module in line and (b"stub_service" in line or b"harness.live" in line):
                found.append(int(entry.name))
    return found


@pytest.fixture
def running(tmp_path):
    """`overload run` in a process of its own, some calls into its trial: (process, the trial's folder)."""
    path = tmp_path / "short.yaml"
    path.write_text(json.dumps({**DOCUMENT, **CALM, "duration": "30s"}))
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "run", str(path), "--reports", str(tmp_path / "reports")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process, wait_for(lambda: begun(tmp_path / "reports"))
    finally:
        process.kill()
        process.communicate()


def begun(reports):
    folders = list(reports.glob("*")) if reports.exists() else []
    calls = folders[0] / "calls.jsonl" if folders else None
    return folders[0] if calls and calls.exists() and calls.stat().st_size > 10_000 else None


def wait_for(condition, limit_s=30):
    end = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)
    return found


@pytest.mark.untimed
def test_ctrl_c_drains_and_leaves_an_invalid_but_readable_record(running):
    process, folder = running
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 4, err
    assert "INVALID" in out
    assert "interrupted" in out
    assert "Traceback" not in out + err
    judged = trial.judge(folder)
    assert judged.trial.manifest["ended"]["reason"] == "interrupted"
    assert not judged.trial.calls.is_outcome("open").any()
    assert wait_for(lambda: not children_of(folder)) is True


@pytest.mark.untimed
def test_no_child_outlives_a_parent_that_is_killed(running):
    process, folder = running
    assert len(children_of(folder)) == 2
    process.kill()
    assert wait_for(lambda: not children_of(folder)) is True
    judged = trial.judge(folder)
    assert judged.word == Word.INVALID
    assert len(judged.trial.calls) > 0


@pytest.mark.untimed
def test_a_driver_that_is_killed_leaves_an_invalid_trial(running):
    process, folder = running
    (driver,) = children_of(folder, b"harness.live")
    os.kill(driver, signal.SIGKILL)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 4, out + err
    assert "signal 9" in out
    assert "Traceback" not in out + err


def test_the_command_shows_live_beside_simulated(tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text(json.dumps({**DOCUMENT, **CALM, "duration": "3s"}))
    command = [sys.executable, "-m", "harness", "run", str(path), "--against-simulation", "--reports", str(tmp_path)]
    for _ in range(MOST_TRIES):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if not (done.returncode == 4 and "The harness was late" in done.stdout):
            break
    else:
        pytest.skip(f"the machine was too busy, {MOST_TRIES} times")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS  trial.agrees_with_simulation" in done.stdout
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("A ") and "original calls" in line]
    assert row[-3:] == ["144", "144", "PASS"]
