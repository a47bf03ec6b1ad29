"""Ctrl-C in commands that do several things: what runs is ended, nothing further begins, one line says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.processes import gone_within, tree_of
from harness import trial
from harness.cli.interrupting import until_interrupted, worker_pool
from harness.errors import TrialBroken
from tests.conftest import ROOT
from tests.unit.test_cli import WORKED, overload


def interrupt_once(monkeypatch, simulated):
    """The first simulation is interrupted as Ctrl-C would; `simulated` gets each folder that one was begun in."""
    of = trial.simulation_of

    class Interrupted:
        leftovers = None

        def run(self):
            raise KeyboardInterrupt

    def simulation_of(*args):
        simulated.append(args[0].name)
        return Interrupted() if len(simulated) == 1 else of(*args)

    monkeypatch.setattr(trial, "simulation_of", simulation_of)


@pytest.mark.parametrize("more", [(), ("--ensemble", "500")])
def test_an_interrupted_variant_is_the_last_that_is_simulated(tmp_path, monkeypatch, more):
    begun = []
    interrupt_once(monkeypatch, begun)
    done = overload("simulate", WORKED, "--reports", tmp_path, *more)
    assert len(begun) == 1
    assert done.returncode == 4
    assert "it ended as 'interrupted'" in done.stdout


def test_a_replay_begins_no_further_policy_when_one_was_interrupted(tmp_path, monkeypatch):
    log = tmp_path / "a.csv"
    log.write_text("time,tenant\n" + "".join(f"2024-01-01T00:00:0{n}Z,A\n" for n in range(9)))
    begun = []
    interrupt_once(monkeypatch, begun)
    policies = ("--policy", "shared_fifo", "--policy", "fair_queues")
    done = overload("replay", log, "--simulate", "--workers", 2, *policies, "--reports", tmp_path / "r")
    assert (len(begun), done.returncode) == (1, 4), done.stderr


def test_trials_are_taken_until_one_was_interrupted():
    class One:
        def __init__(self, interrupted):
            self.interrupted = interrupted

    first, second, third = One(False), One(True), One(False)
    assert until_interrupted(iter([first, second, third])) == [first, second]
    assert until_interrupted(iter([first, third])) == [first, third]


def give_up(late):
    with worker_pool(1) as pool:
        pool.submit(time.sleep, 600)
        pool.submit(os.mkdir, late)
        raise KeyboardInterrupt


def test_work_that_nobody_waits_for_any_more_is_given_up(tmp_path):
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        give_up(tmp_path / "late")
    assert time.monotonic() - began < 60
    assert not (tmp_path / "late").exists()


def test_workers_leave_ctrl_c_to_their_parent():
    with worker_pool(1) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_IGN


POOL = """
import os, time
from harness.cli.interrupting import worker_pool
with worker_pool(2) as pool:
    print(*pool.map(pid_of, range(2)), flush=True)
    time.sleep(600)
"""


def pid_of(number):
    time.sleep(0.2)  # so that each process has one
    return os.getpid()


def test_a_pool_ends_with_a_parent_that_was_killed():
    program = "from tests.unit.test_cli_interrupting import pid_of" + POOL
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        pids = {int(text) for text in parent.stdout.readline().split()}
        workers = [one for one in tree_of(parent.pid) if one.pid in pids]
        parent.kill()
    assert len(workers) == len(pids) > 0
    assert gone_within(workers, 60) == []


def test_a_process_of_a_pool_that_is_killed_is_told_of_in_a_sentence():
    with pytest.raises(TrialBroken, match="a process of this command was ended from outside"), worker_pool(1) as pool:
        pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL).result()


def test_ctrl_c_is_one_line_and_its_own_exit_code(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.cli.options.load_profile", interrupted)
    done = overload("simulate", WORKED)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "stopped by Ctrl-C")


@pytest.mark.parametrize("command", [("--help",), ("check", "{trial}"), ("check", "{trial}", "--json")])
def test_a_reader_that_goes_away_is_no_verdict(tmp_path, command):
    """`overload check DIR | head -1`: neither the 0 of PASS nor the 1 of FAIL, and no complaint."""
    overload("simulate", WORKED, "--variant", "budget", "--reports", tmp_path)
    (folder,) = tmp_path.iterdir()
    reader, writer = os.pipe()
    os.close(reader)
    args = [part.format(trial=folder) for part in command]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *args], check=False, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("command", [("profile", "schema"), ("profile", "check", WORKED)])
def test_output_that_cannot_be_written_is_no_bug_of_ours(command):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "harness", *command], check=False, stdout=full, stderr=subprocess.PIPE, cwd=ROOT
        )
    assert (done.returncode, done.stderr) == (74, b"the output: cannot be read or written (No space left on device)\n")
