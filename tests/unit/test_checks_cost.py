"""The checks of cost on edited evidence: which rows a verdict hangs on, and what thin evidence says."""

from __future__ import annotations

import pytest

from harness.checks.cost_rows import level_of
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.reader import read_trial
from harness.ledger.stalls import STALLS
from harness.profile.cost import Bucket
from tests.unit.capacity_trials import each, failed, judged, open_questions, trial, with_profile
from tests.unit.ledgers import manifest_edited, write_rows

BUCKET, RECONCILED, UNWOUND = "cost.bucket_per_tenant", "cost.reconciled", "cost.unwound"
SIZE, CORRIDOR = "cost.size_class", "cost.corridor"
FILE = {check: check.replace(".", "_") for check in (BUCKET, RECONCILED, UNWOUND, SIZE, CORRIDOR)}
S = 1_000_000_000


def on(check, tmp_path, **edits):
    return judged(FILE[check], check, tmp_path, **edits)


def of(tenant):
    return lambda row: row.get("tenant") == tenant


def test_a_bucket_is_replayed_from_what_was_used():
    bucket = Bucket.model_validate({"rate": "100/s", "burst": 1000})
    assert level_of(bucket, []) == (1000.0, 0)
    assert level_of(bucket, [(S, 600), (2 * S, 700)]) == (-200.0, 2 * S)
    assert level_of(bucket, [(2 * S, 700), (S, 600)]) == (-200.0, 2 * S)
    assert level_of(bucket, [(S, 600)], at_ns=3 * S)[0] == 600.0
    assert level_of(bucket, [(S, 600)], at_ns=0)[0] == 1000.0
    assert level_of(bucket, [(S, 600)], at_ns=99 * S)[0] == 1000.0


# --- cost.bucket_per_tenant


def test_tokens_that_arrive_beyond_a_bucket_fail_whatever_the_layer_says(tmp_path):
    verdict = on(BUCKET, tmp_path, arrivals=lambda rows: each(rows, of("north"), tokens=5000))
    assert "used beyond its bucket" in failed(verdict)
    assert "north: used" in verdict.sentence.lower()


def test_a_layer_without_decisions_is_judged_all_the_same(tmp_path):
    assert on(BUCKET, tmp_path, decisions=None).word is Word.PASS


def test_a_refusal_of_a_tenant_whose_bucket_is_full_fails(tmp_path):
    def refused(rows):
        opens = [row for row in rows if row["tenant"] == "north" and row["action"] == "open"]
        opens[3].update(outcome="throttled", reason="tokens", status=429)
        opens[3].pop("run_id")
        named.append(opens[3]["call"])

    named = []
    verdict = on(BUCKET, tmp_path, calls=refused)
    assert failed(verdict) >= {"were refused though their own bucket held enough"}
    assert [*verdict.witnesses] == named


def test_a_refusal_for_another_reason_is_not_its_matter(tmp_path):
    def refused(rows):
        opens = [row for row in rows if row["tenant"] == "north" and row["action"] == "open"]
        opens[3].update(outcome="throttled", reason="sessions", status=429)

    assert on(BUCKET, tmp_path, calls=refused).word is Word.PASS


def test_nobody_who_overspends_proves_nothing(tmp_path):
    verdict = on(BUCKET, tmp_path, calls=lambda rows: [r for r in rows if r["outcome"] == "served"])
    assert verdict.word is Word.INCONCLUSIVE
    assert "refused for its tokens" in open_questions(verdict)


# --- cost.reconciled


def settlement(rows, tenant, outcome="settled"):
    return next(row for row in rows if row.get("tenant") == tenant and row["outcome"] == outcome)


def test_a_settlement_at_another_amount_fails_and_so_does_its_balance(tmp_path):
    def cheaper(rows):
        row = settlement(rows, "drift")
        row.update(actual=row["actual"] - 700, balance=row["balance"] + 700)

    assert failed(on(RECONCILED, tmp_path, decisions=cheaper)) == {"were not of what arrived", "balance off"}


