"""Which checks judge a trial, and what becomes of one that cannot: withheld evidence, an unknown clock, wrong names."""

from __future__ import annotations

import pytest

from harness.checks.judge import UnknownCheck, judge_all, judge_one, known
from harness.checks.verdict import Word
from tests.unit.ledgers import manifest_edited, steady, written

FAN_OUT, UNMOVED, CONSERVED = "v01.fan_out_ceiling", "fairness.ordinary_unmoved", "trial.conserved"


@pytest.fixture
def trial(tmp_path):
    return written(tmp_path / "trial", {"A": steady(5, 0, 9)})


def of_target(trial, evidence=None, **manifest):
    def change(kept):
        kept.update(target={"kind": "file"}, evidence=evidence or {}, **manifest)

    return manifest_edited(trial, change)


def asked(trial, checks):
    return manifest_edited(trial, lambda manifest: manifest["profile"].update(checks=checks))


def test_what_a_target_file_does_not_give_is_withheld_with_what_to_add(trial):
    verdict = judge_one(of_target(trial), FAN_OUT, {})
    assert (verdict.word, verdict.samples, verdict.measured) == (Word.INCONCLUSIVE, 0, None)
    assert verdict.sentence == "Cannot be judged: the target file gives no runs and dependencies."
    assert verdict.add.startswith("add ")
    assert "; " in verdict.add


def test_what_it_gives_is_judged(trial):
    given = of_target(trial, {"runs": True, "dependencies": True, "decisions": True})
    assert "the target file gives no" not in judge_one(given, FAN_OUT, {}).sentence
    assert "the target file gives no" not in judge_one(trial, FAN_OUT, {}).sentence  # no target file at all
    assert "the target file gives no" not in judge_one(of_target(trial), UNMOVED, {}).sentence  # answers are enough


EVERYTHING = {"runs": True, "dependencies": True, "decisions": True}


@pytest.mark.parametrize(
    ("clock", "said"),
    [
        ({"samples": 0}, "no line of the service's log names a call"),
        ({"samples": 9, "error_ns": 1, "consistent": False}, "the service's clock moved by 0.0 ms"),
        ({"samples": 9, "error_ns": 40_000_000, "consistent": False}, "the service's clock moved by 80.0 ms"),
        ({"samples": 9, "error_ns": 5_000_001}, "is known to 5.0 ms, and this is judged to 5 ms"),
        ({"samples": 9, "error_ns": 5_000_000}, None),
        ({"samples": 9}, None),
        (None, None),
    ],
)
def test_a_clock_that_is_not_known_finely_enough_keeps_a_check_from_judging(trial, clock, said):
    verdict = judge_one(of_target(trial, EVERYTHING, clock=clock), "v08.circuit", {})
    assert (verdict.sentence.startswith("Cannot be judged: ") and "clock" in verdict.sentence) is (said is not None)
    if said is not None:
        assert said in verdict.sentence
        assert (verdict.word, verdict.samples) == (Word.INCONCLUSIVE, 0)
        assert "`same_clock`" in verdict.add


def test_a_family_in_a_profile_is_an_error_of_the_profile(trial):
    (verdict, *_) = judge_all(asked(trial, ["v05"]))
    assert (verdict.check, verdict.word, verdict.samples) == ("v05", Word.INVALID, 0)
    assert "'v05' is a family of checks; a profile gives each by its whole name" in verdict.sentence


def test_a_name_that_no_check_has_comes_with_what_was_perhaps_meant(trial):
    (verdict, *_) = judge_all(asked(trial, ["v01.fan_out_cieling"]))
    assert verdict.word is Word.INVALID
    assert f"there is no check 'v01.fan_out_cieling': did you mean {FAN_OUT}?" in verdict.sentence
    with pytest.raises(UnknownCheck) as caught:
        known("nothing like any")
    assert "did you mean" not in str(caught.value)


def test_parameters_that_are_wrong_are_told_by_name_and_what_is_no_name_is_told_too(trial):
    (first, second, *_) = judge_all(asked(trial, [{UNMOVED: {"confidence": 7}}, {"a": 1, "b": 2}]))
    assert (first.check, first.word) == (UNMOVED, Word.INVALID)
    assert "are not valid: confidence: " in first.sentence
    assert second.word is Word.INVALID


@pytest.mark.parametrize("listed", [None, []])
def test_a_profile_without_checks_is_judged_by_those_that_say_whether_to_trust_it(trial, listed):
    assert [verdict.check for verdict in judge_all(asked(trial, listed))] == [CONSERVED, "trial.on_time"]


def test_a_check_that_is_always_made_is_made_once_with_the_profiles_parameters(trial):
    verdicts = judge_all(asked(trial, [{"trial.on_time": {"at_most": "10ms"}}, UNMOVED]))
    assert [verdict.check for verdict in verdicts] == ["trial.on_time", UNMOVED, CONSERVED]
    asked_for = judge_all(asked(trial, [UNMOVED]), [CONSERVED, UNMOVED, CONSERVED])
    assert [verdict.check for verdict in asked_for][:2] == [CONSERVED, UNMOVED]
