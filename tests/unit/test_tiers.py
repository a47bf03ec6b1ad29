"""Which checks a target can be judged by, and what it would have to show for the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks import CHECKS
from harness.checks.tiers import ADD, NEEDS, Tier, clock_problem, judgeable, needs, tiers_of


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


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("calls that wait", ()),
        ("the service's decisions", (Tier.DECISIONS,)),
        ("arrivals at dependencies", (Tier.DEPENDENCIES,)),
        ("arrivals, and the service's decisions", (Tier.DEPENDENCIES, Tier.DECISIONS)),
    ],
)
def test_a_check_without_an_entry_needs_what_its_own_words_say(monkeypatch, words, found):
    one = replace(CHECKS["fairness.max_min"], name="no.entry", needs=words)
    monkeypatch.setitem(CHECKS, "no.entry", one)
    assert needs("no.entry") == found


def test_only_a_described_target_can_lack_something():
    assert tiers_of({"target": {"kind": "stub"}}) is None
    assert tiers_of({"target": {"kind": "file"}, "evidence": {"decisions": True, "typed": False}}) == {
        Tier.ANSWERS,
        Tier.DECISIONS,
    }


def test_instants_of_two_hosts_are_not_held_against_each_other_more_finely_than_their_clocks_are_known():
    def said(check, **clock):
        return clock_problem(check, {"clock": {"samples": 100, "consistent": True, "error_ns": 0, **clock}})

    assert said("v06.expiry", error_ns=4_000_000) is None
    assert said("v06.expiry", error_ns=6_000_000) == (
        "the service's clock is known to 6.0 ms, and this is judged to 5 ms"
    )
    assert said("fairness.max_min", error_ns=6_000_000) is None
    assert "known to 60.0 ms" in (said("fairness.max_min", error_ns=60_000_000) or "")
    assert "moved by 2000.0 ms" in (said("v06.expiry", consistent=False, error_ns=1_000_000_000) or "")
    assert "names a call of this trial" in (said("v06.expiry", samples=0) or "")
    assert said("fairness.ordinary_unmoved", error_ns=10**9) is None
    assert clock_problem("v06.expiry", {}) is None
