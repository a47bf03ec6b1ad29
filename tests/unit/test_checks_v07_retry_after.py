"""v07.retry_after: each form, each defect's signature in the rows, thin and withheld evidence."""

from __future__ import annotations

import pytest

from harness.checks.v07_retry_after import form_of
from harness.checks.verdict import Word
from tests.unit.verification_trials import (
    ARRIVALS,
    DECISIONS,
    arrivals,
    decisions,
    edited,
    healthy,
    more,
    read,
    verdict,
    without,
)

CHECK = "v07.retry_after"


@pytest.fixture
def trial(tmp_path):
    return healthy("v07", tmp_path)


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        ("20", "seconds"), ("1.5", "decimal seconds"), ("0", "zero"), ("0.0", "zero"), ("-10", "malformed"),
        ("20, 30", "malformed"), ("1_000", "malformed"), ("1696004817", "malformed"), ("nan", "malformed"),
        ("", "absent"), (None, "absent"), ("Sun, 06 Nov 1994 08:49:37 GMT", "IMF date"),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "RFC 850 date"), ("Sun Nov  6 08:49:37 1994", "asctime date"),
    ],
)  # fmt: skip
def test_the_form_of_a_header(raw, form):
    assert form_of(raw) == form


def test_the_healthy_controller_passes(trial):
    found = verdict(trial, CHECK)
    assert found.word is Word.PASS, found.sentence
    assert "66 answers with Retry-After in 8 forms" in found.sentence


def refused(trial, raw):
    """The steps whose first answer carried this header."""
    return {(a["run"], a["step"]) for a in read(trial, ARRIVALS) if a.get("retry_after") == raw and a["attempt"] == 1}


def retries_moved(trial, steps, to_ns):
    """Their second attempts, that long after the answer."""
    answered = {(a["run"], a["step"]): a["ended_ns"] for a in read(trial, ARRIVALS) if a["attempt"] == 1}

    def move(row):
        key = row["run"], row["step"]
        if key not in steps or row["attempt"] != 2:
            return row
        at = answered[key] + to_ns
        return row | {"t_ns": at, "started_ns": at, "ended_ns": at + 50_000_000}

    return arrivals(trial, move)


@pytest.mark.parametrize(("raw", "after_ms"), [("1", 900), ("0.7", 500)])
def test_an_early_retry_fails(trial, raw, after_ms):
    steps = refused(trial, raw)
    found = verdict(retries_moved(trial, steps, after_ms * 1_000_000), CHECK)
    assert found.word is Word.FAIL
    assert f"Retry-After: {raw}, retried after {after_ms} ms" in found.sentence
    assert set(found.witnesses) <= {f"{run}/{step}" for run, step in steps}


def dated(trial, days):
    return {
        (a["run"], a["step"])
        for a in read(trial, ARRIVALS)
        if a.get("retry_after", "").startswith(days) and a["attempt"] == 1
    }


def test_a_date_is_early_only_before_every_reading_of_it(trial):
    steps = dated(trial, "Thu, 01 Jan 2026 00:00:02")
    assert steps
    assert verdict(retries_moved(trial, steps, 1_010_000_000), CHECK).word is Word.PASS
    assert verdict(retries_moved(trial, steps, 950_000_000), CHECK).word is Word.FAIL


def test_a_date_read_as_zero_fails(trial):
    found = verdict(retries_moved(trial, dated(trial, "Thursday"), 300_000_000), CHECK)
    assert found.word is Word.FAIL
    assert "were retried early" in found.sentence


def test_a_hot_loop_on_zero_fails(trial):
    found = verdict(retries_moved(trial, refused(trial, "0"), 1_000_000), CHECK)
    assert found.word is Word.FAIL
    assert "hot loop" in found.sentence


def retry_of(trial, raw, after_ns):
    first = next(a for a in read(trial, ARRIVALS) if a.get("retry_after") == raw)
    at = first["ended_ns"] + after_ns
    kept = {k: v for k, v in first.items() if k not in ("retry_after", "date", "fault")}
    return kept | {"t_ns": at, "started_ns": at, "ended_ns": at + 50_000_000, "status": 200, "attempt": 2}


def test_an_infeasible_one_clipped_and_retried_fails(trial):
    found = verdict(more(trial, ARRIVALS, [retry_of(trial, "3600", 1_500_000_000)]), CHECK)
    assert found.word is Word.FAIL
    assert "were retried though the retry cannot end in time" in found.sentence


def test_an_infeasible_one_slept_for_fails(trial):
    def told_late(row):
        late = row["kind"] == "step" and row.get("reason") == "retry_after_beyond_deadline"
        return row | {"t_ns": row["t_ns"] + 3_000_000_000} if late else row

    found = verdict(decisions(trial, told_late), CHECK)
    assert found.word is Word.FAIL
    assert "were slept for instead of answered" in found.sentence


