"""Trials against a service that a target file describes: what is sent, how it is understood, and every rail on the way.

The service is a small server in the test's own process, which counts what it saw. Nothing that may not be sent is, and
no token is in anything that a trial leaves behind.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from harness import checks, trial
from harness.checks.verdict import Word
from harness.errors import BadInput
from harness.profile.loader import from_document
from harness.target.driver_process import Workers
from harness.target.file import target_from_document
from tests.certificates import NAME, Authority, server_context
from tests.conftest import ROOT
from tests.live.awkward import OK, always, rows_of, serving
from tests.unit.test_cli import overload as in_this_process

pytestmark = [pytest.mark.live, pytest.mark.untimed]

TOKENS = {"A": "s3cret-of-A-7f2c", "B": "s3cret-of-B-91aa"}
PROFILE = {
    "name": "small",
    "duration": "1s",
    "drain": "1s",
    "patience": "900ms",
    "patience_until": "done",
    "tenants": {"A": {"rate": "20/s"}, "B": {"rate": "20/s", "phase": "20ms"}},
    "ordinary": ["A"],
}
PLANNED = 40
REFUSAL = b'{"error":{"code":"busy","why":"queue"},"wait_ms":12}'


def answer(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@pytest.fixture(autouse=True)
def _tokens(monkeypatch):
    for name, token in TOKENS.items():
        monkeypatch.setenv(f"SHOP_TOKEN_{name}", token)


def target_document(url, **more):
    return {
        "name": "shop",
        "url": url,
        "credentials": {"header": "X-Api-Key", "form": "key {token}", "env": "SHOP_TOKEN_{TENANT}"},
        "call": {"method": "PUT", "path": "/items/{item}?by={tenant}", "body": {"call": "{call}", "n": "{item}"}},
        "data": {"item": {"from": 1, "to": 99}},
        "service_time": "400ms",
        **more,
    }


def described(url, folder, **more):
    return target_from_document(target_document(url, **more), folder)


def run(profile, target, folder, on_progress=lambda event: None):
    loaded = from_document({**PROFILE, **profile}, checks=checks.PARAMETERS)
    return trial.run(loaded, trial.new_folder(folder, "trial"), target, None, on_progress)


def verdict(judged, check):
    return next(one for one in judged.verdicts if one.check == check)


def outcomes(judged):
    rows = rows_of(judged.trial.folder)
    return Counter((row["outcome"], row.get("reason")) for row in rows)


def test_calls_and_answers_are_as_the_file_says(tmp_path):
    async def behave(connection):
        seq = int(connection.request.headers["overload-call"].split(".")[1])
        timing = "Server-Timing: wait;dur=3.5"
        answers = (
            answer(200, b"{}", timing),
            answer(429, REFUSAL, "X-Retry: 7", timing),
            answer(302, b"", "Location: /x"),
        )
        await connection.answer(answers[0 if seq < 10 else 1 if seq < 19 else 2])
        return True

    answers = {
        "outcome": [{"status": "4xx", "pointer": "/error/code", "equals": "busy", "outcome": "throttled"}],
        "queue_wait": {"server_timing": "wait"},
        "retry_after": [{"header": "X-Retry", "unit": "s"}],
    }
    with serving(behave) as server:
        judged = run({}, described(server.url + "/v1", tmp_path, answers=answers), tmp_path)
    assert verdict(judged, "trial.conserved").word is Word.PASS
    assert outcomes(judged) == {("served", None): 20, ("throttled", "busy"): 18, ("failed", "status_302"): 2}
    rows = {f"{row['call']}.{row['attempt']}": row for row in rows_of(judged.trial.folder)}
    assert {row["queue_wait_ns"] for row in rows.values() if row["outcome"] != "failed"} == {3_500_000}
    assert {row["retry_after"] for row in rows.values() if row["outcome"] == "throttled"} == {"7"}
    assert len(server.seen) == PLANNED == len(rows)
    drawn = set()
    for seen in server.seen:
        tenant = rows[seen.headers["overload-attempt"]]["tenant"]
        match = re.fullmatch(rf"/v1/items/(\d+)\?by={tenant}", seen.path)
        assert match is not None
        drawn.add(match[1])
        assert seen.method == "PUT"
        assert seen.headers["x-api-key"] == f"key {TOKENS[tenant]}"
        assert json.loads(seen.body) == {"call": seen.headers["overload-call"], "n": int(match[1])}
        assert "authorization" not in seen.headers
    assert len(drawn) > 10


def test_a_head_request_and_a_call_without_a_body(tmp_path):
    async def behave(connection):
        head = connection.request.method == "HEAD"
        await connection.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + (b"" if head else b"x" * 9))
        return True

    for method in ("HEAD", "GET"):
        with serving(behave) as server:
            judged = run({}, described(server.url, tmp_path, call={"method": method, "path": "/"}), tmp_path)
        assert outcomes(judged) == {("served", None): PLANNED}
        assert all("content-length" not in seen.headers for seen in server.seen)


def test_over_tls_with_a_ca_and_a_name_of_its_own(tmp_path):
    authority = Authority(tmp_path)
    tls = {"ca": "ca.pem", "server_name": NAME}
    with serving(always(OK), tls=server_context(*authority.issue(NAME))) as server:
        judged = run({}, described(server.url, tmp_path, tls=tls), tmp_path)
        assert outcomes(judged) == {("served", None): PLANNED}
        refused = run({}, described(server.url, tmp_path, tls={"ca": "ca.pem"}), tmp_path)
    ((outcome, reason),) = outcomes(refused)
    assert outcome == "failed"
    assert reason.startswith("tls_")
    assert len(server.seen) == PLANNED


# Rails.


def held_up(seconds):
    """Answers late, and says how many calls it had at once at most."""
    now = most = 0

    async def behave(connection):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(seconds)
        now -= 1
        await connection.answer(OK)
        return True

    return behave, lambda: most


def test_no_more_are_in_flight_than_the_owner_allows(tmp_path):
    behave, most = held_up(0.4)
    with serving(behave) as server:
        judged = run({}, described(server.url, tmp_path, limits={"max_rate": "100/s", "max_in_flight": 3}), tmp_path)
    found = outcomes(judged)
    assert most() <= 3
    assert set(found) == {("served", None), ("dropped", "in_flight_ceiling")}
    assert found["served", None] == len(server.seen)
    assert sum(found.values()) == PLANNED
    assert verdict(judged, "trial.conserved").word is Word.PASS
    late = verdict(judged, "trial.on_time")
    assert late.word is Word.INVALID
    if "The harness was late" not in late.sentence:
        assert "ceiling kept calls back" in late.sentence
        assert "limits.max_in_flight" in late.add
    # The healthy twin: as slow, and as many allowed as it takes.
    behave, most = held_up(0.4)
    with serving(behave) as server:
        judged = run({}, described(server.url, tmp_path, limits={"max_rate": "100/s", "max_in_flight": 40}), tmp_path)
    assert outcomes(judged) == {("served", None): PLANNED}


def test_it_stops_by_itself_when_the_target_suffers(tmp_path):
    async def behave(connection):
        seq = int(connection.request.headers["overload-call"].split(".")[1])
        await connection.answer(answer(200 if seq < 10 else 503))
        return True

    long = {"duration": "4s"}
    abort = {"server_errors_pp": 30, "window": "1s", "least": 10}
    with serving(behave) as server:
        judged = run(long, described(server.url, tmp_path, abort=abort), tmp_path)
    rows = rows_of(judged.trial.folder)
    assert len(rows) == len(server.seen) < 4 * PLANNED / 2
    reason = judged.trial.manifest["ended"]["reason"]
    assert re.fullmatch(
        r"aborted: \d+ % of the last \d+ calls ended in server errors \(abort.server_errors_pp\)", reason
    )
    conserved = verdict(judged, "trial.conserved")
    assert conserved.word is Word.INVALID
    assert reason in conserved.sentence
    assert judged.exit_code == 4
    assert judged.interrupted
    assert judged.trial.manifest["ended"]["calls"] == len(rows)
    # The same answers as refusals are no suffering: that is what refusals are for.
    answers = {"outcome": [{"status": 503, "outcome": "throttled"}]}
    with serving(behave) as server:
        judged = run(long, described(server.url, tmp_path, abort=abort, answers=answers), tmp_path)
    assert judged.trial.manifest["ended"]["reason"] == "completed"
    assert len(server.seen) == 4 * PLANNED


def test_ctrl_c_drains_and_is_invalid(tmp_path):
    behave, _ = held_up(0.3)
    pressed = []

    def press_once(event):
        if not pressed:
            pressed.append(event)
            raise KeyboardInterrupt

    with serving(behave) as server:
        judged = run({"duration": "6s", "drain": "3s"}, described(server.url, tmp_path), tmp_path, press_once)
    assert pressed
    assert judged.trial.manifest["ended"]["reason"] == "interrupted"
    assert len(server.seen) < 6 * PLANNED
    assert outcomes(judged) == {("served", None): len(server.seen)}
    assert judged.exit_code == 4


def written(folder, url, profile=PROFILE, **more):
    (folder / "profile.yaml").write_text(yaml.safe_dump(profile))
    (folder / "target.yaml").write_text(yaml.safe_dump(target_document(url, **more)))
    return [str(folder / "profile.yaml"), "--target", str(folder / "target.yaml"), "--reports", str(folder / "reports")]


def overload(*words):
    command = [sys.executable, "-m", "harness", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


REPLANNED = {**PROFILE, "tenants": {"A": {"rate": "20/s", "replans": {"calls": 2, "after": "10ms", "rounds": 3}}}}
ONE_RUN = [{"name": "t", "rate": "1/s", "batches": [{"steps": [{"dependency": "x"}]}]}]
SLOW = {"limits": {"max_rate": "100/s"}}
STOPPED = {
    "worst case": (REPLANNED, SLOW, (), {}, 2, "the worst case of profile 'small' is 300/s"),
    "time scale": (PROFILE, {}, ("--time-scale", "0.5"), {}, 2, "keeps its own times"),
    "no token": (PROFILE, {}, (), {"SHOP_TOKEN_B": ""}, 2, "B: SHOP_TOKEN_B"),
    "unnamed": (PROFILE, {"credentials": {"tenants": {"A": "SHOP_TOKEN_A"}}}, (), {}, 2, "for the token of B"),
    "bad token": (PROFILE, {}, (), {"SHOP_TOKEN_B": "a\nb"}, 2, "characters that no header can carry"),
    "dry run": (PROFILE, SLOW, ("--dry-run",), {}, 0, "nothing was sent"),
    "runs": ({**PROFILE, "tenants": {"A": {"runs": ONE_RUN}}}, {}, (), {}, 2, "does not say how one is opened"),
}  # fmt: skip


@pytest.mark.parametrize("name", STOPPED)
def test_what_a_rail_stops_was_never_sent(tmp_path, name, monkeypatch):
    profile, more, options, env, code, said = STOPPED[name]
    for variable, value in env.items():
        monkeypatch.setenv(variable, value)
    with serving(always(OK)) as server:
        done = in_this_process("run", *written(tmp_path, server.url, profile, **more), *options)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert server.seen == []
    assert server.accepted == 0
    assert not (tmp_path / "reports").exists() or not list((tmp_path / "reports").iterdir())


def test_a_host_that_is_not_allowed_is_sent_nothing(tmp_path):
    with serving(always(OK)) as server:
        url = f"http://{socket.gethostname()}.example:{server.port}"
        done = in_this_process("run", *written(tmp_path, url, limits={"max_rate": "100/s"}))
        assert done.returncode == 2
        assert "is not on the allow list" in done.stderr
        with pytest.raises(BadInput, match="not on the allow list"):
            described(url, tmp_path, limits={"max_rate": "100/s"})
    assert server.accepted == 0


# Secrets.


async def echo(connection):
    """A service that gives everything back that it was sent, wherever it can."""
    key = connection.request.headers["x-api-key"]
    body = json.dumps({"outcome": "throttled", "reason": f"{'x' * 92} {key}", "key": key, "run": key}).encode()
    await connection.answer(answer(429, body, f"Retry-After: {key}", f"Server-Timing: {key};dur=1", f"X-Echo: {key}"))
    return True


def test_no_token_is_in_anything_that_a_trial_leaves_behind(tmp_path):
    log = tmp_path / "decisions.log"

    async def behave(connection):
        headers = connection.request.headers
        row = {"t": "2026-01-01T00:00:00Z", "a": headers["overload-attempt"], "outcome": "throttled"}
        with log.open("a") as file:
            print(json.dumps({**row, "why": headers["x-api-key"], "who": headers["x-api-key"]}), file=file)
            print(json.dumps({**row, "outcome": headers["x-api-key"]}), file=file)
        return await echo(connection)

    fields = {"attempt": "/a", "reason": "/why", "tenant": "/who"}
    evidence = {"decisions": {"file": str(log), "fields": fields}}
    with serving(behave) as server:
        words = written(tmp_path, server.url, evidence=evidence)
        log.touch()
        shown = [overload("run", *words), overload("run", *words, "--json")]
        checked = overload("target", "check", words[2], "--tenant", "A", "--tenant", "B")
        folders = list((tmp_path / "reports").iterdir())
        again = [overload("check", str(folder)) for folder in folders]
    assert all(done.returncode in (0, 1, 3, 4) for done in shown), shown[0].stderr
    assert len(server.seen) == 2 * PLANNED + 2
    left = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert {"manifest.json", "calls.jsonl", "decisions.jsonl"} <= {path.name for path in left}
    assert "[redacted]" in next(path for path in left if path.name == "calls.jsonl").read_text()
    texts = [path.read_text(errors="replace") for path in left]
    texts += [text for done in (*shown, *again, checked) for text in (done.stdout, done.stderr)]
    for token in TOKENS.values():
        for part in (token, token[:9]):
            assert not [text[:80] for text in texts if part in text], f"{part} was kept"


# Agent runs.

RUNS = {
    "open": {"path": "/tasks", "body": {"kind": "{task_class}", "who": "{tenant}"}},
    "run": "/task/id",
    "submit": {"path": "/tasks/{run}/batches", "body": {"batch": "{batch}", "work": "{steps}"}},
    "step": {"id": "{step}", "at": "{dependency}", "key": "{idempotency_key}"},
    "steps": {"pointer": "/work", "step": "/id", "outcome": "/state", "outcomes": {"done": "served", "wait": "queued",
              "broken": "failed"}, "queue_wait": "/waited", "unit": "ms"},
    "read": {"method": "GET", "path": "/tasks/{run}/batches/{batch}"},
    "poll": {"every": "20ms", "most": 20},
    "cancel": {"method": "DELETE", "path": "/tasks/{run}"},
}  # fmt: skip
AGENTS = {
    "name": "agents",
    "duration": "1s",
    "drain": "3s",
    "tenants": {
        "A": {"runs": [{"name": "ticket", "rate": "5/s", "batches": [
            {"steps": [{"dependency": "crm", "repeat": 2}]}, {"steps": [{"dependency": "crm"}]}]}]}},
}  # fmt: skip
BEGUN = 5


class Tasks:
    """A service in which agents work on tasks: it queues each batch, and is asked how it stands."""

    def __init__(self, asks=2, last="done"):
        self.asks, self.last = asks, last
        self.tasks, self.asked, self.work = 0, Counter(), {}

    async def behave(self, connection):
        seen = connection.request
        await connection.answer(self.answered(seen.method, seen.path, json.loads(seen.body or b"{}")))
        return True

    def answered(self, method, path, body):
        if path == "/tasks":
            self.tasks += 1
            return answer(201, json.dumps({"task": {"id": f"t{self.tasks}"}}).encode())
        if method == "POST":
            self.work[path + "/" + body["batch"]] = body["work"]
            return answer(202, self.told(body["work"], "wait"))
        if method == "GET":
            self.asked[path] += 1
            return answer(200, self.told(self.work[path], self.last if self.asked[path] >= self.asks else "wait"))
        return answer(204, b"")

    @staticmethod
    def told(work, state):
        other = {"id": "of-another-batch", "state": "broken"}
        steps = [{**step, "state": state, "waited": 4} for step in work]
        return json.dumps({"work": [*steps, other]}).encode()


def test_runs_are_opened_queued_asked_for_and_ended_as_the_file_says(tmp_path):
    service = Tasks()
    with serving(service.behave) as server:
        judged = run(AGENTS, described(server.url, tmp_path, runs=RUNS), tmp_path)
    rows = rows_of(judged.trial.folder)
    assert Counter((row["action"], row["outcome"]) for row in rows) == {
        ("open", "served"): BEGUN,
        ("submit", "served"): 2 * BEGUN,
    }
    submits = [row for row in rows if row["action"] == "submit"]
    assert {row["polls"] for row in submits} == {2}
    assert {row["queue_wait_ns"] for row in submits} == {4_000_000}
    assert len(server.seen) == len(rows) + sum(row["polls"] for row in submits)
    steps = [step for work in service.work.values() for step in work]
    assert {tuple(step)[:2] for step in steps} == {("id", "at")}
    assert all(step.get("key", "") is not None for step in steps)  # what a step does not have is left out
    conserved = verdict(judged, "trial.conserved")
    assert conserved.word is Word.PASS
    assert "cannot be told that a run is over" in conserved.sentence


@pytest.mark.parametrize(("service", "runs", "ends"), [
    (Tasks(last="broken"), RUNS, ("failed", None)),
    (Tasks(last="unheard-of"), RUNS, ("failed", "unknown_step_outcome")),
    (Tasks(asks=1000), RUNS, ("failed", "still_queued")),
    (Tasks(), {key: value for key, value in RUNS.items() if key != "poll"}, ("failed", "unasked_wait")),
])  # fmt: skip
def test_how_a_batch_can_end(tmp_path, service, runs, ends):
    with serving(service.behave) as server:
        judged = run(AGENTS, described(server.url, tmp_path, runs=runs), tmp_path)
    rows = rows_of(judged.trial.folder)
    found = Counter((row["outcome"], row.get("reason")) for row in rows if row["action"] == "submit")
    assert found == {ends: 2 * BEGUN}
    assert verdict(judged, "trial.conserved").word is Word.PASS


def test_a_cancelled_run_is_cancelled_there(tmp_path):
    profile = json.loads(json.dumps(AGENTS))
    profile["tenants"]["A"]["runs"][0]["cancel_after"] = "30ms"
    with serving(Tasks().behave) as server:
        judged = run(profile, described(server.url, tmp_path, runs=RUNS), tmp_path)
        without = {key: value for key, value in RUNS.items() if key != "cancel"}
        seen = len(server.seen)
        with pytest.raises(BadInput, match=r"add `runs.cancel`"):
            run(profile, described(server.url, tmp_path, runs=without), tmp_path)
        assert len(server.seen) == seen
    cancelled = [seen for seen in server.seen if seen.method == "DELETE"]
    assert len(cancelled) == BEGUN
    assert verdict(judged, "trial.conserved").word is Word.PASS


# A Python driver.

DRIVER = """
import http.client
import json
import time
from urllib.parse import urlsplit

