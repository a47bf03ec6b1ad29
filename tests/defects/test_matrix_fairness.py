"""The kill matrix of fairness beyond `ordinary_unmoved`: shares, identity, shuffle shards, recovery, shadows."""

from __future__ import annotations

import pytest

from harness.bracket import TRIGGERS, Bracket, bracket
from harness.checks.verdict import Word
from harness.matrix import Job, judge_job, profile_of_check, profile_of_defect
from stub_service.defects.registry import DEFECTS
from tests.defects.cells import broken_of, told, twins_of

MINE = (
    "fairness.max_min",
    "fairness.identity_from_credential",
    "fairness.shuffle_isolation",
    "fairness.recovers",
    "fairness.shadow_agrees",
)
BROKEN = broken_of(MINE)
TWINS = twins_of(MINE)
SLOW = ("hands_with_replacement",)  # takes as long as all others together
SEEDS = (0, 1)


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name in BROKEN for seed in SEEDS[: 1 if name in SLOW else 3]]
)
def test_a_defect_is_caught_by_its_check_and_trips_no_other_unsaid(name, seed):
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), name, seed))
    assert told(row) == ((), [])
    assert row.own.word is Word.FAIL
    assert row.own.witnesses


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TWINS)
def test_a_healthy_twin_passes(name, seed):
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), name, seed))
    assert told(row) == ((), [])
    assert {*DEFECTS[name].twin_of} <= {*row.passed}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("path", sorted({profile_of_check(check) for check in MINE}), ids=lambda path: path.stem)
def test_the_healthy_service_passes(path, seed):
    assert told(judge_job(Job(path, None, seed))) == ((), [])


def test_every_check_has_a_profile_of_its_own_defects_and_a_twin():
    assert len({profile_of_check(check) for check in MINE}) == len(MINE)
    assert {check for name in BROKEN for check in DEFECTS[name].caught_by} == set(MINE)
    assert {check for name in TWINS for check in DEFECTS[name].twin_of} == set(MINE)


@pytest.mark.parametrize("number", [0, 1])
def test_the_bracket_holds(number):
    found = bracket(number=number)
    assert found.broken() == ()
    assert [step.trigger for step in found.steps] == [trigger or "as written" for trigger in TRIGGERS]


def test_a_bracket_that_does_not_hold_says_where():
    steps = bracket(triggers=["trigger_small"]).steps
    assert [text.split(" (")[0] for text in Bracket(steps).broken()] == [
        "trigger_small: the badly protected one did not collapse"
    ]