@pytest.mark.parametrize("change", [{"reason": None}, {"outcome": "failed"}, {"outcome": "served"}])
def test_an_infeasible_one_needs_its_outcome_and_reason(trial, change):
    def told(row):
        mine = (
            row["kind"] == "step"
            and row["outcome"] == "throttled"
            and row.get("reason") == "retry_after_beyond_deadline"
        )
        return row | change if mine else row

    assert verdict(decisions(trial, told), CHECK).word is Word.FAIL


def test_a_feasible_one_that_is_not_retried_fails(trial):
    steps = refused(trial, "1")
    lost = arrivals(trial, lambda a: None if (a["run"], a["step"]) in steps and a["attempt"] == 2 else a)
    found = verdict(lost, CHECK)
    assert found.word is Word.FAIL
    assert "fits the deadline and was not retried" in found.sentence


def test_a_malformed_one_is_as_if_there_were_none(trial):
    steps = refused(trial, "1_000")
    lost = arrivals(trial, lambda a: None if (a["run"], a["step"]) in steps and a["attempt"] == 2 else a)
    assert verdict(lost, CHECK).word is Word.FAIL


def test_two_retries_for_one_answer_fail(trial):
    found = verdict(more(trial, ARRIVALS, [retry_of(trial, "1", 1_010_000_000) | {"attempt": 3}]), CHECK)
    assert found.word is Word.FAIL
    assert "more than one retry" in found.sentence


def test_a_retry_that_cannot_end_in_time_fails(trial):
    found = verdict(retries_moved(trial, refused(trial, "1"), 3_480_000_000), CHECK)
    assert found.word is Word.FAIL
    assert "too late to end before the deadline" in found.sentence


def test_at_another_time_scale_dates_are_not_judged(tmp_path):
    found = verdict(healthy("v07", tmp_path, 0.5), CHECK)
    assert found.word is Word.PASS, found.sentence
    assert any("the scale is not 1" in finding.note for finding in found.findings)


def test_a_form_that_never_came_is_named(trial):
    steps = refused(trial, "0.7")
    found = verdict(edited(trial, ARRIVALS, lambda a: None if (a["run"], a["step"]) in steps else a), CHECK)
    assert found.word is Word.INCONCLUSIVE
    assert "decimal seconds inside the deadline" in found.add


@pytest.mark.parametrize("file", [ARRIVALS, DECISIONS])
def test_withheld_evidence_is_inconclusive(trial, file):
    assert verdict(without(trial, file), CHECK).word is Word.INCONCLUSIVE


# --- each bound from both sides


def told_after(trial, ms):
    def late(row):
        mine = row["kind"] == "step" and row.get("reason") == "retry_after_beyond_deadline"
        return row | {"t_ns": row["t_ns"] + ms * 1_000_000} if mine else row

    return decisions(trial, late)


@pytest.mark.parametrize(("ms", "word"), [(249, Word.PASS), (251, Word.FAIL)])
def test_an_infeasible_one_is_told_within_a_quarter_of_a_second(trial, ms, word):
    assert verdict(told_after(trial, ms), CHECK).word is word


@pytest.mark.parametrize(("early_ms", "word"), [(5, Word.PASS), (6, Word.FAIL)])
def test_a_timer_may_be_five_milliseconds_early(trial, early_ms, word):
    moved = retries_moved(trial, refused(trial, "1"), (1000 - early_ms) * 1_000_000)
    assert verdict(moved, CHECK).word is word


@pytest.mark.parametrize(("late_ms", "word"), [(25, Word.PASS), (26, Word.FAIL)])
def test_a_retry_may_start_a_little_after_the_last_instant_at_which_it_can_end(trial, late_ms, word):
    """50 ms are expected of the dependency."""
    steps = refused(trial, "1")
    first = next(a for a in read(trial, ARRIVALS) if (a["run"], a["step"]) in steps and a["attempt"] == 1)
    to_ns = first["deadline_ns"] - 50_000_000 + late_ms * 1_000_000 - first["ended_ns"]
    alone = {(first["run"], first["step"])}
    assert verdict(retries_moved(trial, alone, to_ns), CHECK).word is word


# --- what is not asked for


def never_retried(trial, steps):
    return arrivals(trial, lambda a: None if (a["run"], a["step"]) in steps and a["attempt"] == 2 else a)


def of_steps(trial, steps, **values):
    def change(row):
        return row | values if (row.get("run"), row.get("step")) in steps else row

    return arrivals(decisions(trial, change), change)


def test_a_write_without_a_key_need_not_be_retried_and_one_with_a_key_must(trial):
    steps = refused(trial, "1")
    bare = never_retried(of_steps(trial, steps, operation="write"), steps)
    assert verdict(bare, CHECK).word is not Word.FAIL
    assert verdict(of_steps(bare, steps, idempotency_key="k"), CHECK).word is Word.FAIL


