"""How rules become a verdict: each at its bound and on both sides of it, without samples, and several together."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harness.checks.rules import Rule, at_least, at_most, enough, none_of, unmoved, verdict, withheld
from harness.checks.rulings import missing, never, noted
from harness.checks.verdict import EXIT_CODES, Finding, Verdict, Word, exit_code, worst
from harness.measure.intervals import Interval

PASS, FAIL, OPEN, INVALID = Word.PASS, Word.FAIL, Word.INCONCLUSIVE, Word.INVALID


def most(measured, samples=9):
    return at_most("runs", "too many", measured, 4, "calls", samples, "it was too much", ["a", "b", "a"])


def least(measured, samples=9):
    return at_least("runs", "too few", measured, 4, "calls", samples, "it was too little", ["a", "b", "a"])


# --- one rule


MOST, LEAST, NOTHING = "it was too much", "it was too little", "nothing to judge"


@pytest.mark.parametrize(
    ("made", "measured", "samples", "word", "note", "sentence", "named"),
    [
        (most, 4, 9, PASS, "", MOST, ()),
        (most, 4.5, 9, FAIL, MOST, MOST, ("a", "b")),
        (most, 4, 0, OPEN, NOTHING, "runs: too many: no evidence", ()),
        (most, 5, 0, FAIL, MOST, MOST, ("a", "b")),
        (least, 4, 9, PASS, "at least", LEAST, ()),
        (least, 3.5, 9, FAIL, LEAST, LEAST, ("a", "b")),
        (least, 5, 0, OPEN, NOTHING, "runs: too few: no evidence", ()),
        (least, 3, 0, OPEN, NOTHING, "runs: too few: no evidence", ()),
    ],
)
def test_a_bound_is_broken_only_beyond_it_and_never_kept_without_samples(
    made, measured, samples, word, note, sentence, named
):
    rule = made(measured, samples)
    assert (rule.finding.word, rule.finding.note, rule.sentence, rule.witnesses) == (word, note, sentence, named)
    assert (rule.finding.measured, rule.finding.bound, rule.finding.samples) == (measured, 4.0, samples)
    assert (rule.finding.unit, rule.evidence) == ("calls", False)


def test_a_single_one_breaks_what_may_never_be():
    assert none_of("runs", "wrong", [], 3, "runs", "no").finding.word is PASS
    assert none_of("runs", "wrong", [], 0, "runs", "no").finding.word is OPEN
    assert none_of("runs", "wrong", ["a"], 3, "runs", "one is").finding.word is FAIL
    broken = none_of("runs", "wrong", ["a", "b"], 3, "runs", "two are")
    assert broken.finding.bound == 0.0
    assert (broken.finding.word, broken.finding.measured, broken.witnesses) == (FAIL, 2.0, ("a", "b"))


@pytest.mark.parametrize(
    ("have", "word", "note"), [(5, PASS, ""), (6, PASS, ""), (4, OPEN, "only 4 runs where 5 are needed")]
)
def test_evidence_is_enough_from_what_is_needed_on(have, word, note):
    rule = enough("runs", "with retries", have, 5, "runs", "more of them")
    assert (rule.finding.word, rule.finding.note, rule.evidence, rule.add) == (word, note, True, "more of them")
    assert (rule.finding.measured, rule.finding.bound, rule.finding.samples) == (have, 5.0, have)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.0, 0.9, PASS), (0.0, 1.0, OPEN), (0.5, 1.5, OPEN), (1.0, 1.5, OPEN), (1.1, 1.5, FAIL), (-2.0, 0.5, PASS)],
)
def test_a_change_is_told_only_by_its_whole_interval(low, high, word):
    rule = unmoved("A", "wait up", Interval(0.6, low, high), 1.0, "ms", 7, ["x"] * 30)
    assert (rule.finding.word, rule.witnesses) == (word, ("x",) if word is FAIL else ())
    assert (rule.finding.measured, rule.finding.low, rule.finding.high, rule.finding.bound) == (0.6, low, high, 1.0)
    assert rule.finding.note == ("" if word is PASS else rule.sentence)
    assert rule.sentence == f"A: wait up by 0.6 ms (interval {low:.3g} to {high:.3g}; allowed 1)"


BREACHES = [("s1", "9 ms late"), ("s1", ""), ("s2", "")]


@pytest.mark.parametrize(
    ("breaches", "seen", "word", "sentence"),
    [
        ([], 3, PASS, "starts: 0 steps came late"),
        ([], 2, OPEN, "starts: only 2 of the 3 steps needed to see whether any came late"),
        (BREACHES, 9, FAIL, "starts: 3 steps came late, out of 9 (first s1: 9 ms late)"),
        (BREACHES, 3, FAIL, "starts: 3 steps came late (first s1: 9 ms late)"),
        (BREACHES[1:], 0, FAIL, "starts: 2 steps came late (first s1)"),
    ],
)
def test_what_may_never_happen_fails_once_it_did_however_thin_the_rest(breaches, seen, word, sentence):
    rule = never("starts", "came late", breaches, seen, 3, "more steps")
    assert (rule.finding.word, rule.sentence, rule.add) == (word, sentence, "more steps")
    assert rule.finding.note == ("" if word is PASS else sentence)
    assert rule.witnesses == tuple(dict.fromkeys(witness for witness, _ in breaches))
    assert (rule.finding.measured, rule.finding.bound, rule.finding.samples) == (len(breaches), 0.0, seen)


def test_twenty_witnesses_are_enough():
    many = [(f"s{i}", "") for i in range(21)]
    assert len(never("starts", "came late", many, 30, 1, "").witnesses) == 20
    assert len(none_of("runs", "wrong", [name for name, _ in many], 30, "runs", "many").witnesses) == 20


def test_a_note_decides_nothing():
    note = noted("dates", "not judged").finding
    assert (note.word, note.note, note.samples) == (PASS, "not judged", 0)


# --- several together


def test_the_worst_word_counts_and_only_its_sentences_are_told():
    found = verdict("c", [most(3), most(9), enough("runs", "x", 1, 5, "runs", "more"), least(1)], "all is well")
    assert (found.word, found.measured, found.bound) == (FAIL, 9.0, 4.0)
    assert found.sentence == "It was too much; it was too little."
    assert (found.witnesses, found.add, len(found.findings)) == (("a", "b"), "", 4)


def test_what_is_missing_is_added_up_without_saying_it_twice():
    thin = [enough("runs", what, 1, 5, "runs", add) for what, add in (("a", "x"), ("b", "y"), ("c", "x"), ("d", ""))]
    found = verdict("c", [most(3), *thin, most(4, samples=0)], "all is well")
    assert (found.word, found.add, found.witnesses) == (OPEN, "x; y", ())
    assert found.sentence == (
        "Cannot tell: runs: only 1 of the 5 runs needed (a); runs: only 1 of the 5 runs needed (b); "
        "runs: only 1 of the 5 runs needed (c); and 2 more."
    )
    assert verdict("c", thin[:3], "").sentence.endswith("(c).")


def test_a_pass_shows_the_first_rule_that_is_not_about_evidence():
    rules = [enough("runs", "x", 9, 5, "runs", "more"), most(2), most(3)]
    found = verdict("c", rules, "all is well")
    assert (found.word, found.sentence, found.measured, found.add) == (PASS, "All is well", 2.0, "")
    assert verdict("c", rules[:1], "all is well").measured == 9.0


def test_an_invalid_rule_speaks_for_itself():
    broken = Rule(Finding("trial", "q", INVALID, None, None, None, None, "", 0), "the audit broke")
    assert verdict("c", [broken, most(9)], "").sentence == "The audit broke."


def test_without_any_rule_nothing_is_decided():
    assert (verdict("c", [], "all is well").word, verdict("c", [], "").add) == (OPEN, "a trial with runs")
    assert withheld("c", "it is dark", "light") == Verdict(
        "c", OPEN, None, None, "", 0, "Cannot be judged: it is dark.", (), "light"
    )


def test_only_the_evidence_that_is_asked_for_can_be_missing():
    there = SimpleNamespace(has_decisions=True, has_arrivals=False, has_effects=False)
    assert missing("c", there, "decisions") is None
    found = missing("c", there, "decisions", "arrivals", "effects")
    assert found is not None
    assert (found.word, found.samples) == (OPEN, 0)
    assert "does not hold what reached the dependencies (arrivals.jsonl) or the writes" in found.sentence


def test_the_worst_of_words_and_their_exit_codes():
    assert [worst(words) for words in ([PASS], [PASS, OPEN], [OPEN, FAIL], [FAIL, INVALID, PASS], [])] == [
        PASS, OPEN, FAIL, INVALID, OPEN,
    ]  # fmt: skip
    assert {str(word): code for word, code in EXIT_CODES.items()} == {
        "PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3, "INVALID": 4,
    }  # fmt: skip
    assert exit_code([PASS, OPEN]) == 3
