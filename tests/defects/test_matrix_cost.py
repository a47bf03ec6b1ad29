"""The kill matrix of what runs cost: each check fails on each of its defects, and passes the healthy and its twins."""

from __future__ import annotations

from copy import deepcopy

import pytest

from harness.checks import CHECKS
from harness.checks.verdict import Word
from harness.matrix import Job, judge_in_virtual_time, judge_job, profile_of_check, profile_of_defect
from harness.profile.loader import load
from stub_service.defects.registry import DEFECTS
from tests.conftest import with_values
from tests.defects.cells import broken_of, told, twins_of

MINE = ("cost.bucket_per_tenant", "cost.reconciled", "cost.unwound", "cost.size_class", "cost.corridor")
BROKEN = broken_of(MINE)
TWINS = twins_of(MINE)
SEEDS = (0, 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_defect_is_caught_by_its_check_and_trips_no_other_unsaid(name, seed):
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), name, seed))
    assert told(row) == ((), [])
    assert (row.own.word, row.own.check) == (Word.FAIL, DEFECTS[name].caught_by[0])
    assert row.own.witnesses


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TWINS)
def test_a_healthy_twin_passes(name, seed):
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), name, seed))
    assert told(row) == ((), [])
    assert {*DEFECTS[name].twin_of} <= {*row.passed}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("check", MINE)
def test_the_healthy_controller_passes(check, seed):
    row = judge_job(Job(profile_of_check(check), None, seed))
    assert told(row) == ((), [])
    assert row.own.check == check


def test_every_check_has_defects_and_a_twin():
    assert {*MINE} <= {check for name in BROKEN for check in DEFECTS[name].caught_by}
    assert {*MINE} <= {check for name in TWINS for check in DEFECTS[name].twin_of}
    assert {*MINE} <= {*CHECKS}


FOR = {
    "cost_one_bucket": ["used beyond its bucket", "were refused though their own bucket held enough"],
    "cost_charged_at_completion": ["used beyond its bucket"],
    "cost_cancel_never_settles": ["were never settled"],
    "cost_crash_never_settles": ["were never settled"],
    "cost_route_never_settles": ["were never settled"],
    "cost_floor_above_limit": ["were refused though their own bucket held enough"],
    "cost_never_learns": ["error of the later forecasts, chat_turn"],
    "cost_released_on_success_only": ["were refused though every pool should have been whole", "still held at the end"],
    "cost_rate_before_concurrency": ["were refused though every pool should have been whole"],
    "cost_one_queue": ["wait"],
    "cost_admits_too_little": ["age"],
    "cost_admits_too_much": ["throttled"],
}
"""Defect -> what its check must say of it: a FAIL for another reason would be luck."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_defect_is_caught_for_what_it_is(name):
    verdict = judge_job(Job(profile_of_defect(DEFECTS[name]), name, 0)).own
    assert {*FOR[name]} <= {finding.quantity for finding in verdict.findings if finding.word is Word.FAIL}


def test_the_corridor_says_on_which_side_a_trial_is():
    def placed(defect):
        verdict = judge_job(Job(profile_of_check("cost.corridor"), defect, 0)).own
        note = next(finding.note for finding in verdict.findings if finding.subject == "placed")
        return verdict.sentence.partition(",")[0], note

    assert placed("cost_admits_too_little") == ("Below the corridor", "below the corridor")
    assert placed("cost_admits_too_much") == ("Above the corridor", "above the corridor")
    assert placed(None)[1] == "in the corridor"


@pytest.mark.parametrize("defect", [None, "cost_released_on_success_only", "cost_rate_before_concurrency"])
def test_a_thousand_refusals_at_each_of_the_four_steps(defect):
    document = load(profile_of_check("cost.unwound")).document
    document = with_values(document, {"checks": [{"cost.unwound": {"each": 1000}}]})
    for name in ("crowd", "poor", "writer", "tooler"):
        document["tenants"][name]["runs"][0]["rate"] = "400/s"
    verdict = judge_in_virtual_time(document, defect, ["cost.unwound"]).of("cost.unwound")
    assert verdict.word is (Word.FAIL if defect else Word.PASS), verdict.sentence


def test_costs_that_no_forecast_can_know_are_not_held_against_it():
    """Every tenant's cost spreads widely: whether it learns cannot be told, and nothing fails."""
    document = deepcopy(load(profile_of_check("cost.reconciled")).document)
    wide = {"distribution": "lognormal", "mean": 1500, "sigma": 1.8, "most": 20000}
    document["tenants"]["drift"]["runs"][0]["batches"][0][0]["usage"]["tokens"] = wide
    verdict = judge_in_virtual_time(document, None, ["cost.reconciled"]).of("cost.reconciled")
    assert verdict.word is Word.INCONCLUSIVE
    assert "cost the same again and again" in verdict.sentence


@pytest.mark.parametrize("check", MINE)
def test_a_profile_without_cost_proves_nothing(check):
    verdict = judge_in_virtual_time(load(profile_of_check("v01.fan_out_ceiling")).document, None, [check]).of(check)
    assert (verdict.word, bool(verdict.add)) == (Word.INCONCLUSIVE, True)
