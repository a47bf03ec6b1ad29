"""The audit of agent runs: a sound ledger passes, and each way of losing or inventing something is named."""

from __future__ import annotations

import pytest

from harness.checks.context import profile_of
from harness.ledger.audit import audit
from harness.ledger.reader import DECISIONS
from harness.matrix import trial_in_virtual_time
from tests.unit.ledgers import edited
from tests.unit.test_simulate_capacity import document

STEP = {"dependency": "customer"}


@pytest.fixture
def sound(tmp_path):
    """Six runs: two with sub-agents, one cancelled, one re-planning."""
    runs = [
        {"name": "two", "at": "0s", "count": 2, "batches": [[STEP], [STEP]], "children": [{"batches": [[STEP]]}]},
        {"name": "plain", "at": "500ms", "batches": [[STEP]]},
        {"name": "stopped", "at": "600ms", "batches": [[STEP], [STEP], [STEP]], "cancel_after": "150ms"},
        {
            "name": "greedy",
            "at": "1s",
            "envelope": {"attempts": 1},
            "batches": [[STEP, STEP]],
            "replans": {"batch": [STEP, STEP], "rounds": 2, "after": "10ms"},
        },
        # Its re-plans come after the trial's end, and are no less of it.
        {
            "name": "late",
            "at": "1990ms",
            "envelope": {"attempts": 1},
            "batches": [[STEP, STEP]],
            "replans": {"batch": [STEP, STEP], "after": "50ms"},
        },
    ]
    made = document()
    made["capacity"]["envelope"] = {"attempts": 50}
    made["tenants"] = {"A": {"runs": runs}}
    for run in made["tenants"]["A"]["runs"][:1]:
        run["children"][0]["envelope"] = {"attempts": 5}
    return trial_in_virtual_time(tmp_path, made)


def found(trial):
    return {(one.rule, one.count) for one in audit(trial, profile_of(trial)).contradictions}


def first(rows, action, **more):
    wanted = {"action": action, **more}
    return next(row for row in rows if all(row.get(key) == value for key, value in wanted.items()))


def test_a_sound_ledger_has_no_contradiction_and_no_note(sound):
    made = audit(sound, profile_of(sound))
    assert made.contradictions == ()
    assert made.notes == ()
    assert set(sound.calls.action.table) == {"open", "submit", "cancel", "finish"}


def test_a_call_that_left_no_row(sound):
    def lose(rows):
        rows.remove(first(rows, "finish"))

    assert ("no call is missing", 1) in found(edited(sound, lose))


def test_a_run_that_was_never_finished(sound):
    """As if its finish had been somebody else's."""

    def turn(rows):
        row = first(rows, "finish")
        row["action"] = "submit"

    assert ("runs come to their end", 1) in found(edited(sound, turn))


def test_a_run_that_was_finished_twice(sound):
    def twice(rows):
        one = first(rows, "finish")
        other = next(row for row in rows if row["action"] == "submit" and row["parent"] == one["parent"])
        other["action"] = "finish"

    assert ("runs end once", 1) in found(edited(sound, twice))


def test_a_call_of_a_run_that_was_not_opened(sound):
    def refuse(rows):
        row = first(rows, "open", run=first(rows, "finish")["run"])
        row.update(outcome="throttled", status=429)

    rules = {rule for rule, _ in found(edited(sound, refuse))}
    assert "no call without a cause" in rules


def test_a_call_whose_open_is_not_there(sound):
    def orphan(rows):
        first(rows, "submit")["parent"] = "0.999999"

    assert ("no call without a cause", 1) in found(edited(sound, orphan))


def test_a_call_that_names_a_submit_as_its_run(sound):
    def wrong(rows):
        first(rows, "finish")["parent"] = first(rows, "submit")["call"]

    assert ("no call without a cause", 1) in found(edited(sound, wrong))


def test_a_submit_of_another_run(sound):
    def swap(rows):
        first(rows, "submit")["run"] += 1

    assert ("no call without a cause", 1) in found(edited(sound, swap))


def test_a_submit_before_its_run_was_open(sound):
    def early(rows):
        row = first(rows, "submit", outcome="budget_exhausted")
        row["due_ns"] -= 1
        row["sent_ns"] -= 1

    assert ("no call without a cause", 1) in found(edited(sound, early))


def test_an_open_that_was_not_planned(sound):
    def invent(rows):
        row = first(rows, "open", parent="0.0")
        del row["parent"]

    assert ("as planned", 1) in found(edited(sound, invent))


def test_more_batches_than_the_profile_has(sound):
    def more(rows):
        extra = [dict(first(rows, "submit")) for _ in range(3)]
        for place, row in enumerate(extra):
            row["call"] = f"0.{len(rows) + place}"
        return rows + extra

    assert ("runs as the profile says", 1) in found(edited(sound, more))


def test_a_finish_that_claims_a_round(sound):
    def replanned(rows):
        first(rows, "finish")["round"] = 1

    assert ("rounds", 1) in found(edited(sound, replanned))


def test_a_row_without_an_action(sound):
    def plain(rows):
        del first(rows, "submit")["action"]

    assert ("actions", 1) in found(edited(sound, plain))


def test_an_original_after_the_end_is_not_of_the_trial_and_a_replan_there_is(sound):
    late = [row for row in range(len(sound.calls)) if sound.calls.due_ns[row] >= 2_000_000_000]
    assert late

    def later(rows):
        row = first(rows, "open")
        row.update(due_ns=2_000_000_000, sent_ns=2_000_000_000, done_ns=2_000_000_000)

    assert ("in the trial", 1) in found(edited(sound, later))


def test_a_submit_that_the_controller_never_decided(sound):
    def forget(rows):
        rows.remove(next(row for row in rows if row["kind"] == "batch"))

    assert found(edited(sound, forget, DECISIONS)) == {("ours were seen", 1)}


def test_an_open_that_the_controller_decided_twice(sound):
    def twice(rows):
        return [*rows, next(row for row in rows if row["kind"] == "run")]

    assert found(edited(sound, twice, DECISIONS)) == {("one decision a call", 1)}


def test_a_decision_about_a_request_of_nobody(sound):
    def stranger(rows):
        return [*rows, {**next(row for row in rows if row["kind"] == "batch"), "request": "7.7.1"}]

    assert found(edited(sound, stranger, DECISIONS)) == {("what the service saw is ours", 1)}


def test_a_layer_that_does_not_say_which_request_is_a_note(sound):
    def silent(rows):
        for row in rows:
            row.pop("request", None)

    made = audit(edited(sound, silent, DECISIONS), profile_of(sound))
    assert made.contradictions == ()
    assert made.notes == ("the capacity layer does not say which request a decision is about",)
