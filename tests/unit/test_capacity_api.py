"""The controller's API as a function: what it answers to what is right, wrong, and somebody else's."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stub_service.capacity.api import STATUS_OF, handle
from stub_service.capacity.envelope import Envelope
from stub_service.capacity.ports import BatchResult, RunWish, Step, StepResult
from stub_service.capacity.runs import WORST_LAST, Opened, Refused, Run, view

REMAINING = {"attempts": 19, "retry_tokens": 2, "budgets": {"customer": 5}}


class Told:
    """A controller that was told what to answer, and remembers what it was asked."""

    dependencies = ("customer", "billing")

    def __init__(self, result=None, opened=None, wait=False):
        self.asked = []
        self.result = result
        self.opened = opened or Opened("r1", 90, 20, 2, 3, (("customer", 6),))
        self.wait = asyncio.Event() if wait else None
        self.outcome = None
        wish = RunWish()
        self.runs = {"r1": Run("r1", "A", wish, Envelope(19, 2, {"customer": 5}), 0, 90, 3, None)}

    async def open(self, tenant, wish, request=None):
        self.asked.append((tenant, wish, request))
        return self.opened

    async def submit(self, run_id, batch):
        self.asked.append((run_id, batch))
        if self.wait is not None:
            await self.wait.wait()
        return self.result

    def cancel(self, run_id, request=None):
        self.outcome = "cancelled"

    def finish(self, run_id, request=None):
        self.outcome = "done"

    def view(self, run_id):
        return view(self.runs[run_id]) | {"outcome": self.outcome}

    def tenant_of(self, run_id):
        return self.runs[run_id].tenant if run_id in self.runs else None


def ask(controller, method="POST", path="/runs", body=None, tenant="A", **headers):
    raw = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(handle(controller, tenant, method, path, raw, named))


def ended(outcome="served", **step):
    result = StepResult(**{"step": "s1", "outcome": outcome, "reason": None, "user_status": "done"} | step)
    return BatchResult("r1", "b1", outcome, result.reason, result.user_status, (result,))


BATCH = {"batch": "b1", "steps": [{"step": "s1", "dependency": "customer"}]}


def test_opening_a_run_says_what_it_may_use():
    controller = Told()
    answer = ask(controller, body={"traffic_class": "interactive", "deadline_ms": 1.5, "budgets": {"customer": 6}},
                 Overload_Attempt="0.3.1")  # fmt: skip
    assert (answer.status, answer.headers) == (201, {"Location": "/runs/r1"})
    assert answer.body == {
        "outcome": "served", "run": "r1", "deadline_ns": 90,
        "remaining": {"attempts": 20, "retry_tokens": 2, "budgets": {"customer": 6}},
    }  # fmt: skip
    wish = RunWish(traffic_class="interactive", deadline_ns=1_500_000, budgets={"customer": 6})
    assert controller.asked == [("A", wish, "0.3.1")]


def test_an_empty_wish_is_fine_and_a_bad_request_id_is_none():
    controller = Told()
    assert ask(controller, Overload_Attempt="x" * 201).status == 201
    assert controller.asked == [("A", RunWish(), None)]


def test_a_run_that_is_refused_is_a_typed_answer():
    answer = ask(Told(opened=Refused("budget_exhausted", "attempts", "stopped")), body={"parent_run": "r1"})
    assert (answer.status, answer.body) == (
        429,
        {"outcome": "budget_exhausted", "reason": "attempts", "user_status": "stopped"},
    )


def test_a_batch_is_handed_on_whole_and_its_steps_are_told():
    result = ended(attempts=2, queue_wait_ns=1_500_000, body={"value": "v", "effect": "billing-1", "more": 1})
    controller = Told(result)
    step = {"step": "s1", "dependency": "billing", "operation": "write", "tool": "pay", "idempotency_key": "k",
            "coalesce": "c", "may_wait": False, "high_risk": True}  # fmt: skip
    answer = ask(controller, path="/runs/r1/steps", body={"batch": "b1", "round": 2, "steps": [step]})
    assert (answer.status, dict(answer.headers)) == (200, {})
    assert answer.body == {
        "outcome": "served", "reason": None, "user_status": "done", "run": "r1", "batch": "b1", "remaining": REMAINING,
        "steps": [{"step": "s1", "outcome": "served", "reason": None, "attempts": 2, "user_status": "done",
                   "queue_wait_ms": 1.5, "value": "v", "effect": "billing-1"}],
    }  # fmt: skip
    (run, batch) = controller.asked[0]
    assert (run, batch.round, batch.steps) == ("r1", 2, (Step("s1", "billing", "write", "pay", "k", "c", False, True),))


@pytest.mark.parametrize("outcome", WORST_LAST)
def test_the_status_follows_the_outcome(outcome):
    answer = ask(Told(ended(outcome)), path="/runs/r1/steps", body=BATCH)
    assert answer.status == STATUS_OF[outcome]
    assert ("Retry-After" in answer.headers) == (outcome == "throttled")


@pytest.mark.parametrize(("stated", "header"), [(None, "1"), (0.2, "1"), (2.0, "2"), (2.1, "3")])
def test_a_throttled_batch_says_when_to_come_back(stated, header):
    answer = ask(Told(ended("throttled", retry_after_s=stated)), path="/runs/r1/steps", body=BATCH)
    assert answer.headers["Retry-After"] == header
    assert answer.body["retry_after_s"] == int(header)


def test_who_does_not_wait_is_told_where_to_look():
    async def scenario():
        controller = Told(ended(), wait=True)
        body = orjson.dumps(BATCH | {"wait": False})
        answer = await handle(controller, "A", "POST", "/runs/r1/steps", body, {})
        controller.wait.set()
        await asyncio.sleep(0)
        return answer

    answer = asyncio.run(scenario())
    assert (answer.status, answer.headers) == (202, {"Location": "/runs/r1"})
    assert answer.body == {"outcome": "queued", "run": "r1", "batch": "b1", "poll": "/runs/r1"}


def test_who_does_not_wait_is_told_at_once_what_was_refused_whole():
    answer = ask(Told(ended("budget_exhausted")), path="/runs/r1/steps", body=BATCH | {"wait": False})
    assert (answer.status, answer.body["outcome"]) == (429, "budget_exhausted")


def test_reading_cancelling_and_finishing_a_run():
    controller = Told()
    assert ask(controller, "GET", "/runs/r1").body["run_outcome"] is None
    answer = ask(controller, path="/runs/r1/finish")
    assert (answer.status, answer.body["outcome"], answer.body["run_outcome"]) == (200, "served", "done")
    assert ask(controller, path="/runs/r1/cancel").body["run_outcome"] == "cancelled"
    assert ask(controller, "GET", "/runs/r1").body["remaining"] == REMAINING


@pytest.mark.parametrize("path", ["/runs/r1", "/runs/r1/steps", "/runs/r1/cancel", "/runs/r1/finish"])
def test_another_tenants_run_is_as_unknown_as_no_run(path):
    method = "GET" if path == "/runs/r1" else "POST"
    foreign = ask(Told(ended()), method, path, BATCH, tenant="B")
    unknown = ask(Told(ended()), method, path.replace("r1", "r2"), BATCH)
    assert foreign == unknown
    assert (foreign.status, foreign.body["error"]) == (404, "unknown_run")
    assert ask(Told(), body={"parent_run": "r1"}, tenant="B").status == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/runs", 405), ("DELETE", "/runs/r1", 405), ("GET", "/runs/r1/steps", 405), ("POST", "/runs/r1/x", 404),
        ("POST", "/runs/r1/steps/1", 404), ("GET", "/", 404), ("POST", "/runsx", 404), ("GET", "/runs/", 404),
    ],
)  # fmt: skip
def test_other_paths_and_methods(method, path, status):
    answer = ask(Told(), method, path)
    assert answer.status == status
    assert ("Allow" in answer.headers) == (status == 405)


WRONG_WISHES = {
    b"{": "the body is not JSON: unexpected end of data (line 1, column 2)",
    b"[]": "the body must be a JSON object",
    b'{"deadline": 1}': "deadline: is not known; did you mean deadline_ms? (known: traffic_class, task_class, "
    "priority, release, deadline_ms, attempts, parallel, retry_tokens, budgets, parent_run, request_class, forecast, "
    "depth, fan_out, sessions, bytes, payload, context_tokens, credits, agent_tokens, iterations, branch_tokens)",
    b'{"traffic_class": "interactiv"}': "traffic_class: is not known; did you mean interactive? (known: interactive, "
    "approval_resume, autonomous, maintenance)",
    b'{"traffic_class": 1}': "traffic_class: is not known (known: interactive, approval_resume, autonomous, "
    "maintenance)",
    b'{"deadline_ms": 0}': "deadline_ms: must be a number above 0, and at most 604800000",
    b'{"deadline_ms": "1"}': "deadline_ms: must be a number above 0, and at most 604800000",
    b'{"attempts": 0}': "attempts: must be a whole number from 1 to 1000000",
    b'{"attempts": true}': "attempts: must be a whole number from 1 to 1000000",
    b'{"retry_tokens": -1}': "retry_tokens: must be a whole number from 0 to 1000000",
    b'{"budgets": []}': 'budgets: must be an object of dependency to calls, such as {"customer": 6}',
    b'{"budgets": {"custmer": 1}}': "budgets.custmer: is not known; did you mean customer? (known: customer, billing)",
    b'{"budgets": {"customer": 1.5}}': "budgets.customer: must be a whole number from 0 to 1000000",
    b'{"release": "a\\nb"}': "release: must be text of 1 to 200 printable characters",
}
WRONG_BATCHES = {
    b"": "the body is not JSON: Input is a zero-length, empty document (line 1, column 1)",
    b"{}": 'batch: is missing; give the batch a name, such as "b1"',
    b'{"batch": "b1"}': "steps: must be a list of 1 to 1000 steps",
    b'{"batch": "b1", "steps": []}': "steps: must be a list of 1 to 1000 steps",
    b'{"batch": "b1", "steps": [1]}': 'steps[0]: must be an object, such as {"step": "s1", "dependency": "customer"}',
    b'{"batch": "b1", "steps": [{}]}': 'steps[0].step: is missing; give the step a name, such as "s1"',
    b'{"batch": "b1", "steps": [{"step": "s1"}]}': "steps[0].dependency: is missing; one of customer, billing",
    b'{"batch": "b1", "steps": [{"step": "s1", "dependency": "x"}]}': "steps[0].dependency: is not known (known: "
    "customer, billing)",
    b'{"batch": "b1", "steps": [{"step": "s1", "dependency": "billing", "operation": "readback"}]}': "steps[0]."
    "operation: is not known; did you mean read? (known: read, write)",
    b'{"batch": "b1", "steps": [{"step": "s1", "dependency": "billing", "high_risk": 1}]}': "steps[0].high_risk: must "
    "be true or false",
    b'{"batch": "b1", "steps": [{"step": "s", "dependency": "billing"}, {"step": "s", "dependency": "billing"}]}': ""
    "steps[1].step: 's' is twice in this batch; each step has its own name",
    b'{"batch": "b1", "wait": 0, "steps": [{"step": "s", "dependency": "billing"}]}': "wait: must be true or false",
}  # fmt: skip


@pytest.mark.parametrize("body", [*WRONG_WISHES, *WRONG_BATCHES])
def test_a_malformed_request_names_the_field_the_rule_and_the_remedy(body):
    controller = Told()
    wish = body in WRONG_WISHES
    answer = ask(controller, path="/runs" if wish else "/runs/r1/steps", body=body)
    message = (WRONG_WISHES if wish else WRONG_BATCHES)[body]
    assert (answer.status, answer.body["error"], answer.body["message"]) == (400, "bad_request", message)
    assert message.startswith(answer.body["field"])
    assert controller.asked == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from([*"ab", "batch", "steps", "step", "dependency", "attempts", "budgets", "wait", "deadline_ms"])


@given(st.binary(max_size=40) | st.dictionaries(keys, json_values, max_size=4).map(orjson.dumps))
def test_whatever_comes_is_answered_with_a_type(body):
    for path in ("/runs", "/runs/r1/steps"):
        answer = ask(Told(ended()), path=path, body=body)
        assert answer.status in (200, 201, 202, 400)
        assert "outcome" in answer.body or answer.body["error"] == "bad_request"
        orjson.dumps(answer.body)