def test_a_run_that_is_settled_twice_late_or_never_fails(tmp_path):
    def twice(rows):
        return [*rows, settlement(rows, "drift")]

    def late(rows):
        settlement(rows, "cancelling")["t_ns"] += 3 * S

    def never(rows):
        rows.remove(settlement(rows, "crashing"))

    for edit, quantity in ((twice, "more than once"), (late, "late"), (never, "never settled")):
        place = tmp_path / edit.__name__
        place.mkdir()
        assert any(quantity in broken for broken in failed(on(RECONCILED, place, decisions=edit)))


def test_forecasts_that_stay_where_they_were_fail(tmp_path):
    def stuck(rows):
        each(rows, lambda r: r.get("tenant") == "drift" and r.get("kind") == "cost", forecast=400)

    assert failed(on(RECONCILED, tmp_path, decisions=stuck)) == {"error of the later forecasts, chat_turn"}


def test_without_settlements_or_arrivals_nothing_is_decided(tmp_path):
    assert on(RECONCILED, tmp_path, arrivals=None).word is Word.INCONCLUSIVE
    place = tmp_path / "decisions"
    place.mkdir()
    assert on(RECONCILED, place, decisions=None).word is Word.INCONCLUSIVE


# --- cost.unwound


def test_one_run_that_is_refused_after_all_fails(tmp_path):
    def refused(rows):
        row = next(r for r in rows if r["tenant"] == "probe" and r["action"] == "open")
        row.update(outcome="throttled", reason="sessions", status=429)

    verdict = on(UNWOUND, tmp_path, calls=refused)
    assert failed(verdict) == {"were refused though every pool should have been whole"}
    assert "probe: throttled, sessions" in verdict.sentence


def test_a_pool_that_was_still_in_use_proves_nothing(tmp_path):
    def refused(late_ns):
        def edit(rows):
            row = next(r for r in rows if r["tenant"] == "probe" and r["action"] == "open")
            row.update(outcome="throttled", reason="sessions", status=429)
            held = next(r for r in rows if r["tenant"] == "holder" and r["action"] == "finish")
            held["done_ns"] = row["due_ns"] + late_ns

        return edit

    assert on(UNWOUND, tmp_path, calls=refused(late_ns=1)).word is Word.INCONCLUSIVE
    place = tmp_path / "ended"
    place.mkdir()
    assert on(UNWOUND, place, calls=refused(late_ns=-1)).word is Word.FAIL


def test_a_last_run_that_ran_out_of_time_while_the_stub_stood_still_proves_nothing(tmp_path):
    def late(rows):
        row = next(r for r in rows if r["tenant"] == "probe" and r["action"] == "open")
        row.update(outcome="expired", done_ns=row["due_ns"] + 6 * S)
        row.pop("run_id")

    mine = trial(FILE[UNWOUND], tmp_path, calls=late)
    assert failed(judge_one(mine, UNWOUND, {})) == {"were refused though every pool should have been whole"}
    write_rows(mine.folder, [{"from_ns": 4 * S, "to_ns": 9 * S}], STALLS)
    assert judge_one(read_trial(mine.folder), UNWOUND, {}).word is Word.INCONCLUSIVE


def test_what_is_still_held_at_the_end_fails(tmp_path):
    mine = trial(FILE[UNWOUND], tmp_path)
    leaky = manifest_edited(mine, lambda m: m["ended"]["leftovers"].update(memory=3))
    assert failed(judge_one(leaky, UNWOUND, {})) == {"still held at the end"}


def test_few_refusals_or_last_runs_that_ask_for_little_prove_nothing(tmp_path):
    few = on(UNWOUND, tmp_path, calls=lambda rows: [r for r in rows if r.get("reason") != "memory"])
    assert {"refused at memory", "refused"} <= open_questions(few)
    place = tmp_path / "little"
    place.mkdir()
    little = on(UNWOUND, place, decisions=lambda rows: each(rows, of("writer"), memory=9, reserved=900))
    assert little.word is Word.INCONCLUSIVE


# --- cost.size_class


