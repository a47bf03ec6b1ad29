"""The stand-in over real sockets, with small callers of known behaviour, and both commands as a person types them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import orjson
import pytest

from stub_service.provider.scenarios import SCENARIOS
from stub_service.provider_shell import MOST_BODY_BYTES, StandIn

pytestmark = [pytest.mark.live, pytest.mark.untimed]

CALLER = """
import os, sys, time, http.client, urllib.parse
url = urllib.parse.urlsplit(os.environ["OVERLOAD_URL"])
def attempt(body, headers={}):
    connection = http.client.HTTPConnection(url.netloc, timeout=10)
    try:
        connection.request("POST", url.path, body, headers)
        answer = connection.getresponse()
        return answer.status, float(answer.headers.get("Retry-After") or 0)
    except OSError:
        return 0, 0
def call(body, attempts, pause, headers={}):
    for number in range(attempts):
        status, wait = attempt(body, headers)
        if status == 200 or 400 <= status < 429:
            return status
        if number + 1 < attempts:
            time.sleep(max(wait, pause))
    return status
"""
CAREFUL = CALLER + "call('b', 3, 0.1, {'Idempotency-Key': 'k'})\n"
LAYERED = CALLER + "for _ in range(3):\n    call('b', 3, 0.06)\n    time.sleep(0.6)\n"


SIDE_BY_SIDE = (
    CALLER
    + """
import random, threading
keyed = len(sys.argv) > 1
def one(number):
    call('b', 3, 0.3 + random.random() / 2, {'Idempotency-Key': f'k{number}'} if keyed else {})
threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
)


def overload(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *words]
    environment = os.environ | {"OPENAI_API_KEY": "sk-real", "HTTP_PROXY": "http://127.0.0.1:9"} | (env or {})
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def rows(folder: Path, kind: str = "arrivals") -> list[dict]:
    return [orjson.loads(line) for line in (folder / f"{kind}.jsonl").read_bytes().splitlines()]


def test_a_careful_caller_passes_the_suite(tmp_path):
    done = overload("judge", "--json", "--evidence", str(tmp_path / "e"), "--", sys.executable, "-c", CAREFUL)
    document = json.loads(done.stdout)
    failed = [
        (run["scenario"], v["check"], v["sentence"])
        for run in document["runs"]
        for v in run["verdicts"]
        if v["word"] != "PASS"
    ]
    assert failed == []
    assert done.returncode == 0
    assert [run["command"]["exit_code"] for run in document["runs"]] == [0] * 5
    assert len(rows(tmp_path / "e" / "commits_then_resets", "effects")) == 1


@pytest.mark.parametrize(("words", "right"), [((), {"PASS", "INCONCLUSIVE"}), (("keyed",), {"PASS"})])
def test_calls_of_one_body_side_by_side_are_not_taken_for_retries(words, right, tmp_path):
    scenarios = ("--scenario", "down", "--scenario", "refused_once", "--scenario", "fails_once")
    command = (sys.executable, "-c", SIDE_BY_SIDE, *words)
    done = overload("judge", *scenarios, "--json", "--evidence", str(tmp_path / "e"), "--", *command)
    runs = json.loads(done.stdout)["runs"]
    said = {(run["scenario"], v["check"]): (v["word"], v["sentence"]) for run in runs for v in run["verdicts"]}
    assert {name: words for name, words in said.items() if words[0] not in right} == {}
    if words:
        assert said["down", "caller.attempts_bounded"][0] == "PASS"


def test_layers_are_found_again_offline(tmp_path):
    words = ("judge", "--scenario", "down", "--evidence", str(tmp_path / "e"), "--", sys.executable, "-c", LAYERED)
    assert overload(*words).returncode == 1
    again = overload("judge", str(tmp_path / "e"), "--only", "one_owner", "--json")
    assert again.returncode == 1
    (run,) = json.loads(again.stdout)["runs"]
    assert [verdict["check"] for verdict in run["verdicts"]] == ["caller.one_owner"]
    assert (run["rows"][0]["owners"], run["rows"][0]["inner"], run["rows"][0]["outer"]) == (2, 3, 3)