@pytest.mark.parametrize(("status", "word"), [(429, Word.FAIL), (503, Word.FAIL), (500, Word.PASS), (200, Word.PASS)])
def test_only_what_turns_a_caller_away_for_now_says_when_to_come_back(trial, status, word):
    """One of several, so that evidence is left."""
    one = {next(iter(sorted(refused(trial, "1"))))}
    answered = never_retried(trial, one)
    answered = arrivals(
        answered, lambda a: a | {"status": status} if (a["run"], a["step"]) in one and a["attempt"] == 1 else a
    )
    found = verdict(answered, CHECK)
    assert (found.word is Word.FAIL) is (word is Word.FAIL), found.sentence


@pytest.mark.parametrize(("left_ms", "broken"), [(49, True), (50, False)])
def test_a_retry_that_would_end_after_the_deadline_is_none_that_fits(trial, left_ms, broken):
    """The retry comes after a second; 50 ms are expected of it."""
    one = next(iter(sorted(refused(trial, "1"))))
    ended = next(a["ended_ns"] for a in read(trial, ARRIVALS) if (a["run"], a["step"]) == one and a["attempt"] == 1)

    def sooner(row):
        mine = row.get("run") == one[0] and row.get("deadline_ns")
        return row | {"deadline_ns": ended + (1000 + left_ms) * 1_000_000} if mine else row

    found = verdict(arrivals(decisions(trial, sooner), sooner), CHECK)
    broke = {finding.quantity for finding in found.findings if finding.word is Word.FAIL}
    assert ("were retried though the retry cannot end in time" in broke) is broken


def test_a_run_without_tokens_need_not_retry(trial):
    steps = refused(trial, "1")
    runs = {run for run, _ in steps}
    spent = decisions(
        never_retried(trial, steps),
        lambda row: row | {"remaining_retry_tokens": 0} if row.get("run") in runs and row["kind"] == "run" else row,
    )
    found = verdict(spent, CHECK)
    assert found.word is not Word.FAIL, found.sentence


@pytest.mark.parametrize("status", [400, 503])
def test_a_retry_that_failed_may_be_retried_once_more(trial, status):
    """Two at once are one too many; one after the other, when the first was refused, are each their own."""
    first = next(a for a in read(trial, ARRIVALS) if a.get("retry_after") == "1")
    mine = {(first["run"], first["step"])}

    def refuse(row):
        return row | {"status": status} if (row["run"], row["step"]) in mine and row["attempt"] == 2 else row

    third = retry_of(trial, "1", 1_700_000_000) | {"attempt": 3}
    assert verdict(more(arrivals(trial, refuse), ARRIVALS, [third]), CHECK).word is Word.PASS
    at_once = retry_of(trial, "1", 1_020_000_000) | {"attempt": 3}
    assert verdict(more(arrivals(trial, refuse), ARRIVALS, [at_once]), CHECK).word is Word.FAIL


@pytest.mark.parametrize(("status", "word"), [(429, Word.FAIL), (503, Word.PASS)])
def test_what_is_no_429_may_be_told_as_a_failure(trial, status, word):
    first = next(a for a in read(trial, ARRIVALS) if a.get("retry_after") == "3600")
    mine = {(first["run"], first["step"])}
    told = decisions(
        trial,
        lambda row: (
            row | {"outcome": "failed"}
            if (row.get("run"), row.get("step")) in mine and row.get("reason") == "retry_after_beyond_deadline"
            else row
        ),
    )
    answered = arrivals(told, lambda row: row | {"status": status} if (row["run"], row["step"]) in mine else row)
    assert verdict(answered, CHECK).word is word


def test_a_date_without_the_answers_own_is_not_judged_and_noted(trial):
    steps = dated(trial, "Thu, 01 Jan 2026 00:00:02")
    moved = retries_moved(trial, steps, 1_000_000)
    assert verdict(moved, CHECK).word is Word.FAIL
    undated = arrivals(
        moved, lambda a: {k: v for k, v in a.items() if k != "date"} if (a["run"], a["step"]) in steps else a
    )
    found = verdict(undated, CHECK)
    assert found.word is not Word.FAIL
    assert any("no Date of its own" in finding.note for finding in found.findings)


@pytest.mark.parametrize(("kept", "word"), [(3, Word.PASS), (2, Word.INCONCLUSIVE)])
def test_three_different_malformed_values_are_enough(trial, kept, word):
    forms = {a["retry_after"] for a in read(trial, ARRIVALS) if a.get("retry_after")}
    gone = {
        a for raw in sorted(raw for raw in forms if form_of(raw) == "malformed")[kept:] for a in refused(trial, raw)
    }
    found = verdict(arrivals(trial, lambda a: None if (a["run"], a["step"]) in gone else a), CHECK)
    assert found.word is word, found.sentence
    assert ("more malformed values" in found.add) is (word is Word.INCONCLUSIVE)
