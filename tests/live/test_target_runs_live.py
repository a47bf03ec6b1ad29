"""Agents at a service that a target file describes: runs as the file says them, and by way of a Python driver."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter

import pytest

from harness.checks.verdict import Word
from harness.errors import BadInput
from tests.live.awkward import OK, always, rows_of, serving
from tests.live.target_trials import (
    TOKENS,
    answer,
    described,
    overload,
    run,
    verdict,
    written,
)
from tests.unit.test_cli import overload as in_this_process

pytestmark = [pytest.mark.live, pytest.mark.untimed, pytest.mark.usefixtures("shop_tokens")]


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