def test_a_command_that_never_ends_is_stopped_with_all_it_started_and_real_credentials_do_not_reach_it(tmp_path):
    script = (
        "import os, subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(tmp_path / 'said')!r}).write_text("
        "f\"{child.pid} {os.environ['OPENAI_API_KEY']} {os.environ.get('HTTP_PROXY')}\")\n"
        "time.sleep(600)\n"
    )
    words = (
        "--scenario",
        "calm",
        "--limit",
        "6",
        "--evidence",
        str(tmp_path / "e"),
        "--",
        sys.executable,
        "-c",
        script,
    )
    done = overload("judge", *words)
    assert done.returncode == 3
    assert "stopped at its time limit" in done.stdout
    assert "Nothing arrived" in done.stdout
    pid, key, proxy = (tmp_path / "said").read_text().split()
    assert (key, proxy) == ("stand-in", "None")
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_serve_says_where_and_how_to_judge(tmp_path):
    command = [
        sys.executable,
        "-m",
        "harness",
        "serve",
        "--scenario",
        "refused_once",
        "--evidence",
        str(tmp_path / "e"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        address = ("127.0.0.1", int(first.split("127.0.0.1:")[1].split(":")[0]))
        for _ in range(2):
            with socket.create_connection(address, 10) as connection:
                connection.sendall(
                    b"GET /service HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\nConnection: close\r\n\r\n"
                )
                while connection.recv(4096):
                    pass
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
        assert child.wait(20) == 0
    assert "export OVERLOAD_URL=" in rest
    assert "2 requests arrived" in rest
    assert f"overload judge {tmp_path / 'e'}" in rest
    assert [row["answer"] for row in rows(tmp_path / "e")] == ["refused", "served"]
    assert "s3cret" not in "".join(path.read_text() for path in (tmp_path / "e").iterdir())
    done = overload("judge", str(tmp_path / "e"))
    assert "caller.retry_after_kept" in done.stdout
    assert done.returncode == 1  # it came back at once


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--scenario", "dwon"), "did you mean down?"),
        (("serve", "--scenario", "suite"), "several scenarios"),
        (("judge",), "nothing to judge"),
        (("judge", "--scenario", "down"), "nothing to judge"),
        (("judge", "."), "holds no stand_in.json"),
        (("judge", "--scenario", "nothing_like_it", "--", "true"), "there is no scenario"),
        (("judge", "--evidence", "{}/e", "--", "/nowhere/at/all"), "cannot be run"),
        (("judge", "--set", "attempts=none", "--", "true"), "--set attempts=none"),
        (("judge", "--set", "atempts=3", "--", "true"), "expected BOUND=VALUE"),
        (("judge", "--only", "one_ownr", "--", "true"), "did you mean"),
    ],
)
def test_bad_input_is_one_clear_error(words, said, tmp_path):
    done = overload(*(word.format(tmp_path) for word in words))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def met(scenario: str, folder: Path, visit):
    async def run():
        async with StandIn(SCENARIOS[scenario], folder) as stand_in, aiohttp.ClientSession(stand_in.url) as session:
            return await visit(session, stand_in)

    return asyncio.run(run())


def test_commit_then_reset_read_back_and_repeat(tmp_path):
    async def visit(session, _):
        key = {"Idempotency-Key": "k 1"}
        with pytest.raises(aiohttp.ClientError):
            await session.post("/service", data=b"x", headers=key)
        async with session.get("/effects/k%201") as answer:
            first = answer.status, await answer.json()
        async with session.get("/effects/other") as answer:
            other = answer.status
        async with session.post("/service", data=b"x", headers=key) as answer:
            return first, other, await answer.json()

    first, other, last = met("commits_then_resets", tmp_path / "e", visit)
    assert first == (200, {"committed": True, "effect": 1})
    assert other == 404
    assert last == {"outcome": "served", "effect": 1, "replayed": True}
    kept = rows(tmp_path / "e")
    assert [row["form"] for row in kept] == ["service", "readback", "readback", "service"]
    assert kept[0]["effect"] == kept[3]["effect"] == 1
    assert kept[3]["replayed"] is True


def test_a_caller_that_hangs_up_is_written_down_as_such(tmp_path):
    async def visit(session, stand_in):
        with pytest.raises(asyncio.TimeoutError):
            await session.get("/service", timeout=aiohttp.ClientTimeout(total=0.2))
        while stand_in._under_way:
            await asyncio.sleep(0.01)

    met("hangs_once", tmp_path / "e", visit)
    (row,) = rows(tmp_path / "e")
    assert row["hung_up"] is True
    assert row["answer"] == "hang"


def test_streams_and_usage_of_both_model_interfaces(tmp_path):
    async def visit(session, _):
        async with session.post("/v1/chat/completions", json={"stream": True}) as answer:
            chat = await answer.text()
        async with session.post("/v1/messages", json={"stream": True}) as answer:
            messages = await answer.text()
        async with session.post("/v1/chat/completions", json={"model": "m"}) as answer:
            return chat, messages, await answer.json()

    chat, messages, plain = met("calm", tmp_path / "e", visit)
    assert chat.endswith("data: [DONE]\n\n")
    assert "event: message_stop" in messages
    assert plain["model"] == "m"
    assert plain["usage"]["total_tokens"] == plain["usage"]["prompt_tokens"] + plain["usage"]["completion_tokens"]


def test_what_is_too_large_or_not_served_is_refused_and_not_counted(tmp_path):
    async def visit(session, _):
        statuses = []
        for path, data in (("/nothing", b""), ("/v1/chat/completions", io.BytesIO(b"x" * (MOST_BODY_BYTES + 1)))):
            try:
                async with session.post(path, data=data) as answer:
                    statuses.append(answer.status)
            except aiohttp.ClientError:
                statuses.append(413)  # it hung up before all of the body had been sent
        async with session.get("/healthz") as answer:
            statuses.append(answer.status)
        return statuses

    assert met("calm", tmp_path / "e", visit) == [404, 413, 200]
    assert rows(tmp_path / "e") == []


def test_a_folder_that_holds_evidence_is_not_written_to_again(tmp_path):
    async def visit(session, _):
        return None

    met("calm", tmp_path / "e", visit)
    with pytest.raises(FileExistsError):
        met("calm", tmp_path / "e", visit)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_judge_that_is_stopped_takes_its_command_with_it(number, tmp_path):
    script = f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))"
    script += "; time.sleep(600)"
    words = ["judge", "--scenario", "calm", "--evidence", str(tmp_path / "e"), "--", sys.executable, "-c", script]
    with subprocess.Popen([sys.executable, "-m", "harness", *words], stderr=subprocess.PIPE, text=True) as child:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert child.poll() is None
        child.send_signal(number)
        _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "Traceback" not in said
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
