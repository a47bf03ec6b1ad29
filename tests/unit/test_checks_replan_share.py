"""agent.replan_share on rows written by hand: which share is a tenant's worst, against which bound, of which window."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from harness.checks import replan_share
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from tests.unit.attempt_rows import S, tried
from tests.unit.ledgers import written

CHECK = "agent.replan_share"
PROFILE = {"duration": "40s", "phases": {"calm": ["0s", "10s"], "burst": ["10s", "40s"]}}
LEAST = {"least_calls": 4}


def calls(tenant, *groups):
    """groups: (when, how many calls, of which so many are re-plans), the re-plans last."""
    rows = []
    for at_s, n, replans in groups:
        for place in range(n):
            row = tried(f"{tenant}.{len(rows)}", (int(at_s * S) + place, "throttled"))[0]
            follows = {"round": 1, "parent": f"{tenant}.0"} if place >= n - replans else {}
            rows.append({**row, "round": 0, **follows})
    return rows


def judged(folder, params=None, **tenants):
    return judge_one(written(folder / "t", tenants, PROFILE), CHECK, {**LEAST, **(params or {})})


def worst_of(verdict, tenant="A"):
    return next(f for f in verdict.findings if f.subject == tenant and f.quantity.endswith("worst window"))


def share_of(verdict, tenant="A"):
    return next(f for f in verdict.findings if f.subject == tenant and f.quantity == "re-plan share")


def test_the_share_of_the_trial_and_of_its_worst_window_are_both_told(tmp_path):
    verdict = judged(tmp_path, A=calls(0, (0, 10, 1), (12, 8, 4), (21, 6, 0)))
    assert (share_of(verdict).measured, share_of(verdict).samples) == (round(5 / 24, 6), 24)
    assert (worst_of(verdict).measured, worst_of(verdict).note) == (0.5, "10 s to 15 s")
    assert share_of(verdict).note == "ALERT: 50.0% in 10 s to 15 s"
    assert verdict.measured == 0.5
    assert verdict.sentence == (
        "ALERT: 50.0% of A's calls in 10 s to 15 s follow a failure (20.8% over the whole trial), 10.0% in calm; "
        "over the alert threshold: A."
    )


def test_where_no_window_is_worse_than_the_whole_it_is_the_whole(tmp_path):
    verdict = judged(tmp_path, A=calls(0, (0, 10, 1), (10, 10, 1)))
    assert (worst_of(verdict).measured, worst_of(verdict).note) == (0.1, "the whole trial")


@pytest.mark.parametrize(("n", "when"), [(4, "10 s to 15 s"), (3, "the whole trial")])
def test_a_window_with_too_few_calls_is_not_looked_at_alone(tmp_path, n, when):
    assert worst_of(judged(tmp_path, A=calls(0, (0, 50, 0), (12, n, n)))).note == when


@pytest.mark.parametrize(("replans", "alerts"), [(20, False), (21, True)])
def test_an_alert_is_for_more_than_a_fifth(tmp_path, replans, alerts):
    """Without calm there is no rise: all is within one window."""
    verdict = judged(tmp_path, {"alert_rise": 1.0}, A=calls(0, (10, 100, replans)))
    assert verdict.word is Word.PASS
    assert verdict.sentence.startswith("ALERT") is alerts
    assert share_of(verdict).note.startswith("ALERT") is alerts
    assert bool(verdict.witnesses) is alerts


@pytest.mark.parametrize(("replans", "alerts"), [(75, False), (76, True)])
def test_a_rise_is_against_the_tenants_own_calm(tmp_path, replans, alerts):
    """From a half to three quarters, where a quarter more is allowed."""
    rows = calls(0, (0, 8, 4), (10, 100, replans))
    verdict = judged(tmp_path, {"alert_over": 1.0, "alert_rise": 0.25}, A=rows)
    assert verdict.sentence.startswith("ALERT") is alerts


@pytest.mark.parametrize(("n", "alerts"), [(3, False), (4, True)])
def test_a_calm_of_too_few_calls_is_not_known(tmp_path, n, alerts):
    verdict = judged(tmp_path, {"alert_over": 1.0}, A=calls(0, (0, n, 0), (10, 100, 50)))
    assert verdict.sentence.startswith("ALERT") is alerts
    assert (", 0.0% in calm" in verdict.sentence) is alerts


def test_one_call_in_calm_is_its_own_share_where_one_is_enough(tmp_path):
    rows = calls(0, (0, 1, 1), (10, 10, 10))
    assert not judged(tmp_path, {"least_calls": 1, "alert_over": 1.0}, A=rows).sentence.startswith("ALERT")


@pytest.mark.parametrize("params", [{"alert_over": 1.5}, {"alert_rise": -0.1}, {"fail_over": 2}])
def test_no_share_is_more_than_all_and_all_may_be(tmp_path, params):
    assert judged(tmp_path, {"fail_over": 1.0}, A=calls(0, (10, 8, 8))).word is Word.PASS
    with pytest.raises(ValidationError):
        replan_share.Params.model_validate(params)


def test_without_a_calm_phase_there_is_no_rise(tmp_path):
    trial = written(tmp_path / "t", {"A": calls(0, (0, 8, 0), (10, 100, 50))}, {**PROFILE, "phases": {}})
    assert not judge_one(trial, CHECK, {**LEAST, "alert_over": 1.0}).sentence.startswith("ALERT")


@pytest.mark.parametrize(("n", "word"), [(4, Word.FAIL), (3, Word.INCONCLUSIVE)])
def test_a_tenant_of_fewer_calls_than_it_takes_does_not_fail(tmp_path, n, word):
    verdict = judged(tmp_path, {"fail_over": 0.3}, A=calls(0, (10, n, n - 1)))
    assert (verdict.word, bool(verdict.add)) == (word, word is Word.INCONCLUSIVE)


def test_just_the_share_that_may_be_is_no_failure(tmp_path):
    assert judged(tmp_path, {"fail_over": 0.5}, A=calls(0, (10, 8, 4))).word is Word.PASS


def test_a_failure_names_the_replans_of_the_tenants_that_are_over_the_bound_alone(tmp_path):
    """B alerts, and is within its bound; A's original calls follow nothing."""
    tenants = {"A": calls(0, (0, 10, 0), (10, 8, 6)), "B": calls(1, (0, 10, 0), (10, 8, 3))}
    verdict = judged(tmp_path, {"fail_over": 0.5}, **tenants)
    assert (verdict.word, verdict.bound, verdict.samples) == (Word.FAIL, 0.5, 36)
    assert verdict.witnesses == tuple(f"0.{i}" for i in range(12, 18))
    assert verdict.sentence.endswith("0.0% in calm; over the bound: A.")
    assert [worst_of(verdict, name).bound for name in "AB"] == [0.5, 0.5]
    assert [worst_of(verdict, name).word for name in "AB"] == [Word.FAIL, Word.PASS]


def test_where_only_a_tenant_that_does_not_alert_is_over_the_bound_it_is_named(tmp_path):
    verdict = judged(tmp_path, {"fail_over": 0.0, "alert_over": 0.9, "alert_rise": 0.9}, A=calls(0, (10, 8, 2)))
    assert verdict.witnesses == ("0.6", "0.7")
    assert verdict.sentence.endswith("over the bound: A.")


def test_an_alert_names_its_replans(tmp_path):
    tenants = {"A": calls(0, (0, 10, 0), (10, 8, 1)), "B": calls(1, (0, 10, 0), (10, 8, 3))}
    verdict = judged(tmp_path, **tenants)
    assert (verdict.word, verdict.bound) == (Word.PASS, 0.2)
    assert verdict.witnesses == ("1.15", "1.16", "1.17")
    assert [f.subject for f in verdict.findings] == ["B", "B", "A", "A"]
    assert [f.bound for f in verdict.findings] == [0.2] * 4


def test_no_calls_are_no_samples(tmp_path):
    verdict = judged(tmp_path, A=[])
    assert (verdict.word, verdict.samples) == (Word.INCONCLUSIVE, 0)
