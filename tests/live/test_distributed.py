"""A trial that several processes drive: the same calls and verdicts as of one, and what is said when one goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from harness import trial
from harness.checks.verdict import Word
from harness.errors import BadInput
from harness.profile.loader import from_document
from harness.target.driver_process import LiveProcess, Workers
from harness.target.file import target_from_document
from harness.workload.plan import planned
from tests.conftest import ROOT
from tests.live.awkward import OK, always, manifest_of, rows_of, serving
from tests.live.distributing import free_port, join
from tests.live.test_trials import CALM, DOCUMENT, children_of, loaded, wait_for

pytestmark = [pytest.mark.live, pytest.mark.untimed]

TWO = Workers(here=2)
SHARED_OUT = {
    "duration": "2500ms",
    "phases": {},
    "checks": ["fairness.refusals_structured"],
    "service": {"workers": 60, "service_time": "50ms", "admission": {"policy": "shared_fifo", "queue": 50}},
    "tenants": {
        "big": {"rate": "600/s"},
        "poisson": {"rate": "40/s", "pace": "poisson"},
        "agent": {"rate": "20/s", "replans": {"calls": 2, "after": "100ms", "rounds": 2}},
        "budgeted": {"rate": "30/s", "budget": {"rate": "10/s", "burst": 5}},
    },
    "ordinary": ["poisson"],
}


@pytest.fixture
def folder(tmp_path):
    return trial.new_folder(tmp_path, "trial")


def test_progress_of_all_workers_is_one(folder):
    seen = []
    trial.run(loaded(**SHARED_OUT), folder, trial.STUB, on_progress=seen.append, workers=TWO)
    assert {frozenset(event["tenants"]) for event in seen[1:]} == {frozenset(SHARED_OUT["tenants"])}
    due = [sum(counts["due"] for counts in event["tenants"].values()) for event in seen]
    assert due == sorted(due)
    assert due[-1] > 600


def test_a_worker_that_is_killed_makes_the_trial_invalid_with_every_call_accounted_for(folder):
    made = loaded(**{**CALM, "duration": "20s"})
    killed = []

    def kill(event):
        if event["event"] == "progress" and event["now_ns"] > 1_500_000_000 and not killed:
            killed.append([os.kill(pid, signal.SIGKILL) for pid in children_of(folder, b"worker-2")])

    judged = trial.run(made, folder, trial.STUB, on_progress=kill, workers=TWO)
    assert len(killed[0]) == 1
    assert judged.word == Word.INVALID
    ended = judged.trial.manifest["ended"]
    assert ended["at_ns"] < 15_000_000_000, "the others drain: there is no use in more load"
    assert ended["reason"] == "lost worker worker-2"
    (lost,) = ended["workers"]["lost"]
    assert (lost["name"], lost["why"]) == ("worker-2", "its process was killed by signal 9")
    assert ended["calls"] == len(judged.trial.calls)
    by_worker = {worker["name"]: worker for worker in judged.trial.manifest["workers"]}
    assert lost["calls"] == by_worker["worker-2"]["calls"] > 0
    # What was due of its tenants until then is in the record, or is counted as missing: no call is neither.
    theirs = [judged.trial.tenants.index(name) for name in by_worker["worker-2"]["tenants"]]
    due = sum(
        due_ns < lost["at_ns"] for name in by_worker["worker-2"]["tenants"] for due_ns in dues_of(made.profile, name)
    )
    have = sum(int((judged.trial.calls.tenant == tenant).sum()) for tenant in theirs)
    assert have + lost["unaccounted"] == due
    (conserved,) = [verdict for verdict in judged.verdicts if verdict.check == "trial.conserved"]
    assert conserved.sentence.startswith("The record does not add up: worker worker-2 was lost at ")
    assert f"{lost['unaccounted']:,} that were due are unaccounted for" in conserved.sentence
    assert not children_of(folder)


def dues_of(profile, name):
    from harness.workload.plan import arrivals, no_recordings

    return arrivals(profile, name, profile.tenants[name], no_recordings)


def test_a_worker_of_another_machine_gets_all_it_needs_but_tokens(tmp_path):
    """As on another machine: it knows the master's address and its own tokens, and nothing else."""
    port = free_port()
    schedule = b"".join(b'{"due_ns":%d,"path":"/r/%d"}\n' % (n * 20_000_000, n) for n in range(100))
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "a.jsonl").write_bytes(schedule)
    tenants = {"plain": {"rate": "40/s"}, "recorded": {"recorded": {"file": "a.jsonl"}}}
    with serving(always(OK)) as server:
        (tmp_path / "manifest.json").write_text(
            json.dumps(manifest_of({"duration": "2s", "tenants": tenants}, server.url))
        )
        waiting = []
        with (
            join(port, "far-away", {"recorded": "s3cret", "plain": "s3cret"}) as worker,
            LiveProcess(
                tmp_path,
                {**os.environ, "OVERLOAD_TOKENS": ""},
                Workers(here=1, elsewhere=1, listen=f"127.0.0.1:{port}"),
            ) as driver,
        ):
            driver.ready(on_waiting=waiting.append)
            driver.begin(time.monotonic_ns() + 100_000_000)
            *_, done = driver.events()
            assert worker.wait(20) == 0, worker.stderr.read()
    assert waiting[0]["address"] == f"127.0.0.1:{port}"
    assert done["reason"] == "completed", done
    assert (done["workers"]["turned_away"], done["workers"]["late"], done["workers"]["lost"]) == (0, [], [])
    local, far = done["workers"]["all"]
    assert (local["name"], far["name"]) == ("worker-1", "far-away")
    assert 0 < far["clock_error_ns"] < 1_000_000_000
    assert abs(far["clock_offset_ns"]) <= far["clock_error_ns"]
    assert len(rows_of(tmp_path)) == 180 == len(server.seen)
    secret = {seen.headers["overload-call"].split(".")[0] for seen in server.seen if "s3cret" in str(seen.headers)}
    assert secret == {str(list(tenants).index(name)) for name in far["tenants"]}
    everything = driver.stderr + "".join(path.read_text() for path in tmp_path.rglob("*.json*"))
    assert "s3cret" not in everything


