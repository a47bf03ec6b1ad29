"""The kill matrix of trees and floods: each check fails on each of its defects, passes the healthy and its twins."""

from __future__ import annotations

import pytest

from harness.checks import CHECKS
from harness.checks.verdict import Word
from harness.matrix import Job, judge_in_virtual_time, judge_job, profile_of_check, profile_of_defect
from harness.profile.loader import load
from harness.shipped import VERIFICATION
from stub_service.defects.registry import DEFECTS
from stub_service.defects.strengths import diluted
from tests.conftest import with_values
from tests.defects.cells import broken_of, told, twins_of

MINE = ("tree.bounded", "tree.delegate_priced", "tree.inward_guard", "flood.cheap", "flood.expensive")
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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("check", MINE)
def test_the_healthy_controller_passes(check, seed):
    row = judge_job(Job(profile_of_check(check), None, seed))
    assert told(row) == ((), [])
    assert row.own.check == check


@pytest.mark.parametrize("defect", [None, "tree_crash_never_settled"])
def test_a_branch_whose_agent_is_gone_is_settled(defect):
    row = judge_job(Job(VERIFICATION / "defects" / "tree_crash_never_settled.yaml", defect, 0))
    assert told(row) == ((), [])
    assert row.own.word is (Word.FAIL if defect else Word.PASS)


def test_every_check_has_defects_and_a_twin():
    assert {*MINE} <= {check for name in BROKEN for check in DEFECTS[name].caught_by}
    assert {*MINE} <= {check for name in TWINS for check in DEFECTS[name].twin_of}
    assert {*MINE} <= {*CHECKS}


FOR = {
    "tree_breadth_unchecked": "fan_out over the envelope",
    "tree_depth_unchecked": "depth over the envelope",
    "tree_fresh_for_the_child": "fan_out over the envelope",
    "tree_bytes_of_one_level": "bytes over the envelope",
    "tree_payload_not_kept": "payload over the envelope",
    "tree_windows_of_one_level": "context over the envelope",
    "tree_session_freed_early": "sessions over the envelope",
    "tree_all_cost_one": "credits over the envelope",
    "tree_delegation_free": "credits over the envelope",
    "tree_tools_cost_as_delegations": "were refused while they had the credits",
    "tree_no_iteration_cap": "iterations over the cap",
    "tree_no_branch_ceiling": "began calls beyond their token ceiling",
    "tree_agent_budget_of_each_run": "began calls beyond their own budget",
    "tree_guard_of_all": "were stopped though they asked for no more than they may",
    "flood_one_bucket": "requests not served",
    "flood_one_queue": "requests not served",
    "flood_counted_as_one": "used beyond its bucket",
    "flood_delegation_costs_one": "requests not served",
    "flood_tree_on_one_bucket": "with a few sub-agents were not let through whole",
}
"""Defect -> what its check must say of it: a FAIL for another reason would be luck."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_defect_is_caught_for_what_it_is(name):
    verdict = judge_job(Job(profile_of_defect(DEFECTS[name]), name, 0)).own
    assert FOR[name] in {finding.quantity for finding in verdict.findings if finding.word is Word.FAIL}


@pytest.mark.parametrize("defect", [None, "flood_one_bucket"])
def test_a_night_of_ten_thousand_small_requests(defect):
    document = with_values(
        load(profile_of_check("flood.cheap")).document,
        {"duration": "76s", "phases": {"calm": ["0s", "1s"], "burst": ["1s", "76s"]}}
        | {"checks": [{"flood.cheap": {"requests": 10_000}}]},
    )
    verdict = judge_in_virtual_time(document, defect, ["flood.cheap"]).of("flood.cheap")
    assert verdict.word is (Word.FAIL if defect else Word.PASS), verdict.sentence


@pytest.mark.parametrize("check", MINE)
def test_a_profile_without_trees_proves_nothing(check):
    verdict = judge_in_virtual_time(load(profile_of_check("v01.fan_out_ceiling")).document, None, [check]).of(check)
    assert (verdict.word, bool(verdict.add)) == (Word.INCONCLUSIVE, True)


@pytest.mark.parametrize("name", ["flood_counted_as_one", "flood_delegation_costs_one"])
@pytest.mark.parametrize("seed", range(3))
def test_floods_of_which_half_are_counted_wrongly_are_seen(name, seed, monkeypatch):
    half = diluted(DEFECTS[name], 2)
    monkeypatch.setitem(DEFECTS, half.name, half)
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), half.name, seed))
    assert row.own.word is Word.FAIL, row.own.sentence
