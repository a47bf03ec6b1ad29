"""v05 on plain calls of a described target: a second retry owner between caller and dependency is seen and named."""

from __future__ import annotations

import pytest

from harness.checks.judge import judge_one
from harness.checks.v05_retry_owner import NAME
from harness.checks.verdict import Word
from harness.ledger.reader import ARRIVALS, read_trial
from tests.unit.ledgers import manifest_edited, write_rows, written

MS = 1_000_000
KINDS = (0, 503)


def arrivals_of(call, statuses, attempts=None, **more):
    """One after another, each with its attempt's number."""
    numbers = attempts or [1] * len(statuses)
    base = {"run": call, "step": "call", "dependency": "customer", "operation": "read", "owner": "caller"}
    return [
        {**base, "attempt": number, "t_ns": i * 10 * MS, "ended_ns": i * 10 * MS + MS, "status": status, **more}
        for i, (status, number) in enumerate(zip(statuses, numbers, strict=True))
    ]


def judged(folder, arrivals, calls=60, rows=None, params=None):
    made = [{"due_ns": i * MS, "outcome": "served", "status": 200} for i in range(calls)]
    tiers = {"decisions": False, "dependencies": True, "typed": True}
    trial = written(folder, {"A": rows or made}, target="file", evidence=tiers, clock_domain="separate")
    write_rows(folder, arrivals, ARRIVALS)
    manifest_edited(trial, lambda manifest: manifest["target"].update(name="shop"))
    return judge_one(read_trial(folder), NAME, params or {})


def failing(make):
    """Thirty calls, unanswered and refused by turns."""
    return [row for i in range(30) for row in make(f"0.{i}", KINDS[i % 2])]


def test_one_arrival_an_attempt_passes(tmp_path):
    verdict = judged(tmp_path, failing(lambda call, status: arrivals_of(call, [status])))
    assert verdict.word is Word.PASS, verdict.sentence
    assert verdict.sentence == (
        "The caller alone retries: of 30 failed attempts (15 without an answer, 15 answered with a failure) none came "
        "again without it."
    )


def test_a_proxy_that_tries_the_next_upstream_is_named(tmp_path):
    verdict = judged(tmp_path, failing(lambda call, status: arrivals_of(call, [status, 200], via="1.1 edge")))
    assert verdict.word is Word.FAIL
    assert verdict.sentence == (
        "30 of 30 failed calls came to customer read again without their caller: a layer between the caller and the "
        "dependency (target shop), which calls itself '1.1 edge' retries, too (call 0.0: 1 attempt by the caller, 2 "
        "arrivals, 1 unanswered)."
    )
    assert verdict.witnesses[0] == "0.0"


@pytest.mark.parametrize("status", KINDS)
def test_a_proxy_that_retries_one_kind_of_failure_only_is_seen(tmp_path, status):
    verdict = judged(tmp_path, failing(lambda call, s: arrivals_of(call, [s, s] if s == status else [s])))
    assert verdict.word is Word.FAIL


def test_a_proxy_that_retries_reads_alone_is_seen(tmp_path):
    def make(call, status):
        write = int(call[2:]) > 3
        return arrivals_of(call, [status] if write else [status, status], operation="write" if write else "read")

    verdict = judged(tmp_path, failing(make))
    assert verdict.word is Word.FAIL
    assert "4 of 4 failed calls came to customer read" in verdict.sentence


def test_a_caller_that_retries_is_the_one_owner(tmp_path):
    """The twin: as many arrivals, each sent by the caller."""
    rows = []
    for i in range(60):
        first = {"due_ns": i * MS, "outcome": "failed", "status": 503, "retried": True}
        rows.append({**first, "call": f"0.{i}", "run": i})
        rows.append({**first, "call": f"0.{i}", "run": i, "attempt": 2, "again_ns": i * MS + 10 * MS, "retried": False})
    arrivals = failing(lambda call, status: arrivals_of(call, [status, status], [1, 2]))
    verdict = judged(tmp_path, arrivals, rows=rows)
    assert verdict.word is Word.PASS, verdict.sentence
    both = failing(lambda call, status: arrivals_of(call, [status] * 4, [1, 1, 2, 2]))
    verdict = judged(tmp_path, both, rows=rows)
    assert verdict.word is Word.FAIL
    assert "2 attempts by the caller, 4 arrivals" in verdict.sentence


def test_another_step_after_a_success_is_no_retry(tmp_path):
    calls = failing(lambda call, status: arrivals_of(call, [status]))
    calls += [row for i in range(30, 60) for row in arrivals_of(f"0.{i}", [200, 200])]
    assert judged(tmp_path, calls).word is Word.PASS


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda call, status: arrivals_of(call, [200]), "that got no answer"),
        (lambda call, status: arrivals_of(call, [503]), "that got no answer"),
        (lambda call, status: arrivals_of(call, [0]), "that failed with an answer"),
    ],
)
def test_without_failures_of_both_kinds_it_cannot_be_told(tmp_path, make, words):
    verdict = judged(tmp_path, failing(make))
    assert verdict.word is Word.INCONCLUSIVE
    assert words in verdict.sentence
    assert "give the profile a fault" in verdict.add


@pytest.mark.parametrize("lost", ["run", "step"])
def test_headers_that_are_not_passed_on_are_asked_for(tmp_path, lost):
    rows = failing(lambda call, status: arrivals_of(call, [status, status]))
    verdict = judged(tmp_path, [{key: value for key, value in row.items() if key != lost} for row in rows])
    assert verdict.word is Word.INCONCLUSIVE
    assert "pass Overload-Run, Overload-Step and Overload-Attempt-Number" in verdict.add


def test_arrivals_of_others_are_left_out(tmp_path):
    rows = failing(lambda call, status: arrivals_of(call, [status]))
    rows += arrivals_of("r7", [503, 503]) + arrivals_of("0.999", [503, 503])
    assert judged(tmp_path, rows).word is Word.PASS