def test_a_worker_that_falls_silent_is_lost_and_must_not_go_on_when_it_is_back(tmp_path):
    port, tenants = free_port(), {"A": {"rate": "40/s"}, "B": {"rate": "40/s"}}
    stopped = []
    with serving(always(OK)) as server, join(port, "far") as worker:
        (tmp_path / "manifest.json").write_text(
            json.dumps(manifest_of({"duration": "60s", "tenants": tenants}, server.url))
        )
        with LiveProcess(tmp_path, workers=Workers(1, 1, f"127.0.0.1:{port}")) as driver:
            driver.ready()
            driver.begin(time.monotonic_ns() + 100_000_000)
            for event in driver.events():
                if event["event"] == "progress" and event["now_ns"] > 1_000_000_000 and not stopped:
                    stopped.append(worker.send_signal(signal.SIGSTOP))
                done = event
        worker.send_signal(signal.SIGCONT)
        assert worker.wait(30) == 4
        assert worker.stderr.read().startswith("overload worker: ")
    assert done["reason"] == "lost worker far"
    (lost,) = done["workers"]["lost"]
    assert lost["why"].startswith("nothing was heard of it for ")
    assert lost["unaccounted"] > 40
    assert done["calls"] == len(rows_of(tmp_path))
    assert done["at_ns"] < 40_000_000_000


def test_a_worker_that_never_joins_is_waited_for_a_while_and_nothing_is_sent(tmp_path):
    with serving(always(OK)) as server:
        (tmp_path / "manifest.json").write_text(
            json.dumps(manifest_of({"duration": "2s", "tenants": {"A": {"rate": "10/s"}}}, server.url))
        )
        workers = Workers(here=1, elsewhere=1, listen=f"127.0.0.1:{free_port()}", join_within_s=4)
        with LiveProcess(tmp_path, workers=workers) as driver:
            with pytest.raises(
                BadInput, match=r"^[01] of 2 workers joined within 4 s( \(worker-1\))?; nothing was sent. Start"
            ):
                driver.ready()
            assert driver.wait() == 2
    assert server.seen == []
    assert not children_of(tmp_path)


def test_a_worker_that_cannot_reach_the_target_ends_it_before_anything_is_sent(tmp_path):
    url = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "manifest.json").write_text(
        json.dumps(manifest_of({"duration": "2s", "tenants": {"A": {"rate": "10/s"}}}, url))
    )
    with LiveProcess(tmp_path, workers=TWO) as driver, pytest.raises(BadInput, match="cannot reach the target at 127"):
        driver.ready()
    assert (tmp_path / "calls.jsonl").read_bytes() == b""


