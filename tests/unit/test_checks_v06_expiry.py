"""v06.expiry: each defect's signature in the rows, its twins, thin and withheld evidence."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from tests.unit.verification_trials import (
    ARRIVALS,
    DECISIONS,
    arrivals,
    decisions,
    healthy,
    more,
    read,
    verdict,
    without,
)

CHECK = "v06.expiry"


@pytest.fixture
def trial(tmp_path):
    return healthy("v06", tmp_path)


def expired_steps(trial):
    return [row for row in read(trial, DECISIONS) if row["kind"] == "step" and row["outcome"] == "expired"]


def test_the_healthy_controller_passes(trial):
    found = verdict(trial, CHECK)
    assert found.word is Word.PASS
    assert found.sentence == (
        "45 steps were waiting when their deadline passed: none of them started, each was recorded `expired`, and what "
        "they had reserved was returned."
    )


def start(row, late_ns, **more_keys):
    """The arrival of an expired step that was started all the same, so long after its deadline."""
    at = row["deadline_ns"] + late_ns
    keys = ("dependency", "operation", "run", "step", "tenant", "deadline_ns")
    return {
        "t_ns": at,
        "started_ns": at,
        "ended_ns": at + 50_000_000,
        "status": 200,
        **{k: row[k] for k in keys},
        **more_keys,
    }


def test_a_start_after_the_deadline_fails_and_names_the_step(trial):
    late = expired_steps(trial)[0]
    found = verdict(more(trial, ARRIVALS, [start(late, 200_000_000)]), CHECK)
    assert found.word is Word.FAIL
    assert found.witnesses == (f"{late['run']}/{late['step']}",)
    assert "200 ms after it" in found.sentence


def test_a_deadline_lost_on_the_way_does_not_move_the_judge(trial):
    late = next(row for row in expired_steps(trial) if row["attempt"] > 0)
    forgotten = start(late, 300_000_000, attempt=2)
    del forgotten["deadline_ns"]
    found = verdict(more(trial, ARRIVALS, [forgotten]), CHECK)
    assert (found.word, found.witnesses) == (Word.FAIL, (f"{late['run']}/{late['step']}",))


def test_a_start_on_the_way_at_the_deadline_passes(trial):
    late = expired_steps(trial)[-1]
    assert verdict(more(trial, ARRIVALS, [start(late, 10_000_000)]), CHECK).word is Word.PASS


def test_a_read_back_after_the_deadline_only_asks(trial):
    late = expired_steps(trial)[-1]
    asked = start(late, 300_000_000, readback=True) | {"operation": "readback"}
    assert verdict(more(trial, ARRIVALS, [asked]), CHECK).word is Word.PASS


@pytest.mark.parametrize("outcome", ["throttled", "failed"])
def test_expired_work_recorded_as_something_else_fails(trial, outcome):
    found = verdict(
        decisions(trial, lambda row: row | {"outcome": outcome} if row["outcome"] == "expired" else row), CHECK
    )
    assert found.word is Word.FAIL
    assert f"as {outcome}, reason deadline" in found.sentence


def test_work_that_disappears_fails(trial):
    found = verdict(decisions(trial, lambda row: None if row["outcome"] == "expired" else row), CHECK)
    assert found.word is Word.FAIL
    assert "disappeared when their deadline passed" in found.sentence


def test_reservations_that_are_kept_fail(trial):
    concerned = {row["run"] for row in expired_steps(trial)}

    def keep(row):
        if row.get("run") in concerned and row["kind"] == "run" and row["outcome"] != "opened":
            return row | {"remaining_attempts": row["remaining_attempts"] - 1}
        return row

    found = verdict(decisions(trial, keep), CHECK)
    assert found.word is Word.FAIL
    assert "kept what expired work had reserved" in found.sentence


def test_a_run_with_more_time_than_it_asked_for_fails(trial):
    def longer(row):
        return row | {"deadline_ns": row["deadline_ns"] + 30_000_000_000} if row.get("deadline_ns") else row

    found = verdict(decisions(trial, longer), CHECK)
    assert found.word is Word.FAIL
    assert "were given more time than they asked for" in found.sentence


def test_a_run_whose_opening_is_not_told_hides_no_other(trial):
    first = next(row["run"] for row in read(trial, DECISIONS) if row["kind"] == "run")

    def longer(row):
        if row.get("run") == first and row["kind"] == "run" and row["outcome"] == "opened":
            return None
        return row | {"deadline_ns": row["deadline_ns"] + 30_000_000_000} if row.get("deadline_ns") else row

    assert "were given more time than they asked for" in verdict(decisions(trial, longer), CHECK).sentence


def test_thin_evidence_says_what_to_add(trial):
    few = {(row["run"], row["step"]) for row in expired_steps(trial)[:5]}
    spared = {(row["run"], row["step"]) for row in expired_steps(trial)} - few
    thin = decisions(trial, lambda row: None if (row.get("run"), row.get("step")) in spared else row)
    found = verdict(thin, CHECK)
    assert found.word is Word.INCONCLUSIVE
    assert "more work" in found.add


@pytest.mark.parametrize("file", [ARRIVALS, DECISIONS])
def test_withheld_evidence_is_inconclusive(trial, file):
    found = verdict(without(trial, file), CHECK)
    assert (found.word, found.witnesses) == (Word.INCONCLUSIVE, ())
    assert file in found.sentence


def test_nobody_served_after_a_wait_proves_nothing(trial):
    gone = arrivals(trial, lambda row: row)
    unserved = decisions(gone, lambda row: row | {"outcome": "throttled"} if row["outcome"] == "served" else row)
    assert verdict(unserved, CHECK).word is Word.INCONCLUSIVE


# --- each bound from both sides


@pytest.mark.parametrize(("late_ms", "word"), [(25, Word.PASS), (26, Word.FAIL)])
def test_the_way_to_a_dependency_takes_twenty_five_milliseconds_at_most(trial, late_ms, word):
    late = expired_steps(trial)[0]
    assert verdict(more(trial, ARRIVALS, [start(late, late_ms * 1_000_000)]), CHECK).word is word


def test_of_several_late_starts_of_a_step_the_latest_is_told(trial):
    late = expired_steps(trial)[0]
    starts = [start(late, ms * 1_000_000, attempt=n) for n, ms in ((1, 100), (2, 300), (3, 200))]
    assert "300 ms after it" in verdict(more(trial, ARRIVALS, starts), CHECK).sentence


@pytest.mark.parametrize(("more_ms", "broken"), [(25, False), (26, True)])
def test_a_deadline_may_be_a_little_longer_than_was_asked_for(trial, more_ms, broken):
    def longer(row):
        opened = row["kind"] == "run" and row["outcome"] == "opened"
        return row | {"deadline_ns": row["deadline_ns"] + more_ms * 1_000_000} if opened else row

    found = verdict(decisions(trial, longer), CHECK)
    assert ("were given more time than they asked for" in found.sentence) is broken


@pytest.mark.parametrize(("kept", "part"), [(9, "deadline passed while queued"), (10, "")])
def test_ten_steps_are_enough(trial, kept, part):
    spared = {(row["run"], row["step"]) for row in sorted(expired_steps(trial), key=lambda r: -r["attempt"])[kept:]}
    few = decisions(trial, lambda row: None if (row.get("run"), row.get("step")) in spared else row)
    found = verdict(arrivals(few, lambda a: None if (a["run"], a["step"]) in spared else a), CHECK)
    thin = {finding.quantity for finding in found.findings if finding.word is Word.INCONCLUSIVE}
    assert ("deadline passed while queued" in thin) is bool(part)


def test_work_that_was_never_put_back_is_named(trial):
    """Steps that had a first attempt before their deadline passed."""
    tried = {(row["run"], row["step"]) for row in expired_steps(trial) if row["attempt"]}
    assert tried
    fewer = decisions(trial, lambda row: None if (row.get("run"), row.get("step")) in tried else row)
    fewer = arrivals(fewer, lambda a: None if (a["run"], a["step"]) in tried else a)
    found = verdict(fewer, CHECK)
    assert found.word is Word.INCONCLUSIVE
    assert found.add == "steps whose first attempt fails just before the dependency fills up"
