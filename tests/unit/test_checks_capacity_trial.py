"""capacity.adaptive_bounded, trial.decisions_complete and trial.leak_free: signatures, thin and withheld evidence."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from tests.unit.ledgers import manifest_edited
from tests.unit.verification_trials import (
    ARRIVALS,
    CALLS,
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

ADAPTIVE, COMPLETE, LEAKS = "capacity.adaptive_bounded", "trial.decisions_complete", "trial.leak_free"
MS = 1_000_000


@pytest.fixture
def adaptive(tmp_path):
    return healthy("adaptive", tmp_path)


@pytest.fixture
def trial(tmp_path):
    return healthy("decisions", tmp_path)


def test_a_limit_within_its_bounds_passes(adaptive):
    found = verdict(adaptive, ADAPTIVE)
    assert found.word is Word.PASS, found.sentence
    assert found.sentence.endswith("never past them (customer from 3 to 8).")


@pytest.mark.parametrize(("at_bound", "shown", "words"), [(8, 9, "over 8"), (3, 2, "under 3")])
def test_a_limit_past_a_bound_fails(adaptive, at_bound, shown, words):
    told = decisions(
        adaptive, lambda r: r | {"limit": shown} if r.get("operation") == "read" and r.get("limit") == at_bound else r
    )
    found = verdict(told, ADAPTIVE)
    assert found.word is Word.FAIL
    assert f"showed a limit {words}" in found.sentence


def test_more_reads_in_flight_than_tested_fail_whatever_the_decisions_say(adaptive):
    first = read(adaptive, ARRIVALS)[100]
    extra = [first | {"run": f"x{i}", "ended_ns": first["t_ns"] + 80 * MS} for i in range(9)]
    found = verdict(more(adaptive, ARRIVALS, extra), ADAPTIVE)
    assert found.word is Word.FAIL
    assert "8 is the tested maximum" in found.sentence


def test_fewer_reads_than_the_reserve_while_steps_wait_fail(adaptive):
    """The decisions still show 3; the dependency saw one at a time."""
    slow = [a for a in read(adaptive, ARRIVALS) if 2_500 * MS < a["t_ns"] < 3_000 * MS]
    gone = {(a["run"], a["step"]) for a in slow}
    found = verdict(arrivals(adaptive, lambda a: None if (a["run"], a["step"]) in gone else a), ADAPTIVE)
    assert found.word is Word.FAIL
    assert "saw steps wait with fewer than 3 reads in flight" in found.sentence


def test_a_limit_that_never_moved_is_inconclusive(adaptive):
    still = decisions(
        adaptive, lambda r: None if r["kind"] == "limit" else r | {"limit": 5} if r.get("limit") is not None else r
    )
    found = verdict(still, ADAPTIVE)
    assert found.word is Word.INCONCLUSIVE
    assert "a fault that makes it slow" in found.add


def test_every_decision_of_the_healthy_controller_is_complete(trial):
    found = verdict(trial, COMPLETE)
    assert found.word is Word.PASS, found.sentence


def one(trial, kind, outcome):
    return next(r for r in read(trial, DECISIONS) if r["kind"] == kind and r["outcome"] == outcome)


@pytest.mark.parametrize("outcome", ["served", "throttled", "coalesced", "expired", "cancelled", "needs_person"])
def test_a_missing_end_fails(trial, outcome):
    lost = one(trial, "step", outcome)
    found = verdict(decisions(trial, lambda r: None if r == lost else r), COMPLETE)
    assert found.word is Word.FAIL
    assert found.witnesses


def test_a_step_that_vanished_altogether_fails(trial):
    """No event of it at all, and no arrival: only what was submitted tells."""
    lost = one(trial, "step", "throttled")
    gone = decisions(trial, lambda r: None if (r.get("run"), r.get("step")) == (lost["run"], lost["step"]) else r)
    found = verdict(gone, COMPLETE)
    assert found.word is Word.FAIL
    assert "have another number of ends than of steps" in found.sentence


def test_two_ends_fail(trial):
    twin = one(trial, "step", "throttled") | {"outcome": "failed", "t_ns": 3_000 * MS}
    found = verdict(more(trial, DECISIONS, [twin]), COMPLETE)
    assert "have more than one terminal decision" in found.sentence


@pytest.mark.parametrize(
    ("kind", "outcome"), [("step", "queued"), ("retry", "scheduled"), ("readback", "committed"), ("batch", "admitted")]
)
def test_an_event_written_twice_fails(trial, kind, outcome):
    found = verdict(more(trial, DECISIONS, [one(trial, kind, outcome)]), COMPLETE)
    assert found.word is Word.FAIL


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("step", "admitted"), ("retry", "scheduled"), ("readback", "committed"), ("batch", "admitted")],
)
def test_an_event_that_is_missing_fails(trial, kind, outcome):
    arrived = {(a["run"], a["step"]) for a in read(trial, ARRIVALS) if a["attempt"] > 1 or a.get("readback")}
    lost = next(
        r for r in read(trial, DECISIONS)
        if r["kind"] == kind and r["outcome"] == outcome and (kind != "retry" or (r["run"], r["step"]) in arrived)
    )  # fmt: skip
    assert verdict(decisions(trial, lambda r: None if r == lost else r), COMPLETE).word is Word.FAIL


@pytest.mark.parametrize("field", ["tenant", "queue_wait_ns", "remaining_attempts", "circuit", "user_status", "owner"])
def test_a_field_left_out_fails_and_is_named(trial, field):
    lost = one(trial, "step", "served")
    found = verdict(
        decisions(trial, lambda r: {k: v for k, v in r.items() if k != field} if r == lost else r), COMPLETE
    )
    assert found.word is Word.FAIL
    assert f"served without {field}" in found.sentence


def test_a_refusal_without_its_reason_fails(trial):
    lost = one(trial, "step", "throttled")
    found = verdict(
        decisions(trial, lambda r: {k: v for k, v in r.items() if k != "reason"} if r == lost else r), COMPLETE
    )
    assert "throttled without reason" in found.sentence


def test_a_circuit_that_skips_a_state_fails(trial):
    found = verdict(decisions(trial, lambda r: None if r["outcome"] == "half_open" else r), COMPLETE)
    assert "took a step that there is not" in found.sentence


def test_few_outcomes_are_thin(tmp_path):
    thin = manifest_edited(healthy("v06", tmp_path), lambda m: m["profile"].update(checks=[COMPLETE]))
    found = verdict(thin, COMPLETE)
    assert found.word is Word.INCONCLUSIVE, found.sentence
    assert "steps that end in more ways" in found.add


@pytest.mark.parametrize("check", [ADAPTIVE, COMPLETE])
@pytest.mark.parametrize("file", [ARRIVALS, DECISIONS])
def test_withheld_evidence_is_inconclusive(trial, check, file):
    assert verdict(without(trial, file), check).word is Word.INCONCLUSIVE


def test_nothing_left_over_passes(trial):
    found = verdict(trial, LEAKS)
    assert found.word is Word.PASS, found.sentence


def left(trial, **told):
    return manifest_edited(trial, lambda m: m["ended"].update(leftovers={**m["ended"]["leftovers"], **told}))


@pytest.mark.parametrize("told", [{"slots": 1}, {"sockets": 3}, {"billing": {"permits": 2}}])
def test_anything_left_over_fails_and_is_named(trial, told):
    found = verdict(left(trial, **told), LEAKS)
    assert found.word is Word.FAIL
    assert "still held when nothing was on its way" in found.sentence


def test_a_step_that_started_and_never_ended_is_a_leak_whatever_the_target_says(trial):
    lost = one(trial, "step", "served")
    found = verdict(decisions(trial, lambda r: None if r == lost else r), LEAKS)
    assert (found.word, found.witnesses) == (Word.FAIL, (f"{lost['run']}/{lost['step']}",))


def test_a_trial_cut_off_at_the_drain_limit_cannot_tell(trial):
    cut = edited(trial, CALLS, lambda c: c | {"outcome": "open"} if c["call"] == "0.0" else c)
    found = verdict(cut, LEAKS)
    assert found.word is Word.INCONCLUSIVE
    assert "drain" in found.add


def test_a_target_that_does_not_tell_is_inconclusive(trial):
    silent = manifest_edited(trial, lambda m: m["ended"].pop("leftovers"))
    assert verdict(silent, LEAKS).word is Word.INCONCLUSIVE