def test_without_a_master_a_worker_says_so():
    worker = subprocess.run(
        [sys.executable, "-m", "harness", "worker", "--master", f"127.0.0.1:{free_port()}", "--join-within", "1"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert worker.returncode == 2
    assert "no master answers at 127.0.0.1:" in worker.stderr
    assert "Traceback" not in worker.stderr


@pytest.fixture
def running(tmp_path):
    """`overload run --workers 1 --remote-workers 1` and its other worker, some calls into the trial."""
    path = tmp_path / "short.yaml"
    path.write_text(json.dumps({**DOCUMENT, **CALM, "duration": "60s"}))
    port = free_port()
    options = ["--workers", "1", "--remote-workers", "1", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "run", str(path), "--reports", str(tmp_path / "reports"), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    worker = join(port, "other")
    try:
        yield process, wait_for(lambda: begun(tmp_path / "reports"), 60), worker
    finally:
        for one in (process, worker):
            one.kill()
            one.communicate()


def begun(reports):
    """Rows of both workers are there."""
    for calls in reports.glob("*/calls.jsonl"):
        if {row.split(b".")[0][-1:] for row in calls.read_bytes().splitlines()} >= {b"0", b"1", b"2"}:
            return calls.parent
    return None


def test_ctrl_c_drains_everywhere_and_every_row_is_shipped(running):
    process, folder, worker = running
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4, out + err
    assert "waiting for workers: " in err
    assert "overload worker --master 127.0.0.1:" in err
    assert "interrupted" in out
    assert "Traceback" not in out + err
    assert worker.wait(20) == 0, worker.stderr.read()
    judged = trial.judge(folder)
    ended = judged.trial.manifest["ended"]
    assert (ended["reason"], ended["workers"]["lost"]) == ("interrupted", [])
    assert ended["calls"] == len(judged.trial.calls)
    assert not judged.trial.calls.is_outcome("open").any()
    assert wait_for(lambda: not children_of(folder)) is True


def test_a_worker_that_is_stopped_by_hand_ends_the_trial_in_order(running):
    process, folder, worker = running
    worker.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4, out + err
    assert worker.wait(20) == 0, worker.stderr.read()
    judged = trial.judge(folder)
    assert judged.trial.manifest["ended"]["reason"] == "interrupted"
    assert judged.trial.manifest["ended"]["workers"]["lost"] == []


def test_a_master_that_dies_takes_its_workers_along_and_leaves_whole_files(running):
    process, folder, worker = running
    (master,) = children_of(folder, b"--workers")
    os.kill(master, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4, out + err
    assert "signal 9" in out
    assert "Traceback" not in out + err
    assert worker.wait(20) == 4
    assert "the master is gone" in worker.stderr.read()
    assert wait_for(lambda: not children_of(folder)) is True
    judged = trial.judge(folder)
    assert judged.word == Word.INVALID
    assert "broken" in judged.trial.manifest["ended"]["reason"]
    assert judged.trial.cut_lines == 0
    assert len(judged.trial.calls) > 0


def test_no_worker_outlives_a_parent_that_is_killed(running):
    process, folder, worker = running
    process.kill()
    assert wait_for(lambda: not children_of(folder)) is True
    assert worker.wait(20) in (0, 4)
    judged = trial.judge(folder)
    assert judged.word == Word.INVALID
    assert judged.trial.cut_lines == 0


def test_hundreds_of_tenants_share_users_on_every_worker(tmp_path):
    tenants = {f"tenant-{n}": {"rate": "1/s", "phase": f"{n}ms"} for n in range(600)}
    profile = {"duration": "1s", "tenants": tenants}
    with serving(always(OK)) as server:
        (tmp_path / "manifest.json").write_text(json.dumps(manifest_of(profile, server.url)))
        with LiveProcess(tmp_path, workers=TWO) as driver:
            driver.ready()
            driver.begin(time.monotonic_ns() + 100_000_000)
            *_, done = driver.events()
    assert done["reason"] == "completed", done
    assert Counter(row["tenant"] for row in rows_of(tmp_path)) == dict.fromkeys(tenants, 1)
    plan = planned(loaded(**{**CALM, **profile, "ordinary": []}).profile)
    assert len(plan) == len(server.seen)


def locust(profile, *options):
    command = [sys.executable.replace("/python", "/locust"), "-f", "harness/live/locustfile.py", "--headless", *options]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OVERLOAD_")}
    environment["OVERLOAD_PROFILE"] = str(profile)
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_under_locusts_own_command_with_master_and_workers(tmp_path):
    profile = tmp_path / "profile.yaml"
    profile.write_text(
        "name: small\nduration: 1s\ntenants: {A: {rate: 20/s}, big: {rate: 700/s}, 'D d': {rate: 10/s}}\n"
    )
    folder, port = tmp_path / "trial", str(free_port())
    with serving(always(OK)) as server:
        kept = ["--host", server.url, "--overload-trial", str(folder), "--only-summary", "--json"]
        workers = [locust(profile, "--worker", "--master-port", port) for _ in range(2)]
        master = locust(profile, "--master", "--master-bind-port", port, "--expect-workers", "2", *kept)
        out, err = master.communicate(timeout=90)
        ended = [worker.communicate(timeout=30) and worker.returncode for worker in workers]
    assert (master.returncode, ended) == (0, [0, 0]), err
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["ended"]["reason"] == "completed"
    assert manifest["ended"]["workers"] == {"expected": 2, "turned_away": 0, "late": [], "lost": []}
    assert len(rows_of(folder)) == 730 == len(server.seen)
    assert len({row["call"] for row in rows_of(folder)}) == 730
    counted = {row["name"]: row["num_requests"] for row in json.loads(out)}
    assert counted == {"A": 20, "big": 700, "D d": 10}


def test_under_locusts_own_command_ctrl_c_ships_every_row(tmp_path):
    profile = tmp_path / "profile.yaml"
    profile.write_text("name: small\nduration: 60s\ntenants: {A: {rate: 50/s}, B: {rate: 50/s}}\n")
    folder = tmp_path / "trial"
    with serving(always(OK)) as server:
        process = locust(profile, "--processes", "2", "--host", server.url, "--overload-trial", str(folder))
        calls = folder / "calls.jsonl"
        wait_for(lambda: calls.exists() and calls.stat().st_size > 20_000, 60)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    ended = json.loads((folder / "manifest.json").read_text())["ended"]
    assert ended["reason"] == "interrupted", err
    assert ended["workers"]["lost"] == []
    assert ended["calls"] == len(rows_of(folder)) == len(server.seen)


def test_the_rails_of_a_target_file_hold_on_every_worker(tmp_path, monkeypatch):
    """Each has the tokens of its own tenants and its share of the ceiling; where the target suffers, all stop."""
    for name in ("A", "B"):
        monkeypatch.setenv(f"SHOP_TOKEN_{name}", f"s3cret-of-{name}")
    document = {
        "name": "shop",
        "credentials": {"env": "SHOP_TOKEN_{TENANT}"},
        "limits": {"max_rate": "500/s", "max_in_flight": 40},
        "abort": {"server_errors_pp": 30, "window": "1s", "least": 10},
        "service_time": "400ms",
    }
    tenants = {"A": {"rate": "20/s"}, "B": {"rate": "20/s", "phase": "20ms"}}
    made = from_document({"name": "small", "duration": "30s", "drain": "1s", "tenants": tenants})

    async def behave(connection):
        tenant, seq = connection.request.headers["overload-call"].split(".")
        failing = tenant == "1" and int(seq) >= 20
        await connection.answer(b"HTTP/1.1 503 X\r\nContent-Length: 2\r\n\r\n{}" if failing else OK)
        return True

    with serving(behave) as server:
        target = target_from_document({**document, "url": server.url}, tmp_path)
        judged = trial.run(made, trial.new_folder(tmp_path, "trial"), target, workers=TWO)
    rows, ended = rows_of(judged.trial.folder), judged.trial.manifest["ended"]
    assert ended["reason"].startswith("aborted: worker worker-2: "), ended
    assert ended["workers"]["lost"] == []
    assert ended["calls"] == len(rows) == len(server.seen) < 600
    assert {(row["tenant"], row["outcome"]) for row in rows} == {("A", "served"), ("B", "served"), ("B", "failed")}
    sent = {(seen.headers["overload-call"][0], seen.headers["authorization"]) for seen in server.seen}
    assert sent == {("0", "Bearer s3cret-of-A"), ("1", "Bearer s3cret-of-B")}
    assert "s3cret" not in (judged.trial.folder / "manifest.json").read_text() + str(rows)
