"""fairness.refusals_structured at its bounds: what is a refusal, a 5xx, a silence, and how slow is slow."""

from __future__ import annotations

import pytest

from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from tests.unit.ledgers import steady, written
from tests.unit.test_checks_trial import REFUSALS, refused

MS = 1_000_000


def recorded(tmp_path, *parts, after_ns=MS, **profile):
    """Each answered after so long, unless a row says otherwise."""
    rows = [row for part in parts for row in part]
    for row in rows:
        row["done_ns"] = row["due_ns"] + row.pop("after_ns", after_ns)
    return written(tmp_path / "t", {"A": rows}, profile)


def judged(tmp_path, *parts, params=None, **options):
    return judge_one(recorded(tmp_path, *parts, **options), REFUSALS, params or {})


def quantity(verdict, name):
    return next(finding for finding in verdict.findings if finding.quantity == name)


@pytest.mark.parametrize(("after_ns", "word"), [(500 * MS, "PASS"), (500 * MS + 1, "FAIL")])
def test_a_refusal_is_slow_after_more_than_half_a_second(tmp_path, after_ns, word):
    assert judged(tmp_path, refused(60), after_ns=after_ns).word == word


def test_slow_refusals_are_shown_and_no_others(tmp_path):
    trial = recorded(tmp_path, refused(60), refused(30, after_ns=900 * MS))
    found = judge_one(trial, REFUSALS, {})
    assert found.word is Word.FAIL
    assert found.sentence.endswith(": 33.33% of 90 refusals given slowly.")
    took = trial.calls.done_ns - trial.calls.sent_ns
    late = [trial.calls.id(row) for row in range(90) if took[row] > 500 * MS]
    assert (found.witnesses, len(late)) == (tuple(late[:20]), 30)


def test_an_interval_that_reaches_the_bound_decides_nothing(tmp_path):
    trial = recorded(tmp_path, refused(300), refused(30, after_ns=900 * MS))
    slow = quantity(judge_one(trial, REFUSALS, {}), "given slowly")
    for breach, word in (
        (slow.low - 1e-4, "FAIL"), (slow.low, "INCONCLUSIVE"), (slow.high, "INCONCLUSIVE"), (slow.high + 1e-4, "PASS")
    ):  # fmt: skip
        assert judge_one(trial, REFUSALS, {"breach": breach}).word == word


@pytest.mark.parametrize(("status", "word"), [(499, "PASS"), (500, "FAIL"), (599, "FAIL"), (600, "PASS")])
def test_a_5xx_is_one_of_500_to_599(tmp_path, status, word):
    found = judged(tmp_path, refused(60), steady(1, 40, 41, outcome="failed", status=status))
    assert found.word == word
    if word == "FAIL":
        assert found.sentence.endswith(": 1 of 61 refusals answered with a 5xx.")
        assert (found.measured, found.bound, found.witnesses) == (1.0, 0.0, ("0.31",))


def test_what_a_run_is_told_of_its_steps_is_judged_elsewhere(tmp_path):
    steps = steady(9, 40, 41, outcome="failed", status=503, action="search")
    found = judged(tmp_path, refused(60), steps)
    assert (found.word, found.samples) == (Word.PASS, 60)


def test_calls_that_were_never_sent_were_not_answered(tmp_path):
    held_back = steady(60, 0, 80, outcome="held_back", attempt=0, status=-1)
    found = judged(tmp_path, held_back)
    assert (found.word, found.sentence) == (Word.INCONCLUSIVE, "Nothing was refused.")
    assert quantity(found, "ended without an answer").measured == 0


@pytest.mark.parametrize(
    ("n", "word", "sentence"),
    [
        (1, "INCONCLUSIVE", "Only 1 calls were refused, all of them as they should be."),
        (51, "INCONCLUSIVE", "Only 51 calls were refused, all of them as they should be."),
        (52, "PASS", "All 52 refusals were 429 with a readable Retry-After and a typed body, given fast."),
    ],
)
def test_from_52_refusals_on_a_breach_of_one_in_twenty_would_have_been_seen(tmp_path, n, word, sentence):
    found = judged(tmp_path, refused(n), steady(50, 0, 80))
    assert (found.word, found.sentence, found.samples) == (word, sentence, n)


@pytest.mark.parametrize("outcome", ["open", "failed"])
@pytest.mark.parametrize(("silent", "passes"), [(1, True), (2, False)])
def test_one_call_in_a_thousand_may_end_without_an_answer(tmp_path, outcome, silent, passes):
    """Open calls of which nobody tells what became are not known to hang; those that failed did not get an answer."""
    rows = steady(silent, 40, 41, outcome=outcome, status=-1)
    found = judged(tmp_path, refused(60), steady(940 - silent, 0, 80), rows)
    assert found.word is (Word.PASS if passes else Word.FAIL if outcome == "failed" else Word.INCONCLUSIVE)
    if not passes:
        assert len(found.witnesses) == 2
        assert ("2 calls were open at the end" in found.sentence) is (outcome == "open")
    if outcome == "failed":
        assert quantity(found, "ended without an answer").measured == pytest.approx(silent / 1000)


@pytest.mark.parametrize("status", [-1, 0])
def test_a_call_that_failed_without_a_status_has_no_answer(tmp_path, status):
    found = judged(tmp_path, refused(60), steady(9, 40, 41, outcome="failed", status=status))
    assert found.word is Word.FAIL
    assert found.sentence.endswith(": 13.04% of 69 calls ended without an answer.")


@pytest.mark.parametrize(
    ("status", "after_ns", "word"),
    [(504, 900 * MS, "FAIL"), (504, 1000 * MS, "PASS"), (0, 900 * MS, "PASS"), (-1, 900 * MS, "PASS")],
)
def test_before_half_of_its_patience_is_over_no_call_has_expired(tmp_path, status, after_ns, word):
    """Said to have expired, it was turned away, and told so. A caller that merely gave up was told nothing."""
    early = steady(1, 40, 41, outcome="abandoned", reason="patience", status=status, after_ns=after_ns)
    found = judged(tmp_path, refused(60), early, patience="2s", patience_until="start")
    assert (found.word, found.samples) == (word, 61 if word == "FAIL" else 60)
    if word == "FAIL":
        assert found.sentence.endswith(": 1 of 61 refusals refused with another status than 429.")
