"""Agent runs at a described target: what our callers ask, in its words, and what it answers, in ours."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ledger.call import Call
from harness.ledger.outcomes import FROM_SERVICE, QUEUED
from harness.live.described import TargetAnswers
from harness.profile.capacity import RunGroup
from harness.target.model import Runs, StepAnswers, TargetFile
from harness.target.runs import BatchTold, batch_of, run_id_of
from harness.target.tokens import Redactor
from harness.workload.callers import NEVER
from harness.workload.runs import RunCaller

OPEN, SUBMIT = {"path": "/r"}, {"path": "/r/{run}"}
FORM = StepAnswers(outcome="/state", outcomes={"ok": "served", "later": "queued"}, queue_wait="/waited")
ASKED = {"batch": "b0", "steps": [{"step": "b0.0"}, {"step": "b0.1"}]}


def batch(*states, form=FORM, **more):
    return batch_of(form, {"steps": [{"state": state, **more} for state in states]}, ASKED)


@pytest.mark.parametrize(("states", "outcome"), [
    (("ok", "ok"), "served"),
    (("ok", "throttled", "expired"), "expired"),
    (("needs_person", "failed"), "needs_person"),
    (("failed", "later"), "queued"),
    (("coalesced", "coalesced"), "coalesced"),
    (("coalesced", "ok"), "served"),
    ((), None),
])  # fmt: skip
def test_a_batch_ends_as_its_worst_step_and_not_before_the_last(states, outcome):
    assert batch(*states).outcome == outcome


@pytest.mark.parametrize("word", ["", "toString", None, 7, {"a": 1}, ["ok"], True])
def test_a_word_that_nobody_knows_is_a_failure_and_says_so(word):
    assert batch("ok", word) == BatchTold("failed", "unknown_step_outcome", -1)


def test_the_longest_wait_counts_and_steps_of_other_batches_do_not():
    told = {"steps": [{"state": "ok", "waited": 3, "id": "b0.0"}, {"state": "ok", "waited": 5, "id": "b0.1"},
                      {"state": "failed", "waited": 9, "id": "b1.0"}, "noise", None]}  # fmt: skip
    own = FORM.model_copy(update={"step": "/id"})
    assert batch_of(own, told, ASKED) == BatchTold("served", None, 5_000_000)
    assert batch_of(FORM, told, ASKED).outcome == "failed"


@pytest.mark.parametrize(("document", "run"), [
    ({"run": "r1"}, "r1"), ({"run": 17}, "17"), ({"run": True}, None), ({"run": None}, None), ({"run": {}}, None),
    ({}, None), ([], None), (None, None),
])  # fmt: skip
def test_the_id_of_a_run(document, run):
    assert run_id_of(Runs.model_validate({"open": OPEN, "submit": SUBMIT}), document) == run


def answers(tokens=(), **runs):
    document = {"name": "x", "url": "http://127.0.0.1:1", "runs": {"open": OPEN, "submit": SUBMIT, **runs}}
    return TargetAnswers(TargetFile.model_validate(document), Redactor(tokens))


def judged(made, action, status, document, polls=0):
    call = Call("A", 0, 0, 0, 0, 0, None)
    call.action, call.polls = action, polls
    body = json.dumps(document).encode() if document is not None else b"<html>"
    return made.judge_run(call, status, {}, body, ASKED), call.reason, call


POLLED = {"read": {"method": "GET", "path": "/r/{run}"}, "poll": {}}


@pytest.mark.parametrize(("runs", "status", "document", "polls", "outcome", "reason"), [
    ({}, 200, {"steps": [{"outcome": "served"}]}, 0, "served", None),
    ({}, 200, None, 0, "served", None),
    ({}, 200, {"steps": [{"outcome": "expired"}]}, 0, "expired", None),
    ({}, 429, {"outcome": "budget_exhausted", "reason": "calls"}, 0, "budget_exhausted", "calls"),
    ({}, 429, None, 0, "throttled", None),
    ({}, 500, None, 0, "failed", "status_500"),
    ({}, 202, {"outcome": "queued"}, 0, "failed", "unasked_wait"),
    (POLLED, 202, {"outcome": "queued"}, 0, "queued", None),
    (POLLED, 200, {"steps": [{"outcome": "served"}]}, 1, "served", None),
    (POLLED, 503, None, 1, "queued", "status_503"),  # of the question, not of the batch
    (POLLED, 503, {"outcome": "dependency_unavailable"}, 1, "dependency_unavailable", None),
    (POLLED, 404, None, 1, "failed", "status_404"),
    (POLLED, 503, None, 0, "failed", "status_503"),
])  # fmt: skip
def test_how_a_batch_is_judged(runs, status, document, polls, outcome, reason):
    assert judged(answers(**runs), "submit", status, document, polls)[:2] == (outcome, reason)


def test_a_run_whose_id_is_a_token_is_none():
    assert judged(answers(), "open", 201, {"run": "r-s3cret"})[2].answer == {"run": "r-s3cret"}
    assert judged(answers(["s3cret"]), "open", 201, {"run": "r-s3cret"})[2].answer == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(("steps", "outcome", "queue_wait_ms", "run", "reason", "x")), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(
    document=json_values, action=st.sampled_from(("open", "submit", "cancel", "finish")), status=st.integers(200, 599)
)
def test_whatever_it_answers_a_call_has_one_outcome(document, action, status):
    call = Call("A", 0, 0, 0, 0, 0, None)
    call.action = action
    body = json.dumps(document).encode()
    outcome = answers(**POLLED).judge_run(call, status, {}, body, ASKED)
    assert outcome in FROM_SERVICE or (outcome == QUEUED and action == "submit")
    assert call.reason is None or (len(call.reason) <= 200 and call.reason.isascii() and call.reason.isprintable())


@pytest.mark.parametrize("finishes", [True, False])
def test_a_service_that_cannot_be_told_is_not_told_and_every_run_ends_all_the_same(finishes):
    batches = [{"steps": [{"dependency": "crm"}]}]
    child = {"batches": batches, "envelope": {"attempts": 1}}
    group = RunGroup.model_validate({"name": "t", "at": "0s", "count": 3, "batches": batches, "children": [child]})
    caller = RunCaller("A", 0, [group], 10**9, Random(1))
    caller.finishes = finishes
    told = Counter()
    while caller.next_ns != NEVER:
        call = caller.take()
        told[call.action] += 1
        call.outcome, call.done_ns, call.answer = "served", call.due_ns + 5, {"run": f"r{call.seq}"}
        caller.on_outcome(call)
    assert told == {"open": 6, "submit": 6} | ({"finish": 6} if finishes else {})