def test_short_runs_that_wait_as_long_as_large_ones_fail(tmp_path):
    def slow(rows):
        for row in rows:
            if row["tenant"] == "people" and row["action"] == "open":
                row["due_ns"] -= S
                row["sent_ns"] -= S

    verdict = on(SIZE, tmp_path, calls=slow)
    assert "wait" in failed(verdict)


def test_short_runs_without_a_session_fail_and_large_ones_must_get_some(tmp_path):
    def none(tenant):
        def edit(rows):
            for row in rows:
                if row["tenant"] == tenant and row["action"] == "open":
                    row.update(outcome="throttled", reason="sessions")
                    row.pop("run_id", None)

        return edit

    assert "without a session" in failed(on(SIZE, tmp_path, calls=none("people")))
    place = tmp_path / "large"
    place.mkdir()
    assert on(SIZE, place, calls=none("research")).word is Word.INCONCLUSIVE  # nobody waited: nothing to compare with


def test_a_wait_is_not_that_of_a_harness_that_stood_still(tmp_path):
    def slow(rows):
        for row in rows:
            if row["tenant"] == "people" and row["action"] == "open" and 2 * S <= row["due_ns"] < 2.5 * S:
                row["done_ns"] = 3 * S

    mine = trial(FILE[SIZE], tmp_path, calls=slow)
    assert "wait" in failed(judge_one(mine, SIZE, {}))
    write_rows(mine.folder, [{"from_ns": 2 * S, "to_ns": 3 * S}], STALLS)
    assert judge_one(read_trial(mine.folder), SIZE, {}).word is Word.PASS


def test_a_session_is_held_until_its_release_was_asked_for_however_late_that_was_answered(tmp_path):
    def answered_late(rows):
        for row in rows:
            if row["action"] == "finish":
                row["done_ns"] += S // 2

    def asked_late(rows):
        answered_late(rows)
        for row in rows:
            if row["action"] == "finish":
                row["sent_ns"] += S // 2

    assert failed(on(SIZE, tmp_path, calls=answered_late)) == set()
    place = tmp_path / "asked"
    place.mkdir()
    assert "held at once" in failed(on(SIZE, place, calls=asked_late))


# --- cost.corridor


def test_throttled_arrivals_are_above_and_old_work_is_below_and_both_may_be(tmp_path):
    def throttled(rows):
        for row in rows[::4]:
            row["status"] = 429

    def old(rows):
        for row in rows:
            if row["action"] == "open":
                row["due_ns"] = max(0, row["due_ns"] - S)

    for edits, expected in (
        ({"arrivals": throttled}, {"throttled"}),
        ({"calls": old}, {"age"}),
        ({"arrivals": throttled, "calls": old}, {"age", "throttled"}),
    ):
        place = tmp_path / "-".join(edits)
        place.mkdir()
        verdict = on(CORRIDOR, place, **edits)
        assert failed(verdict) == expected
        note = next(finding.note for finding in verdict.findings if finding.subject == "placed")
        assert note.startswith({1: "above" if "arrivals" in edits else "below", 2: "below and above"}[len(edits)])


def test_without_a_dependency_that_throttles_neither_side_can_be_told(tmp_path):
    mine = trial(FILE[CORRIDOR], tmp_path)
    free = with_profile(mine, lambda profile: profile["capacity"]["dependencies"]["model"].pop("quota"))
    verdict = judge_one(free, CORRIDOR, {})
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "a `quota` at a dependency")


@pytest.mark.parametrize("check", [BUCKET, RECONCILED, UNWOUND, SIZE, CORRIDOR])
def test_rows_of_any_shape_break_no_check(tmp_path, check):
    """A target may write what it likes."""

    def odd(rows):
        for row in rows[::3]:
            for key in ("tokens", "balance", "forecast", "actual", "run", "request", "reserved", "tenant"):
                row.pop(key, None)

    odd_trial = trial(FILE[check], tmp_path, decisions=odd, arrivals=odd)
    assert judge_one(read_trial(odd_trial.folder), check, {}).word is not Word.INVALID
