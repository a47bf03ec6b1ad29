"""v05 on plain calls of a described target: a second retry owner between caller and dependency is seen and named."""

from __future__ import annotations

import pytest

from harness.checks.judge import judge_one
from harness.checks.v05_plain_calls import PlainCall, plain_calls_of
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


# --- what one call made arrive


@pytest.mark.parametrize(
    ("statuses", "numbers", "hidden", "failed"),
    [
        ([503], [1], 0, 1), ([503, 200], [1, 1], 1, 1), ([503, 503, 200], [1, 1, 1], 2, 2), ([200, 200], [1, 1], 0, 0),
        ([503, 503, 200], [1, 2, 3], 0, 2), ([503, 503, 200], [1, 2, 1], 1, 2), ([503, 200, 200], [1, 1, 2], 1, 1),
        ([200, 503, 200], [1, 1, 1], 1, 1),
        ([400, 200], [1, 1], 1, 0), ([0, 408, 425, 429], [1, 2, 3, 4], 0, 4), ([None, 200], [1, 1], 1, 0),
    ],
)  # fmt: skip
def test_an_arrival_after_a_failure_under_its_own_number_was_not_sent_by_the_caller(statuses, numbers, hidden, failed):
    call = PlainCall("0.1", "customer read", 1, arrivals_of("0.1", statuses, numbers))
    assert (call.hidden, len(call.failed)) == (hidden, failed)


OURS = {"run": "0.1", "step": "call"}


@pytest.mark.parametrize(
    ("row", "joined"),
    [
        ({}, True), ({"run": "0.0"}, True), ({"run": "0.59"}, True), ({"run": "0.60"}, False), ({"run": None}, False),
        ({"run": "1.0"}, False), ({"run": "0.1 "}, False), ({"step": "b0.0"}, False), ({"readback": True}, False),
        ({"operation": "readback"}, False),
    ],
)  # fmt: skip
def test_only_what_the_callers_own_calls_made_arrive_is_theirs(tmp_path, row, joined):
    made = [{"due_ns": i * MS, "outcome": "served", "status": 200} for i in range(60)]
    trial = written(tmp_path, {"A": made}, target="file")
    write_rows(tmp_path, [arrivals_of("0.1", [200])[0] | OURS | row, *arrivals_of("0.7", [200])], ARRIVALS)
    found = plain_calls_of(trial)
    assert len(found) == 1 + joined
    assert (found[-1].id, found[-1].where, found[-1].sent) == ("0.7", "customer read", 1)


def test_calls_are_told_apart_by_where_they_arrive_and_counted_by_what_was_sent(tmp_path):
    """0.0: three attempts, of which the last was never sent."""
    first = {"due_ns": 0, "outcome": "failed", "status": 503, "call": "0.0", "run": 0}
    rows = [first | {"retried": True}, first | {"retried": True, "attempt": 2, "again_ns": MS}]
    trial = written(tmp_path, {"A": [*rows, first | {"attempt": 3, "again_ns": 2 * MS, "sent_ns": -1}]}, target="file")
    made = [*arrivals_of("0.0", [503, 503], [1, 2]), *arrivals_of("0.0", [503], operation="write")]
    write_rows(tmp_path, [*made, *arrivals_of("0.0", [503], dependency="billing")], ARRIVALS)
    told = {call.where: (len(call.arrivals), call.sent) for call in plain_calls_of(trial)}
    assert told == {"customer read": (2, 2), "customer write": (1, 2), "billing read": (1, 2)}


@pytest.mark.parametrize(("least", "words"), [(15, None), (16, "only 15 of the 16 attempts needed")])
def test_as_many_failures_of_each_kind_as_are_asked_for_are_enough(tmp_path, least, words):
    rows = failing(lambda call, status: arrivals_of(call, [status]))
    verdict = judged(tmp_path, rows, params={"steps": least})
    assert verdict.word is (Word.INCONCLUSIVE if words else Word.PASS)
    assert (words or "") in verdict.sentence


def test_each_place_is_judged_by_itself_and_of_its_calls_the_worst_is_told(tmp_path):
    rows = [*arrivals_of("0.1", [503, 0, 200], via="1.1 edge"), *arrivals_of("0.2", [503] * 4, via="1.1 mesh")]
    rows += [*arrivals_of("0.3", [503]), *arrivals_of("0.4", [200, 200]), *arrivals_of("0.5", [0], operation="write")]
    rows += arrivals_of("0.6", [503, 200], operation="delete")
    verdict = judged(tmp_path, rows)
    assert [(f.subject, f.measured, f.samples) for f in verdict.findings if f.unit == "calls"] == [
        ("customer delete", 1, 1), ("customer read", 2, 3), ("customer write", 0, 1),
    ]  # fmt: skip
    assert verdict.witnesses == ("0.6", "0.2", "0.1")
    assert (
        "2 of 3 failed calls came to customer read again without their caller: a layer between the caller and the "
        "dependency (target shop), which calls itself '1.1 edge' and '1.1 mesh' retries, too (call 0.2: 1 attempt by "
        "the caller, 4 arrivals, 4 status 503)"
    ) in verdict.sentence
    counted = {f.quantity: f.measured for f in verdict.findings if f.unit == "attempts"}
    assert counted == {"that got no answer": 2, "that failed with an answer": 7}


def test_what_a_layer_says_of_itself_is_cut_short(tmp_path):
    rows = [row for i in range(5) for row in arrivals_of(f"0.{i}", [503, 200], via=f"{i}" * 200)]
    said = judged(tmp_path, rows).sentence
    assert f"calls itself '{'0' * 100}' and '{'1' * 100}' and '{'2' * 100}' retries, too" in said
