"""Which checks a target can be judged by, and what it would have to show for the others."""

from __future__ import annotations

from harness.checks import CHECKS
from harness.checks.tiers import ADD, NEEDS, Tier, judgeable, needs, tiers_of


def test_answers_alone_judge_fairness_as_callers_feel_it():
    assert judgeable("fairness.ordinary_unmoved", {Tier.ANSWERS}).missing == ()


def test_what_is_missing_is_named_with_the_key_to_add():
    found = judgeable("v06.expiry", {Tier.ANSWERS, Tier.RUNS})
    assert found.missing == (Tier.DEPENDENCIES, Tier.DECISIONS)
    assert "overload stub --dependencies-only" in found.add[0]
    assert found.add[1].startswith("`evidence: {decisions:")


def test_every_tier_says_what_to_add():
    assert set(ADD) == set(Tier) - {Tier.ANSWERS}


def test_what_is_named_exists_and_what_has_no_entry_goes_by_its_words():
    assert set(NEEDS) <= set(CHECKS)
    assert needs("no.such_check") == ()


def test_only_a_described_target_can_lack_something():
    assert tiers_of({"target": {"kind": "stub"}}) is None
    assert tiers_of({"target": {"kind": "file"}, "evidence": {"decisions": True, "typed": False}}) == {
        Tier.ANSWERS,
        Tier.DECISIONS,
    }
