"""The live driver as a child: its rules live, its ends, its parent's death, and what it never shows."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.target.driver_process import DriverDied, LiveProcess
from tests.conftest import ROOT, WORKED_EXAMPLE, with_values
from tests.live.awkward import OK, Connection, always, audit, drive, manifest_of, never, rows_of, serving

pytestmark = pytest.mark.live

REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nServer-Timing: queue;dur=0, service;dur=0\r\n"
    b'Content-Length: 45\r\n\r\n{"outcome":"throttled","reason":"queue_full"}'
)
EXPIRED = (
    b"HTTP/1.1 504 Gateway Timeout\r\nServer-Timing: queue;dur=12.5\r\n"
    b'Content-Length: 47\r\n\r\n{"outcome":"expired","reason":"queue_deadline"}'
)
LONG = {"duration": "60s", "drain": "200ms", "tenants": {"A": {"rate": "50/s"}}}


def test_replans_follow_refusals_by_the_rules(tmp_path):
    tenants = {
        "A": {
            "rate": ["0/s", {"from": "0s", "to": "200ms", "rate": "20/s"}],
            "replans": {"calls": 2, "after": "50ms", "rounds": 2},
        }
    }
    with serving(always(REFUSAL)) as server:
        driven = drive(tmp_path, {"duration": "2s", "tenants": tenants}, server.url)
    audit(driven, 4, server.attempts())
    assert Counter(row["round"] for row in driven.rows) == {0: 4, 1: 8, 2: 16}
    assert Counter(seen.headers["overload-round"] for seen in server.seen) == {"0": 4, "1": 8, "2": 16}
    by_id = {row["call"]: row for row in driven.rows}
    for row in driven.rows:
        assert (row["outcome"], row["reason"], row["status"]) == ("throttled", "queue_full", 429)
        assert row["retry_after"] == "7"
        assert (row["queue_wait_ns"], row["service_ns"]) == (0, 0)
        assert "untyped" not in row
        if row["round"]:
            assert row["due_ns"] == by_id[row["parent"]]["done_ns"] + 50_000_000
            assert row["run"] == by_id[row["parent"]]["run"]


def test_the_service_ends_a_wait_that_it_was_told_of(tmp_path):
    profile = {"duration": "200ms", "patience": "1.5ms", "patience_until": "start", "tenants": {"A": {"rate": "50/s"}}}
    with serving(always(EXPIRED)) as server:
        driven = drive(tmp_path, profile, server.url)
    audit(driven, 10, server.attempts())
    assert {seen.headers["overload-queue-deadline-ms"] for seen in server.seen} == {"1.5"}
    assert driven.outcomes() == {("abandoned", "patience"): 10}
    assert {row["queue_wait_ns"] for row in driven.rows} == {12_500_000}


def test_held_back_calls_are_exact_and_never_sent(tmp_path):
    """The agent of the worked example with its budget: 10/s and 10 at once, whatever the time scale."""
    agent = {**WORKED_EXAMPLE["tenants"]["D"], "budget": {"rate": "10/s", "burst": 10}}
    profile = with_values(WORKED_EXAMPLE, {"tenants": {"D": agent}, "ordinary": []})
    with serving(always(OK)) as server:
        driven = drive(tmp_path, profile, server.url, time_scale=0.025)
    audit(driven, 2240, server.attempts())
    assert driven.outcomes() == {("served", None): 1049, ("held_back", "tenant_budget"): 1191}
    assert len(server.seen) == 1049
    assert all(row["attempt"] == 0 and "sent_ns" not in row for row in driven.rows if row["outcome"] == "held_back")


def test_interrupted_it_sends_nothing_more_and_leaves_a_usable_record(tmp_path):
    with serving(never) as server:
        driven = drive(tmp_path, LONG, server.url, during=lambda driver, event: driver.interrupt())
    assert driven.done["reason"] == "interrupted"
    assert 0 < len(driven.rows) < 300
    audit(driven, len(driven.rows), server.attempts())
    assert set(driven.outcomes()) <= {("open", "drain_limit"), ("open", "interrupted")}


def test_interrupted_while_nothing_is_in_flight_it_ends_at_once(tmp_path):
    with serving(always(OK)) as server:
        driven = drive(tmp_path, {**LONG, "drain": "1h"}, server.url, during=lambda driver, event: driver.interrupt())
    assert driven.done["reason"] == "interrupted"
    audit(driven, len(driven.rows), server.attempts())
    assert set(driven.outcomes()) == {("served", None)}


def test_the_end_of_standard_input_ends_it_at_once(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest_of({**LONG, "drain": "1h"}, "http://127.0.0.1:9")))
    with serving(never) as server:
        (tmp_path / "manifest.json").write_text(json.dumps(manifest_of({**LONG, "drain": "1h"}, server.url)))
        driver = LiveProcess(tmp_path)
        driver.ready()
        driver.begin(time.monotonic_ns())
        next(driver.events())
        driver.close()
        assert driver.wait() == 0
    rows = rows_of(tmp_path)
    assert {(row["outcome"], row["reason"]) for row in rows} == {("open", "parent_gone")}
    assert set(server.attempts()) == {f"{row['call']}.1" for row in rows}


PARENT = """
import sys, time
from pathlib import Path
from harness.target.driver_process import LiveProcess
driver = LiveProcess(Path(sys.argv[1]))
driver.ready()
driver.begin(time.monotonic_ns())
next(driver.events())
print(driver.pid, flush=True)
for _ in driver.events():
    pass