from harness.target.driver import Told


class Shop:
    inject = None

    def __init__(self, context):
        self._place = urlsplit(context.url)
        self._rows = []

    def _ask(self, caller, method, path, body=None):
        connection = http.client.HTTPConnection(self._place.hostname, self._place.port, timeout=5)
        headers = {"X-Api-Key": f"key {caller.token}", "Overload-Attempt": caller.attempt, "Overload-Call": caller.call}
        try:
            connection.request(method, path, json.dumps(body or {}), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def open_run(self, caller, wish):
        status, said = self._ask(caller, "POST", "/tasks")
        return Told("served", run=said["task"]["id"], status=status)

    def submit(self, caller, run, batch):
        if batch["batch"] == "b1":
            raise ValueError(f"no: {caller.token}")
        work = [{"id": step["step"]} for step in batch["steps"]]
        self._ask(caller, "POST", f"/tasks/{run}/batches", {"batch": batch["batch"], "work": work})
        return Told("queued")

    def read_back(self, caller, run, batch):
        status, said = self._ask(caller, "GET", f"/tasks/{run}/batches/{batch['batch']}")
        states = {step["state"] for step in said["work"]} - {"broken"}
        if states == {"wait"}:
            return Told("queued")
        return Told("served", status=status, queue_wait_ms=1.5, reason=f"by {caller.token}")

    def cancel(self, caller, run):
        return Told("cancelled", status=self._ask(caller, "DELETE", f"/tasks/{run}")[0])

    def evidence(self, since_unix_ns):
        return []
"""


def test_runs_by_way_of_a_python_driver(tmp_path):
    (tmp_path / "shop_driver.py").write_text(DRIVER)
    service = Tasks()

    async def slow(connection):
        await asyncio.sleep(0.05)
        return await service.behave(connection)

    target = {"driver": "shop_driver:Shop"}
    with serving(slow) as server:
        judged = run(AGENTS, described(server.url, tmp_path, **target), tmp_path)
    rows = rows_of(judged.trial.folder)
    found = Counter((row["action"], row["outcome"], row.get("reason")) for row in rows)
    assert found == {
        ("open", "served", None): BEGUN,
        ("submit", "served", "by [redacted]"): BEGUN,
        ("submit", "failed", "driver_raised_ValueError"): BEGUN,
    }
    assert {row["polls"] for row in rows if row.get("reason") == "by [redacted]"} == {2}
    assert verdict(judged, "trial.conserved").word is Word.PASS, verdict(judged, "trial.conserved").sentence
    assert all(TOKENS["A"] not in path.read_text(errors="replace") for path in judged.trial.folder.rglob("*.json*"))


def test_a_driver_is_held_against_what_it_must_do(tmp_path):
    (tmp_path / "shop_driver.py").write_text(DRIVER)
    with serving(Tasks().behave) as server:
        written(tmp_path, server.url, driver="shop_driver:Shop")
        done = in_this_process("target", "conformance", str(tmp_path / "target.yaml"))
    assert done.returncode == 1, done.stderr
    assert "cancel: must end the run; a batch that was submitted after it was" not in done.stdout
    assert "evidence: must hold the calls just made" in done.stdout
    assert "cancel: must not raise where the service answers; it raised" not in done.stdout
    assert "submit: must not raise where the service answers; it raised ValueError" in done.stdout
    assert not any(token in done.stdout + done.stderr for token in TOKENS.values())
    plain = overload("target", "conformance", str(tmp_path / "nowhere.yaml"))
    assert plain.returncode == 2


@pytest.mark.parametrize(("name", "said"), [
    ("nowhere:Shop", "there is no module 'nowhere'"),
    ("shop_driver_x:Shopp", "has no Shopp"),
    ("shop_driver_x:Half", "lacks submit, read_back, cancel, inject"),
])  # fmt: skip
def test_a_driver_that_is_none_sends_nothing(tmp_path, name, said):
    (tmp_path / "shop_driver_x.py").write_text(DRIVER + "\n\nclass Half:\n    def open_run(self): ...\n")
    with serving(always(OK)) as server, pytest.raises(BadInput, match=re.escape(said)):
        run(AGENTS, described(server.url, tmp_path, driver=name), tmp_path)
    assert server.accepted == 0


# Recorded traffic.

LOG = "".join(
    f'10.0.0.{1 + n % 2} - - [29/Nov/2026:10:00:{n // 10:02d} +0000] "{method} /old/items/{n}?q={n} HTTP/1.1" 200 5\n'
    for n, method in enumerate(["GET", "POST", "DELETE", "GET"] * 10)
)
MAPPED = {
    "credentials": {"tenants": {"10.0.0.1": "SHOP_TOKEN_A", "10.0.0.2": "SHOP_TOKEN_B"}},
    "recorded": {
        "strip": "/old",
        "prefix": "/v2",
        "query": "drop",
        "headers": {"X-Who": "{tenant}"},
        "body": {"n": "{seq}"},
    },
}


def replayed(folder, url, *options, **more):
    (folder / "access.log").write_text(LOG)
    reports = written(folder, url, **{**MAPPED, **more})[1:]
    log = ("replay", str(folder / "access.log"), "--tenant", "remote_addr", "--speed", "2")
    return in_this_process(*log, *reports, *options)


def test_recorded_calls_are_sent_by_the_targets_own_paths_and_credentials(tmp_path):
    with serving(always(OK)) as server:
        done = replayed(tmp_path, server.url + "/base")
    assert done.returncode in (0, 3, 4), done.stderr
    assert "sends to" in done.stderr
    assert "at most 40 calls in all" in done.stderr
    assert len(server.seen) == 40
    assert Counter(seen.method for seen in server.seen) == {"GET": 20, "POST": 10, "DELETE": 10}
    for seen in server.seen:
        match = re.fullmatch(r"/base/v2/items/(\d+)", seen.path)
        assert match is not None, seen.path
        tenant = f"10.0.0.{1 + int(match[1]) % 2}"
        assert seen.headers["x-who"] == tenant
        assert seen.headers["authorization"] == f"Bearer {TOKENS['A' if tenant.endswith('1') else 'B']}"
        assert (b"" if seen.method != "POST" else b'{"n":') in seen.body
        assert bool(seen.body) == (seen.method == "POST")


@pytest.mark.parametrize(("options", "more", "code", "said"), [
    (("--dry-run",), {}, 0, "nothing was sent"),
    ((), {"limits": {"max_rate": "5/s"}}, 2, "allows 5/s (limits.max_rate)"),
    ((), {"credentials": {"tenants": {"10.0.0.1": "SHOP_TOKEN_A"}}}, 2, "for the token of 10.0.0.2"),
])  # fmt: skip
def test_a_replay_that_a_rail_stops_was_never_sent(tmp_path, options, more, code, said):
    with serving(always(OK)) as server:
        done = replayed(tmp_path, server.url, *options, **more)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert server.accepted == 0
    assert not (tmp_path / "reports").exists() or not list((tmp_path / "reports").iterdir())


def test_what_cannot_be_seen_is_not_verified_and_nothing_is_sent(tmp_path):
    with serving(always(OK)) as server:
        written(tmp_path, server.url)
        done = in_this_process("verify", "--target", str(tmp_path / "target.yaml"), "--only", "v05,v07", "--json")
    assert done.returncode == 3, done.stderr
    checked = json.loads(done.stdout)["checks"]
    assert [one["word"] for one in checked] == ["INCONCLUSIVE", "INCONCLUSIVE"]
    assert all("evidence: {dependencies" in one["add"] for one in checked)
    assert server.accepted == 0


# Several workers.


def by_workers(profile, target, folder, here=2):
    loaded = from_document({**PROFILE, **profile}, checks=checks.PARAMETERS)
    made = trial.new_folder(folder, "trial")
    return trial.run(loaded, made, target, None, lambda event: None, Workers(here=here))


def test_workers_share_the_ceiling_and_sign_each_for_its_own_tenants(tmp_path):
    behave, most = held_up(0.4)
    with serving(behave) as server:
        target = described(server.url, tmp_path, limits={"max_rate": "100/s", "max_in_flight": 3})
        judged = by_workers({}, target, tmp_path)
        assert most() <= 3
        keys = {(seen.headers["overload-call"].split(".")[0], seen.headers["x-api-key"]) for seen in server.seen}
        assert keys == {("0", f"key {TOKENS['A']}"), ("1", f"key {TOKENS['B']}")}
        seen = len(server.seen)
        with pytest.raises(BadInput, match="max_in_flight is 3, and 4 workers are to share it"):
            by_workers({}, target, tmp_path, here=4)
    found = outcomes(judged)
    assert set(found) == {("served", None), ("dropped", "in_flight_ceiling")}
    assert (sum(found.values()), found["served", None]) == (PLANNED, seen)
    assert len(server.seen) == seen


def test_a_worker_that_sees_the_target_suffer_stops_them_all(tmp_path):
    async def behave(connection):
        await connection.answer(answer(503 if connection.request.headers["overload-call"] >= "1." else 200))
        return True

    abort = {"server_errors_pp": 30, "window": "1s", "least": 10}
    with serving(behave) as server:
        judged = by_workers({"duration": "6s"}, described(server.url, tmp_path, abort=abort), tmp_path)
    reason = judged.trial.manifest["ended"]["reason"]
    assert re.match(r"aborted: worker worker-\d: 100 % of the last \d+ calls ended in server errors", reason)
    assert len(server.seen) == len(rows_of(judged.trial.folder)) < 6 * PLANNED / 2
    assert judged.exit_code == 4
