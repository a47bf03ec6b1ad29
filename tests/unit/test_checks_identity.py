"""fairness.identity_from_credential on logs written line by line: what counts as a decision, and what is told of it."""

from __future__ import annotations

import pytest

from harness.checks.identity import CHARGED, NAME, SHARED
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.reader import DECISIONS
from tests.unit.ledgers import write_rows, written

FEW = {"least_calls": 3}


def claiming(values):
    return {"rate": "1/s", "claims": {"header": "X-Tenant", "values": values}}


def log(tenant, name, n, from_seq=0):
    return [{"call": f"{tenant}.{seq}", "tenant": name, "outcome": "served"} for seq in range(from_seq, from_seq + n)]


def judged(tmp_path, rows, tenants=None, params=FEW):
    """A and B are honest and D claims to be others, unless told."""
    tenants = tenants or {"A": {"rate": "1/s"}, "B": {"rate": "1/s"}, "D": claiming(50)}
    trial = written(tmp_path / "t", {name: [] for name in tenants}, {"tenants": tenants})
    write_rows(trial.folder, rows, DECISIONS)
    return judge_one(trial, NAME, params)


@pytest.mark.parametrize(
    ("honest", "own", "word"), [(3, 3, "PASS"), (2, 3, "INCONCLUSIVE"), (3, 2, "INCONCLUSIVE"), (0, 9, "INCONCLUSIVE")]
)
def test_so_many_calls_of_who_claims_and_so_many_beside_it_are_needed(tmp_path, honest, own, word):
    """Those of all honest tenants together."""
    rows = log(0, "a", honest // 2) + log(1, "b", honest - honest // 2) + log(2, "d", own)
    found = judged(tmp_path, rows)
    assert (found.word, found.samples) == (word, honest + own)
    if word == "INCONCLUSIVE":
        assert f"in {own} calls that claim to be somebody else's and {honest} others" in found.sentence


@pytest.mark.parametrize(("values", "word"), [(1, "INCONCLUSIVE"), (2, "PASS"), (None, "INCONCLUSIVE")])
def test_who_claims_one_name_alone_claims_to_be_nobody_else(tmp_path, values, word):
    tenants = {"A": {"rate": "1/s"}, "D": claiming(values) if values else {"rate": "1/s"}}
    found = judged(tmp_path, log(0, "a", 9) + log(1, "d", 9), tenants)
    assert found.word == word
    if word == "INCONCLUSIVE":
        assert "in 0 calls that claim" in found.sentence


def test_of_several_that_claim_the_one_with_most_calls_counts_and_one_may_be_silent(tmp_path):
    tenants = {"A": {"rate": "1/s"}, "D": claiming(5), "E": claiming(5), "silent": claiming(5)}
    found = judged(tmp_path, log(0, "a", 9) + log(1, "d", 1) + log(2, "e", 4), tenants)
    assert found.word is Word.PASS
    assert found.sentence == ("All 14 calls were charged to their credential, 4 of which claim to be somebody else's.")


@pytest.mark.parametrize(
    "stray",
    [
        {"call": "0.0", "tenant": "x", "outcome": "served", "part": "shadow"},
        {"call": 7, "tenant": "x", "outcome": "served"},
        {"tenant": "x", "outcome": "served"},
        {"call": "0.0", "tenant": None, "outcome": "served"},
        {"call": "0.0", "outcome": "served"},
        {"call": "-1.0", "tenant": "x", "outcome": "served"},
        {"call": "mine.0", "tenant": "x", "outcome": "served"},
        {"call": "3.0", "tenant": "x", "outcome": "served"},
    ],
)
def test_rows_that_decide_nothing_on_a_call_of_ours_are_passed_over(tmp_path, stray):
    """A shadow's, those without a call or without a name, and those of callers that are not ours: first in the log."""
    rows = log(0, "a", 9) + log(1, "b", 9) + log(2, "d", 9)
    found = judged(tmp_path, [stray, *rows])
    assert (found.word, found.samples) == (Word.PASS, 27)


def test_the_first_decision_on_a_call_counts(tmp_path):
    rows = log(0, "a", 9) + log(1, "b", 9) + log(2, "d", 9)
    found = judged(tmp_path, rows + log(0, "x", 9))
    assert (found.word, found.samples) == (Word.PASS, 27)


def test_a_credential_that_is_charged_under_several_names_is_told_with_the_calls_of_the_fewer(tmp_path):
    rows = log(0, "a", 9) + log(2, "d", 5) + log(2, "x", 2, 5) + log(2, "y", 1, 7)
    found = judged(tmp_path, rows)
    assert (found.word, found.measured, found.bound, found.samples) == (Word.FAIL, 3, 1, 17)
    assert found.sentence == "Calls with the credential of D were charged under 3 names."
    assert found.witnesses == ("2.5", "2.6", "2.7")
    notes = {finding.subject: finding.note for finding in found.findings if finding.quantity == CHARGED}
    assert notes["A"] == ""


def test_of_several_that_fail_the_first_is_told_and_the_others_are_counted(tmp_path):
    rows = log(0, "a", 3) + log(0, "x", 1, 3) + log(1, "b", 3) + log(1, "y", 1, 3) + log(2, "d", 9)
    found = judged(tmp_path, rows)
    assert found.sentence == "Calls with the credential of A were charged under 2 names; 1 more like it."
    assert found.witnesses == ("0.3",)


@pytest.mark.parametrize(
    ("tenants", "told"), [(2, "t0, t1 are all"), (3, "t0, t1, t2 are all"), (4, "t0, t1, t2 and more are all")]
)
def test_tenants_that_share_a_name_cannot_be_told_apart(tmp_path, tenants, told):
    """Witness is a call of each; who has a name of its own is not among them."""
    names = {f"t{i}": {"rate": "1/s"} for i in range(tenants)} | {"own": {"rate": "1/s"}}
    rows = [row for i in range(tenants) for row in log(i, "all", 2)] + log(tenants, "own", 9)
    found = judged(tmp_path, rows, names)
    assert (found.word, found.measured, found.bound) == (Word.FAIL, tenants, 1)
    assert found.sentence == f"The service cannot tell {tenants} tenants apart: {told} charged as 'all'."
    assert found.witnesses == tuple(f"{i}.0" for i in range(tenants))
    (shared,) = (finding for finding in found.findings if finding.quantity == SHARED)
    assert (shared.subject, shared.samples) == ("all", 2 * tenants)


def test_a_log_that_names_nobody_is_no_evidence(tmp_path):
    found = judged(tmp_path, [{"call": "0.0", "outcome": "served"}])
    assert (found.word, found.samples) == (Word.INCONCLUSIVE, 0)
    assert found.sentence == "The service does not tell whom it charged."