"""


def test_it_does_not_outlive_a_parent_that_was_killed(tmp_path):
    with serving(never) as server:
        (tmp_path / "manifest.json").write_text(json.dumps(manifest_of({**LONG, "drain": "1h"}, server.url)))
        command = [sys.executable, "-c", PARENT, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as parent:
            pidfd = os.pidfd_open(int(parent.stdout.readline()))
            parent.kill()
        gone, _, _ = select.select([pidfd], [], [], 20)
        os.close(pidfd)
    assert gone, "the driver lives on"
    assert {row["outcome"] for row in rows_of(tmp_path)} == {"open"}


def test_a_driver_that_was_killed_is_said_to_be(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest_of(LONG, "http://127.0.0.1:9")))
    with LiveProcess(tmp_path) as driver:
        driver.ready()
        os.kill(driver.pid, signal.SIGKILL)
        with pytest.raises(DriverDied, match="the live driver was killed by signal 9 before it was done"):
            list(driver.events())


def test_out_of_descriptors_calls_are_dropped_and_none_is_silent(tmp_path):
    def no_more(driver, event):
        resource.prlimit(driver.pid, resource.RLIMIT_NOFILE, (3, 3))

    profile = {"duration": "1500ms", "drain": "200ms", "tenants": {"A": {"rate": "40/s"}}}
    with serving(never) as server:
        driven = drive(tmp_path, profile, server.url, during=no_more)
    audit(driven, 60, server.attempts())
    assert set(driven.outcomes()) == {("open", "drain_limit"), ("dropped", "no_descriptor")}
    assert all(row["attempt"] == 0 for row in driven.rows if row["outcome"] == "dropped")


def test_hostile_names_are_sent_as_they_are_and_tokens_are_never_shown(tmp_path):
    names = ["Zoë <b>", "../../etc", "a'\"b\\", "{}{0}%s", "class"]
    tokens = {"Zoë <b>": "s3cret-1", "class": "s3cret-2"}
    environment = {**os.environ, "OVERLOAD_TOKENS": json.dumps(tokens)}
    profile = {"duration": "100ms", "tenants": {name: {"rate": "100/s"} for name in names}}
    with serving(always(REFUSAL)) as server:
        driven = drive(tmp_path, profile, server.url, environment=environment)
    audit(driven, 10 * len(names), server.attempts())
    assert Counter(row["tenant"] for row in driven.rows) == dict.fromkeys(names, 10)
    seen = {s.headers["authorization"].encode("latin-1").decode() for s in server.seen}
    assert seen == {f"Bearer {tokens.get(name, f'token-{name}')}" for name in names}
    everything = driven.stderr + json.dumps([driven.progress, driven.done])
    everything += "".join(path.read_text() for path in tmp_path.iterdir())
    assert "s3cret" not in everything


NOT_ONE = "{path}: not the manifest of a trial"
LIST = "(TypeError: list indices must be integers or slices, not str); was it edited?"
TOKEN = "the token of tenant 'A' in OVERLOAD_TOKENS is empty or has characters that no header can carry"
NOWHERE = "http://127.0.0.1:9"
NO_SCHEDULE = {**LONG, "tenants": {"A": {"recorded": {"file": "none.jsonl"}}}}


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "{path}: No such file or directory; give the folder of a trial that has been planned"),
        ([], f"{NOT_ONE} {LIST}"),
        ({"target": {"kind": "url"}}, f"{NOT_ONE} (KeyError: 'url'); was it edited?"),
        (manifest_of({**LONG, "duration": "1"}, NOWHERE), "{path}: duration: "),
        (
            manifest_of(LONG, "http://10.0.0.1"),
            "target host '10.0.0.1' is not loopback, nor on the allow list; only 127.0.0.0/8, ::1, localhost and the "
            "hosts of that list are accepted",
        ),
        (manifest_of(LONG, NOWHERE), TOKEN),
        (
            manifest_of(NO_SCHEDULE, NOWHERE),
            "{folder}/none.jsonl: no such schedule file; write it with overload replay",
        ),
    ],
    ids=["missing", "list", "keys", "profile", "host", "token", "schedule"],
)
def test_what_cannot_be_begun_says_why(tmp_path, manifest, message):
    path = tmp_path / "manifest.json"
    if manifest is not None:
        path.write_text(json.dumps(manifest))
    tokens = '{"A": "s3\\ncret"}' if message == TOKEN else ""
    with LiveProcess(tmp_path, {**os.environ, "OVERLOAD_TOKENS": tokens}) as driver:
        with pytest.raises(BadInput) as error:
            driver.ready()
        assert driver.wait() == 2
    said, expected = str(error.value), message.format(path=path, folder=tmp_path)
    assert said.startswith(expected) if expected.endswith(": ") else said == expected
    assert "Traceback" not in said


def test_a_recording_that_turns_out_to_be_broken_is_told(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"due_ns":0}\n{"due_ns":10000000}\nbroken\n')
    profile = {"duration": "1s", "tenants": {"A": {"recorded": {"file": "a.jsonl"}}, "B": {"rate": "20/s"}}}
    with serving(always(OK)) as server:
        driven = drive(tmp_path, profile, server.url)
    assert driven.done["reason"] == "error"
    assert "a.jsonl:3" in driven.done["error"]
    assert driven.outcomes("B") == {("served", None): 20}
    assert len(server.seen) == len(driven.rows)


def test_a_parent_that_does_not_listen_does_not_stop_the_schedule(tmp_path):
    """Nobody reads its standard output: progress is dropped, calls are not."""
    profile = {"duration": "3s", "tenants": {f"tenant-{i:03}": {"rate": "2/s"} for i in range(150)}}

    async def behave(connection: Connection) -> bool:
        await connection.answer(OK)
        return True

    with serving(behave) as server:
        (tmp_path / "manifest.json").write_text(json.dumps(manifest_of(profile, server.url)))
        command = [sys.executable, "-m", "harness.live", "--trial", str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as driver:
            driver.stdin.write(b'{"epoch_monotonic_ns": %d}\n' % time.monotonic_ns())
            driver.stdin.flush()
            assert driver.wait(30) == 0
            driver.stdin.close()
            driver.stdout.close()
    assert len(rows_of(tmp_path)) == 900 == len(server.seen)


def locust(profile, *options):
    """The command of that name; `profile` None leaves it out."""
    command = [
        str(Path(sys.executable).with_name("locust")),
        "-f",
        "harness/live/locustfile.py",
        "--headless",
        *options,
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OVERLOAD_")}
    if profile is not None:
        environment["OVERLOAD_PROFILE"] = str(profile)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_under_locusts_own_command(tmp_path):
    profile = tmp_path / "profile.yaml"
    profile.write_text("name: small\nduration: 500ms\ntenants: {A: {rate: 20/s}, 'B c': {rate: 20/s}}\n")
    folder = tmp_path / "trial"
    with serving(always(OK)) as server:
        ended = locust(profile, "--host", server.url, "--overload-trial", str(folder), "--only-summary", "--json")
    assert ended.returncode == 0, ended.stderr
    assert len(rows_of(folder)) == 20 == len(server.seen)
    assert json.loads((folder / "manifest.json").read_text())["ended"]["reason"] == "completed"
    counted = {(row["method"], row["name"]): row["num_requests"] for row in json.loads(ended.stdout)}
    assert counted == {("POST", "A"): 10, ("POST", "B c"): 10}


def test_locusts_own_command_refuses_what_it_cannot_drive():
    ended = locust(None, "--host", "http://127.0.0.1:9")
    assert ended.returncode == 2
    remedy = "set OVERLOAD_PROFILE or --overload-profile to a profile's file"
    assert ended.stderr == f"overload: no profile given; {remedy}\n"
    ended = locust(ROOT / "profiles" / "worked_example.yaml", "--host", "http://10.0.0.1")
    assert ended.returncode == 2
    assert "overload: target host '10.0.0.1' is not loopback" in ended.stderr
