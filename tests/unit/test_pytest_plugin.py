"""The pytest plugin as a project meets it: fixtures, marker, options, baselines, one test at a time for a target."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from itertools import pairwise

import pytest

from harness.errors import BadInput
from harness.pytest_plugin import lock_of, only_late, target_of
from harness.target.file import target_from_document
from tests.conftest import ROOT

WORKED = ROOT / "profiles" / "worked_example.yaml"


def run_pytest(folder, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A project of its own, with one file of tests."""
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider", *options]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        env={**environment, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
    )  # fmt: skip


SIMULATED = ("--overload-target", "simulator")


def test_a_situation_and_a_profile_in_virtual_time(tmp_path):
    done = run_pytest(
        tmp_path,
        f"""
def test_writes(overload_case):
    assert overload_case("v09").verdict.word == "PASS"

def test_fair(overload_run):
    judged = overload_run({str(WORKED)!r}, variant="budget")
    assert judged.exit_code == 0

def test_shared(overload_run):
    overload_run({str(WORKED)!r}, variant="no_replans")

def test_shown_only(overload_run):
    assert overload_run({str(WORKED)!r}, variant="no_replans", judge=False).exit_code == 1

def test_without():
    pass
""",
        *SIMULATED, "-m", "overload",
    )  # fmt: skip
    assert "1 failed, 3 passed, 1 deselected" in done.stdout, done.stdout
    assert "FAIL fairness.ordinary_unmoved\n  The burst moved" in done.stdout
    assert "Traceback" not in done.stdout


TEST = f"""
def held(overload_run, overload_baseline, defect):
    # Without re-plans the trial is small, and the defect hurts all the same.
    judged = overload_run({str(WORKED)!r}, variant="fair_queues", sets=("tenants.D.replans.calls=0",), judge=False,
                          defect=defect)
    overload_baseline(judged)

def test_healthy(overload_run, overload_baseline):
    held(overload_run, overload_baseline, None)

def test_broken(overload_run, overload_baseline):
    held(overload_run, overload_baseline, "one_bound_for_all_queues")
"""


def test_a_baseline_is_asked_for_saved_kept_and_broken(tmp_path):
    missing = run_pytest(tmp_path, TEST, *SIMULATED, "-k", "healthy")
    assert "NO BASELINE" in missing.stdout
    assert "--overload-save-baselines" in missing.stdout
    assert "1 passed" in run_pytest(tmp_path, TEST, *SIMULATED, "-k", "healthy", "--overload-save-baselines").stdout
    assert (tmp_path / "reports" / "baselines" / "worked-example-fair_queues.json").is_file()
    done = run_pytest(tmp_path, TEST, *SIMULATED)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "test_broken" in done.stdout
    assert "FAIL against the baseline worked-example-fair_queues" in done.stdout
    assert "served share 100 % -> " in done.stdout


def test_a_target_that_is_none_is_one_message(tmp_path):
    test = f"def test_it(overload_run):\n    overload_run({str(ROOT / 'profiles' / 'steady.yaml')!r})\n"
    done = run_pytest(tmp_path, test, "--overload-target", "nowhere.yaml")
    assert "BAD INPUT: --overload-target nowhere.yaml: there is no such file" in done.stdout
    assert "Traceback" not in done.stdout


def test_bad_input_within_a_test_is_one_message(tmp_path):
    test = f"""
def test_profile(overload_run):
    overload_run("nowhere.yaml")

def test_variant(overload_run):
    overload_run({str(WORKED)!r}, variant="fair_queue")

def test_case(overload_case):
    overload_case("v99")
"""
    test += """
def test_ours(overload_run):
    overload_run("profiles/steady.yaml")
"""
    done = run_pytest(tmp_path, test, *SIMULATED)
    assert "4 failed" in done.stdout
    assert "profiles/steady.yaml: there is no such file here. The one that comes with overload is" in done.stdout
    assert "During handling" not in done.stdout  # each message once, and not as a chain of exceptions
    for message in ("nowhere.yaml", "did you mean 'fair_queues'", "--only v99: there is no such situation"):
        assert f"{message}" in done.stdout


def test_two_workers_never_hold_one_target_at_once(tmp_path):
    """Each writes hundreds of lines while it holds the target: were both at it, their lines would mix."""
    test = """
import pytest
from harness.pytest_plugin import one_at_a_time

@pytest.mark.parametrize("n", range(8))
def test_it(n):
    with one_at_a_time("http://127.0.0.1:9"), open("log", "a", buffering=1) as log:
        for _ in range(300):
            log.write(f"{n}\\n")
"""
    done = run_pytest(tmp_path, test, "-n", "2")
    assert "8 passed" in done.stdout, done.stdout
    lines = (tmp_path / "log").read_text().splitlines()
    changes = sum(one != two for one, two in pairwise(lines))
    assert (len(lines), changes) == (2400, 7)


def test_one_lock_a_host_and_port(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    same = [lock_of(url) for url in ("http://127.0.0.1:80", "http://127.0.0.1/", "http://127.0.0.1:80/base")]
    assert len(set(same)) == 1
    for name in ("localhost", "LOCALHOST", "localhost.", "shop.localhost", "[::1]", "[0:0::1]", "127.0.0.1"):
        assert lock_of(f"http://{name}:80") in same, name  # one machine, whatever it is called
    assert lock_of("http://shop.example:80") == lock_of("http://SHOP.example.:80")
    assert lock_of("http://shop.example:80") not in same
    assert lock_of("http://127.0.0.1:81") not in same
    document = {"name": "staging", "url": "http://127.0.0.1:80", "call": {"path": "/x"}}
    assert lock_of(target_from_document(document, tmp_path)) in same
    assert same[0].parent.stat().st_mode & 0o777 == 0o700


def test_a_lock_is_not_laid_in_somebody_elses_place(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"overload-locks-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="is not a folder of yours"):
        lock_of("http://127.0.0.1:80")


def test_a_lock_goes_with_its_holder(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = lock_of("http://127.0.0.1:80")
    code = (
        f"import fcntl; f = open({str(path)!r}, 'a'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        with path.open("a") as file:
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            holder.kill()
            holder.wait()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_virtual_time_is_a_target_of_the_plugin():
    assert target_of("simulator") == "simulator"
    assert target_of("stub") == "stub"
    assert not only_late([])
