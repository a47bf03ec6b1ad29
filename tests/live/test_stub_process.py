"""The stub as a process: how it starts, what it says when it cannot, what it survives, and how it ends."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time

import orjson
import pytest

from harness.target.errors import TargetError, TargetGone, TargetUnusable
from harness.target.stub import StubProcess
from harness.target.url import connect, probe
from stub_service.config import to_json
from tests.live.stub_client import PATIENCE_S, Caller, audit, config, rows, wait_for

pytestmark = [pytest.mark.live, pytest.mark.untimed]


def run_stub(*arguments, tokens=None):
    environment = dict(os.environ) | ({"OVERLOAD_TOKENS": tokens} if tokens is not None else {})
    return subprocess.run(
        [sys.executable, "-m", "stub_service", *map(str, arguments)],
        capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    good, bad = to_json(config()), tmp_path / "bad.json"
    form = 'must be an object {"shared": ..., "capacity": ...}, either of them null or left out'

    def shared(**changed):
        return orjson.dumps({"shared": good | changed})

    cases = {
        b"{": f"{bad}:1: not JSON (unexpected end of data)",
        b"[]": f"{bad}: {form}",
        orjson.dumps(good): f"{bad}: {form}",
        b'{"shared": null}': f"{bad}: describes nothing to serve; give `shared`, `capacity` or both",
        b'{"shared": []}': f"{bad}: not a configuration of the shared service (",
        b'{"capacity": {}}': f"{bad}: not a configuration of the capacity layer (",
        shared(workers=[]): f"{bad}: workers must be [[from_ns, count], ...], the first from",
        shared(workers=[[0, -1]]): f"{bad}: workers: a count cannot be negative",
        shared(service_time={}): f"{bad}: service_time.mean_ns must be above zero",
        shared(admission={"policy": "lifo"}): "unknown policy 'lifo' (known: ",
    }
    for text, message in cases.items():
        bad.write_bytes(text)
        ended = run_stub("--config", bad)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"stub: {message}")
        assert ended.stderr.count("\n") == 1
    bad.write_bytes(shared())
    for arguments, message in (
        (("--config", tmp_path / "none.json"), "none.json: cannot be read (No such file or directory)"),
        (("--config", bad, "--defect", "nope"), "unknown defect 'nope' (known: "),
        (("--config", bad, "--dependencies-only"), "--dependencies-only needs a configuration with `capacity`"),
        (("--config", bad, "--evidence", bad), f"--evidence {bad}: cannot be written (File exists)"),
        (("--config", bad, "--port", "70000"), "--port 70000: a port is between 0 and 65535"),
    ):
        ended = run_stub(*arguments)
        assert ended.returncode == 2
        assert message in ended.stderr
        assert ended.stderr.count("\n") == 1
    for tokens, message in (
        ("{", "is not JSON"),
        ('["a"]', "must be a JSON object"),
        ('{"A":"x","B":"x"}', "same token"),
    ):
        ended = run_stub("--config", bad, tokens=tokens)
        assert ended.returncode == 2
        assert message in ended.stderr


def test_a_port_in_use_says_so(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(TargetUnusable, match=f"exit code 2: stub: cannot listen on 127.0.0.1 port {port}: Address"):
            StubProcess(config(), tmp_path, port=port).__enter__()


def test_an_unknown_defect_is_told_before_anything_is_sent(tmp_path):
    with pytest.raises(TargetUnusable, match="the stub ended with exit code 2: stub: unknown defect 'nope'"):
        StubProcess(config(), tmp_path, defect="nope").__enter__()


def test_a_stub_that_died_is_a_clear_error(tmp_path):
    with StubProcess(config(), tmp_path) as stub:
        os.kill(stub.pid, signal.SIGKILL)
        with pytest.raises(TargetGone, match="the stub was ended by signal 9"):
            stub.health()
        stub.stop()
        with pytest.raises(TargetError, match="the stub is not running"):
            stub.set_epoch(0)


def test_stopping_gives_open_calls_their_terminal_row_and_an_answer(tmp_path):
    with StubProcess(config(service_ms=20_000), tmp_path) as stub, Caller(stub) as running, Caller(stub) as waiting:
        running.send("A", Overload_Call="0.0")
        wait_for(stub, lambda health: health["running"] == 1)
        waiting.send("A", Overload_Call="0.1")
        wait_for(stub, lambda health: health["waiting"] == 1)
        stub.stop()
        for caller in (running, waiting):
            answer = caller.answer()
            assert (answer.status, answer.json["outcome"], answer.json["reason"]) == (503, "failed", "stub_stopped")
    assert audit(tmp_path) == {"0.0": "failed", "0.1": "failed"}
    assert {row["reason"] for row in rows(tmp_path) if row["outcome"] == "failed"} == {"stub_stopped"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_with_code_0(tmp_path, number):
    file = tmp_path / "service.json"
    file.write_bytes(orjson.dumps({"shared": to_json(config())}))
    with subprocess.Popen(
        [sys.executable, "-m", "stub_service", "--config", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert orjson.loads(child.stdout.readline())["event"] == "ready"
        child.send_signal(number)
        assert child.wait(PATIENCE_S) == 0
        assert child.stderr.read() == b""


PROFILE = """
name: small
duration: 10s
service: {workers: 1, service_time: 20s, admission: {policy: shared_fifo, queue: 1}}
tenants: {"Å ä": {rate: 1/s}}
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_with_a_defect_until_it_is_stopped(tmp_path, number):
    profile = tmp_path / "small.yaml"
    profile.write_text(PROFILE)
    command = [sys.executable, "-m", "harness", "stub", profile, "--port", "0", "--evidence", tmp_path / "evidence"]
    with subprocess.Popen(
        [*command, "--defect", "refusal_as_503"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        said = list(itertools.takewhile(lambda line: line != "Ctrl-C ends it\n", child.stdout))
        url = said[0].split()[-1]
        with contextlib.ExitStack() as stack, connect(url) as stub:
            stub.port = int(url.rpartition(":")[2])
            callers = [stack.enter_context(Caller(stub)) for _ in range(3)]
            for place, caller in enumerate(callers):
                caller.send("Å ä", Overload_Call=f"0.{place}")
                expected = min(2, place + 1)
                wait_for(stub, lambda health, n=expected: health["running"] + health["waiting"] == n)
            assert callers[2].answer().status == 503
            child.send_signal(number)
            assert child.wait(PATIENCE_S) == 0
        assert (child.stdout.read(), child.stderr.read()) == ("stopping\n", "")
    assert said[1:4] == [
        "tokens (unless OVERLOAD_TOKENS gives others):\n",
        "  Å ä: token-Å ä\n",
        "with the defect refusal_as_503: a refusal is answered 503\n",
    ]
    assert audit(tmp_path / "evidence") == {"0.0": "failed", "0.1": "failed", "0.2": "throttled"}


PARENT = """
import sys, time
from pathlib import Path
from harness.target.stub import StubProcess
from tests.live.stub_client import config
with StubProcess(config(), Path(sys.argv[1])) as stub:
    print(stub.pid, stub.port, flush=True)
    time.sleep(600)
"""


def test_no_stub_outlives_a_parent_that_was_killed(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    command = [sys.executable, "-c", PARENT, str(tmp_path / "evidence")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as parent:
        pid, port = map(int, parent.stdout.readline().split())
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
        parent.kill()
    assert list(scratch.iterdir()) == [], "nobody is there any more to take it away"
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the stub outlived its parent")


GARBAGE = {
    b"\x00\xff\x16\x03\x01garbage\r\n\r\n": 400,
    b"GET /service HTTP/9.9\r\n\r\n": 400,
    b"GET\r\n\r\n": 400,
    b"GET /service HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n": 400,
    b"GET /service HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000 + b"\r\n\r\n": 400,
    b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n": 400,
    b"POST /service HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n": 400,
    b"POST /service HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n": 413,
    b"POST /service HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": 400,
    b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n": 404,
    b"GET /epoch HTTP/1.1\r\nHost: a\r\n\r\n": 405,
    b"DELETE /healthz HTTP/1.1\r\nHost: a\r\n\r\n": 405,
    b"GET /faults HTTP/1.1\r\nHost: a\r\n\r\n": 404,
    b"POST /runs HTTP/1.1\r\nHost: a\r\n\r\n": 404,
    b"PUT /faults HTTP/1.1\r\nHost: a\r\n\r\n": 405,
    b"GET /service HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer token-\xff\xfe\r\n\r\n": 401,
}


def test_garbage_gets_4xx_and_the_stub_lives_on_without_a_traceback(tmp_path):
    with StubProcess(config(service_ms=1), tmp_path) as stub:
        for request, status in GARBAGE.items():
            with Caller(stub) as caller:
                caller.socket.sendall(request)
                answer = caller.answer()
                assert answer.status == status, request[:80]
                assert b"Traceback" not in answer.body
        with Caller(stub) as caller:
            for name, value in (
                ("Overload_Queue_Deadline_Ms", "nan"),
                ("Overload_Queue_Deadline_Ms", "-1"),
                ("Overload_Queue_Deadline_Ms", "1e9"),
                ("Overload_Round", "-1"),
                ("Overload_Round", "9" * 5000),
                ("Overload_Cost", "inf"),
                ("Overload_Call", "x" * 201),
                ("Overload_Attempt", "é"),
            ):
                answer = caller.ask("A", **{name: value})
                assert (answer.status, answer.json["error"]) == (400, "bad_header"), name
            assert caller.ask("A", Overload_Call="0.0").status == 200
        assert not any("Traceback" in line or "rror" in line for line in stub._output)
    assert audit(tmp_path) == {"0.0": "served"}


def test_bodies_are_drained_and_the_connection_stays_usable(tmp_path):
    with StubProcess(config(service_ms=1), tmp_path) as stub, Caller(stub) as caller:
        for size in (1, 70_000, 3_000_000):
            caller.send("A", method="POST", Content_Length=size)
            caller.socket.sendall(b"x" * size)
            assert caller.answer().status == 200
        caller.send("A", method="PUT", Transfer_Encoding="chunked")
        caller.socket.sendall(b"5\r\nhello\r\n0\r\n\r\n")
        assert caller.answer().status == 200
        caller.send("A", method="POST", Content_Length=5, Expect="100-continue")
        assert caller.socket.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        caller.socket.sendall(b"hello")
        assert caller.answer().status == 200
        assert caller.ask("A").status == 200


def test_evidence_that_cannot_be_written_ends_the_stub(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    (tmp_path / "decisions.jsonl").symlink_to("/dev/full")
    with StubProcess(config(), tmp_path) as stub, Caller(stub) as caller:
        caller.send("A", Overload_Call="0.0")
        with pytest.raises(
            TargetGone, match=r"exit code 1: stub: evidence cannot be written \(No space left on device\)"
        ):
            wait_for(stub, lambda health: False)


def test_a_running_stub_is_recognised_and_gives_the_evidence_since_the_epoch(tmp_path):
    own, collected = tmp_path / "stub", tmp_path / "trial"
    collected.mkdir()
    with StubProcess(config(service_ms=1, queue=9), own) as stub, Caller(stub) as caller:
        assert probe(stub.url + "/") == "overload-stub"
        with connect(stub.url) as remote:
            assert caller.ask("A", Overload_Call="0.0").status == 200
            remote.set_epoch(time.monotonic_ns())
            assert caller.ask("A", Overload_Call="0.1").status == 200
            assert remote.health()["now_ns"] > 0
            remote.collect(collected)
        url = stub.url
    assert audit(own) == {"0.0": "served", "0.1": "served"}
    assert audit(collected) == {"0.1": "served"}
    with pytest.raises(TargetUnusable, match=r"nothing answers at .* \(Connection refused\); start the service first"):
        probe(url)
    with pytest.raises(TargetGone, match="did not answer GET /healthz"):
        remote.health()
