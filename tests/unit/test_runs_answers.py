"""How a call of a run ended: every odd answer of whatever calls itself a capacity layer."""

from __future__ import annotations

import pytest

from harness.ledger.call import Call
from harness.workload.run_answers import judge_run


def judged(status, answer, retry_after=None):
    call = Call("A", 0, 0, 0, 0, 0, None)
    return judge_run(call, status, answer, retry_after), call


@pytest.mark.parametrize(
    ("status", "answer", "outcome", "reason", "typed"),
    [
        (201, {"outcome": "served", "run": "r1"}, "served", None, True),
        (200, {}, "served", None, True),
        (204, None, "served", None, True),
        (200, {"outcome": "failed", "reason": "why"}, "failed", "why", True),
        (429, {"outcome": "budget_exhausted", "reason": "attempts"}, "budget_exhausted", "attempts", True),
        (409, {"outcome": "needs_person"}, "needs_person", None, True),
        (202, {"outcome": "queued"}, "failed", "unasked_wait", True),
        (429, None, "throttled", None, False),
        (429, {"outcome": "nonsense"}, "throttled", None, False),
        (503, {"error": "busy"}, "failed", "status_503", False),
        (404, {"outcome": "abandoned"}, "failed", "status_404", False),
        (502, {"outcome": "failed", "reason": 7}, "failed", None, True),
        (502, {"outcome": "failed", "reason": "a\nb" + "c" * 200}, "failed", "a?b" + "c" * 97, True),
        (200, {"outcome": ["served"]}, "served", None, True),
        (200, {"outcome": "coalesced", "steps": [{"outcome": "coalesced"}]}, "coalesced", None, True),
        (
            200,
            {"outcome": "coalesced", "steps": [{"outcome": "coalesced"}, {"outcome": "served"}]},
            "served",
            None,
            True,
        ),
    ],
)
def test_outcomes(status, answer, outcome, reason, typed):
    found, call = judged(status, answer)
    assert (found, call.reason, call.typed, call.status) == (outcome, reason, typed, status)


def test_the_longest_wait_of_its_steps_is_the_wait_of_the_batch():
    def wait(*waits):
        return judged(200, {"outcome": "served", "steps": [{"queue_wait_ms": one} for one in waits]})[1].queue_wait_ns

    assert wait(0.0, 1.25, 0.5) == 1_250_000
    assert wait() == -1
    assert wait("1", None, -1, float("nan"), float("inf"), 1e300) == -1
    assert judged(200, {"outcome": "served", "steps": "none"})[1].queue_wait_ns == -1
    assert judged(200, {"outcome": "served", "steps": [None, 3]})[1].queue_wait_ns == -1


def test_retry_after_is_kept_as_it_came():
    assert judged(429, {"outcome": "throttled"}, "20")[1].retry_after == "20"
