"""agent.refusal_is_a_result on rows written by hand: which refusal is a result, and what is too early after it."""

from __future__ import annotations

import numpy as np
import pytest

from harness.checks.attempt_rows import NOT_STATED, before, ids, stated_wait_ns
from harness.checks.judge import judge_one
from harness.checks.refusal_is_a_result import early_plans
from harness.checks.verdict import Word
from tests.unit.attempt_rows import MS, S, finding, tried
from tests.unit.ledgers import written

CHECK = "agent.refusal_is_a_result"
EARLY, OFTEN, AROUND, WAITED = (
    "tried again too early", "tried again more than once", "follow-up calls at once", "refusals waited out",
)  # fmt: skip
PROFILE = {"tenants": {"A": {"rate": "1/s", "on_refusal": "result"}, "B": {"rate": "1/s"}}}


def ledger(folder, mine, others=()):
    return written(folder / "t", {"A": list(mine), "B": list(others)}, PROFILE)


def judged(folder, mine, others=()):
    return judge_one(ledger(folder, mine, others), CHECK, {})


def waits(n, again_ns=2 * S, tenant=0, after=0, **told):
    """Calls that were refused for 2 s, and tried again so much later."""
    told = {"retry_after": "2", **told}
    return [
        row
        for i in range(n)
        for row in tried(f"{tenant}.{after + i}", (i * MS, "throttled"), (i * MS + again_ns, "served"), **told)
    ]


def plan(seq, parent, at_ns):
    return {**tried(f"0.{seq}", (at_ns, "served"))[0], "parent": f"0.{parent}", "round": 1}


@pytest.mark.parametrize(("n", "word"), [(20, Word.PASS), (19, Word.INCONCLUSIVE)])
def test_twenty_refusals_that_were_waited_out_pass(tmp_path, n, word):
    verdict = judged(tmp_path, waits(n), waits(30, tenant=1))
    assert verdict.word is word
    assert finding(verdict, WAITED).measured == n


@pytest.mark.parametrize(("again_ns", "word"), [(2 * S - MS, Word.PASS), (2 * S - MS - 1, Word.FAIL)])
def test_an_attempt_may_be_a_millisecond_early_and_no_more(tmp_path, again_ns, word):
    assert finding(judged(tmp_path, waits(20, again_ns)), EARLY).word is word


def test_an_attempt_that_was_early_has_not_been_waited_out(tmp_path):
    verdict = judged(tmp_path, waits(15) + waits(5, S, after=15))
    assert (finding(verdict, EARLY).measured, finding(verdict, EARLY).samples) == (5, 20)
    assert (finding(verdict, WAITED).word, finding(verdict, WAITED).measured) == (Word.INCONCLUSIVE, 15)


@pytest.mark.parametrize(
    "rows",
    [
        waits(5, S, after=30, untyped=True),
        waits(5, S, after=30, retry_after=None),
        waits(5, S, after=30, retry_after="soon"),
        [{**row, "outcome": "failed"} for row in waits(5, S, after=30)],
    ],
    ids=["untyped", "without", "unreadable", "failed"],
)
def test_what_is_no_typed_refusal_with_a_readable_instant_is_no_result(tmp_path, rows):
    verdict = judged(tmp_path, waits(20) + rows)
    assert verdict.word is Word.PASS
    assert (finding(verdict, EARLY).samples, finding(verdict, WAITED).measured) == (20, 20)


def test_another_tenants_early_attempts_are_its_own_affair(tmp_path):
    verdict = judged(tmp_path, waits(20), waits(5, S, tenant=1))
    assert (verdict.word, finding(verdict, EARLY).samples) == (Word.PASS, 20)


@pytest.mark.parametrize("tenant", [0, 1])
def test_a_third_attempt_is_one_too_many(tmp_path, tenant):
    third = tried(f"{tenant}.50", (0, "throttled"), (3 * S, "throttled"), (6 * S, "served"))
    rows = {0: waits(20), 1: []}
    rows[tenant] = rows[tenant] + third
    assert finding(judged(tmp_path, rows[0], rows[1]), OFTEN).measured == (1 if tenant == 0 else 0)


# --- plans around a refusal


@pytest.mark.parametrize(
    ("at_ns", "early"),
    [(5 * S - 1, False), (5 * S, True), (7 * S - MS - 1, True), (7 * S - MS, False)],
    ids=["before_it_was_refused", "at_once", "just_too_early", "waited"],
)
@pytest.mark.parametrize("parent", [0, 3])
def test_no_call_follows_from_a_refusal_before_its_instant(tmp_path, parent, at_ns, early):
    refused = tried(f"0.{parent}", (5 * S, "throttled"), retry_after="2")
    verdict = judged(tmp_path, [*refused, plan(7, parent, at_ns)])
    assert finding(verdict, AROUND).measured == early
    assert finding(verdict, AROUND).word is (Word.FAIL if early else Word.PASS)


@pytest.mark.parametrize(
    ("at_ns", "early"), [(S, True), (4 * S, False), (5 * S, True), (8 * S, False)],
    ids=["after_the_first", "between", "after_the_second", "after_both"],
)  # fmt: skip
def test_both_refusals_of_a_call_count(tmp_path, at_ns, early):
    twice = tried("0.2", (0, "throttled"), (5 * S, "throttled"), retry_after="2")
    rows = [*tried("0.1", (0, "throttled"), retry_after="9"), *reversed(twice), *tried("0.3", (0, "served"))]
    verdict = judged(tmp_path, [*rows, plan(7, 2, at_ns), plan(8, 3, S)])
    assert finding(verdict, AROUND).measured == early
    assert verdict.witnesses == (("0.7",) if early else ())


def test_a_plan_without_any_refusal_is_around_none(tmp_path):
    trial = ledger(tmp_path, [*tried("0.0", (0, "served")), plan(1, 0, S)])
    assert not early_plans(trial.attempts, np.full(2, NOT_STATED), MS).any()


def test_another_tenants_plans_are_its_own_affair(tmp_path):
    theirs = [*tried("1.0", (0, "throttled"), retry_after="2"), {**tried("1.1", (S, "served"))[0], "parent": "1.0"}]
    assert finding(judged(tmp_path, waits(20), theirs), AROUND).word is Word.PASS


# --- rows of attempts


def test_the_attempt_before_is_of_the_same_call(tmp_path):
    rows = [*tried("0.0", (0, "failed"), (9, "failed"), (20, "served")), *tried("0.1", (5, "failed"), (12, "served"))]
    calls = ledger(tmp_path, rows).attempts
    again, earlier = before(calls)
    pairs = [(calls.id(a), int(calls.start_ns[e]), int(calls.start_ns[a])) for a, e in zip(again, earlier, strict=True)]
    assert pairs == [("0.0", 0, 9), ("0.0", 9, 20), ("0.1", 5, 12)]
    assert [len(part) for part in before(ledger(tmp_path, []).attempts)] == [0, 0]


def test_a_retry_after_of_nought_is_stated(tmp_path):
    """And is not what stands for none."""
    rows = [tried(f"0.{i}", (i, "throttled"), retry_after=text)[0] for i, text in enumerate(["0", "1", None, "soon"])]
    del rows[2]["retry_after"]
    assert stated_wait_ns(ledger(tmp_path, rows).attempts).tolist() == [0, S, -1, -1]


def test_ids_are_in_order_of_due_and_none_twice(tmp_path):
    rows = [*tried("0.0", (5, "failed"), (9, "served")), *tried("0.1", (1, "served"))]
    trial = ledger(tmp_path, rows)
    assert ids(trial.attempts, np.arange(3)) == ["0.1", "0.0"]
