"""The checks of trees and floods on edited evidence: which rows a verdict hangs on, and what thin evidence says."""

from __future__ import annotations

import pytest

from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.reader import read_trial
from harness.ledger.stalls import STALLS
from tests.unit.capacity_trials import each, failed, judged, open_questions, trial, with_profile
from tests.unit.ledgers import write_rows

FILE = {
    "tree.bounded": "tree_bounded", "tree.delegate_priced": "tree_priced", "tree.inward_guard": "tree_guard",
    "flood.cheap": "flood_cheap", "flood.expensive": "flood_expensive",
}  # fmt: skip
BOUNDED, PRICED, GUARD, CHEAP, EXPENSIVE = FILE
S = 1_000_000_000


def on(check, tmp_path, params=None, **edits):
    return judged(FILE[check], check, tmp_path, params, **edits)


def of(tenant, **also):
    return lambda row: row.get("tenant") == tenant and all(row.get(key) == value for key, value in also.items())


@pytest.mark.parametrize("check", FILE)
def test_a_healthy_trial_passes_with_its_figures(check, tmp_path):
    verdict = on(check, tmp_path)
    assert verdict.word is Word.PASS, verdict.sentence
    assert verdict.samples > 0


@pytest.mark.parametrize("check", FILE)
def test_without_arrivals_nothing_is_said(check, tmp_path):
    verdict = on(check, tmp_path, arrivals=None)
    assert (verdict.word, bool(verdict.add)) == (Word.INCONCLUSIVE, True)


@pytest.mark.parametrize("check", [BOUNDED, PRICED, GUARD, EXPENSIVE])
def test_how_steps_ended_and_of_which_kind_a_run_is_is_the_layers_to_say(check, tmp_path):
    verdict = on(check, tmp_path, decisions=None)
    assert (verdict.word, bool(verdict.add)) == (Word.INCONCLUSIVE, True)


def test_a_flood_of_small_requests_shows_without_decisions(tmp_path):
    assert on(CHEAP, tmp_path, decisions=None).word is Word.PASS


# --- tree.bounded


def test_bytes_of_answers_that_were_handed_on_count_at_every_level(tmp_path):
    verdict = on(BOUNDED, tmp_path, arrivals=lambda rows: each(rows, of("hauler", tool="look"), bytes=9000))
    assert "bytes over the envelope" in failed(verdict)


def test_bytes_of_answers_that_were_cut_off_do_not(tmp_path):
    def cut(rows):
        served = {(row["run"], row["step"]) for row in rows if row.get("kind") == "step" and row["outcome"] == "served"}
        assert served

    verdict = on(BOUNDED, tmp_path, decisions=cut)
    assert verdict.word is Word.PASS


def test_one_branch_above_its_payload_fails(tmp_path):
    verdict = on(BOUNDED, tmp_path, arrivals=lambda rows: each(rows, of("packer", tool="look"), bytes=10_001))
    assert failed(verdict) == {"payload over the envelope"}


def test_a_sub_agent_that_was_opened_after_all_counts(tmp_path):
    def opened(rows):
        refused = [row for row in rows if row["tenant"] == "spreader" and row.get("reason") == "fan_out"]
        for place, row in enumerate(refused[:2]):
            row.update(outcome="served", run_id=f"x{place}", status=201)
            del row["reason"]

    verdict = on(BOUNDED, tmp_path, calls=opened)
    assert "fan_out over the envelope" in failed(verdict)


def test_a_tree_that_is_cut_short_without_a_reason_fails(tmp_path):
    def untyped(rows):
        for row in rows:
            if row["tenant"] == "digger" and row["outcome"] == "budget_exhausted":
                row["outcome"] = "failed"

    verdict = on(BOUNDED, tmp_path, calls=untyped)
    assert failed(verdict) == {"were cut short and not told why"}


def test_a_modest_tree_that_is_refused_fails(tmp_path):
    def refused(rows):
        last = next(row for row in rows if row["tenant"] == "wide" and row["action"] == "submit")
        last.update(outcome="budget_exhausted", reason="sessions")

    verdict = on(BOUNDED, tmp_path, calls=refused)
    assert failed(verdict) == {"were refused though they asked for no more than they may"}


def test_limits_that_nobody_reached_show_nothing(tmp_path):
    verdict = on(BOUNDED, tmp_path, {"trees": 7})
    assert verdict.word is Word.INCONCLUSIVE
    assert "ask for more depth than they may have" in open_questions(verdict)
    assert "`depth`" in verdict.add


# --- tree.delegate_priced


def test_calls_that_nobody_paid_for_fail(tmp_path):
    def more(rows):
        mine = next(row for row in rows if row["tenant"] == "caller")
        rows.extend({**mine, "step": f"b9.{place}"} for place in range(5))

    verdict = on(PRICED, tmp_path, arrivals=more)
    assert failed(verdict) == {"credits over the envelope"}
    assert "25 calls cost 25 credits" in verdict.sentence


def test_a_refusal_with_credits_left_fails(tmp_path):
    def fewer(rows):
        gone = next(row["run"] for row in rows if row["tenant"] == "caller")
        return [row for row in rows if row["run"] != gone or not row["step"].startswith("b0")]

    assert "were refused while they had the credits" in failed(on(PRICED, tmp_path, arrivals=fewer))


def test_one_price_for_both_cannot_be_told_apart(tmp_path):
    mine = trial(FILE[PRICED], tmp_path)
    mine = with_profile(mine, lambda profile: profile["capacity"]["envelope"].update(delegate_cost=1))
    assert judge_one(mine, PRICED, {}).word is Word.INCONCLUSIVE


# --- tree.inward_guard


def test_a_seventh_batch_of_six_fails(tmp_path):
    def more(rows):
        mine = next(row for row in rows if row["step"] == "b5.0")
        rows.append({**mine, "step": "b6.0"})

    verdict = on(GUARD, tmp_path, arrivals=more)
    assert "iterations over the cap" in failed(verdict)


@pytest.mark.parametrize(
    ("after_ms", "word"), [(40, Word.PASS), (80, Word.FAIL)], ids=["was_under_way", "began_when_spent"]
)
def test_a_guard_may_be_late_by_what_was_under_way(tmp_path, after_ms, word):
    def more(rows):
        mine = max((row for row in rows if row["tool"] == "spend" and row["run"] == first(rows)), key=ended)
        begun = mine["ended_ns"] + after_ms * 1_000_000
        rows.append({**mine, "step": "b9.0", "t_ns": begun, "started_ns": begun, "ended_ns": begun + 1})

    def first(rows):
        return next(row["run"] for row in rows if row["tool"] == "spend")

    def ended(row):
        return row["ended_ns"]

    verdict = on(GUARD, tmp_path, arrivals=more)
    assert verdict.word is word
    if word is Word.FAIL:
        assert "began calls beyond their token ceiling" in failed(verdict)


def test_a_tenant_whose_agents_drain_its_bucket_fails(tmp_path):
    mine = trial(FILE[GUARD], tmp_path)
    mine = with_profile(mine, lambda profile: profile["capacity"]["cost"]["tenants"]["north"].update(rate="1000/s"))
    assert "left of its bucket" in failed(judge_one(mine, GUARD, {}))


def test_a_tenant_without_a_bucket_says_nothing(tmp_path):
    mine = with_profile(trial(FILE[GUARD], tmp_path), lambda profile: profile["capacity"].pop("cost"))
    verdict = judge_one(mine, GUARD, {})
    assert (verdict.word, "capacity.cost" in verdict.add) == (Word.INCONCLUSIVE, True)


# --- floods


def lost(tenant, n):
    def edit(rows):
        mine = [row for row in rows if row["tenant"] == tenant and row["action"] == "submit" and row["due_ns"] > 2 * S]
        for row in mine[:n]:
            row.update(outcome="throttled", status=429)

    return edit


@pytest.mark.parametrize("check", [CHEAP, EXPENSIVE])
def test_requests_of_others_that_are_lost_fail(check, tmp_path):
    verdict = on(check, tmp_path, calls=lost("north", 3))
    assert failed(verdict) == {"requests not served"}
    assert "north" in verdict.sentence
    assert len(verdict.witnesses) == 3


@pytest.mark.parametrize("check", [CHEAP, EXPENSIVE])
def test_others_that_become_slower_fail(check, tmp_path):
    def slower(rows):
        for row in rows:
            if row["tenant"] not in ("nightly", "planner") and row["action"] == "submit" and row["due_ns"] > 1.1 * S:
                row["done_ns"] += 100_000_000

    assert failed(on(check, tmp_path, calls=slower)) == {"slower"}


@pytest.mark.parametrize(("check", "tenant"), [(CHEAP, "nightly"), (EXPENSIVE, "planner")])
def test_a_flood_beyond_its_own_bucket_fails(check, tenant, tmp_path):
    verdict = on(check, tmp_path, arrivals=lambda rows: each(rows, of(tenant), tokens=4000))
    assert "used beyond its bucket" in failed(verdict)


def test_a_flood_that_is_served_nothing_fails(tmp_path):
    verdict = on(CHEAP, tmp_path, arrivals=lambda rows: [row for row in rows if row["tenant"] != "nightly"])
    assert "served of what it paid for" in failed(verdict)


def test_a_few_requests_are_no_flood(tmp_path):
    assert on(CHEAP, tmp_path, {"requests": 10_000}).word is Word.INCONCLUSIVE
    assert on(EXPENSIVE, tmp_path, {"agents": 500}).word is Word.INCONCLUSIVE


def test_a_small_tree_that_is_not_let_through_fails(tmp_path):
    def refused(rows):
        mine = [row for row in rows if row["tenant"] == "team" and row["action"] == "open" and row.get("parent")]
        mine[0].update(outcome="throttled", reason="tokens")

    assert "with a few sub-agents were not let through whole" in failed(on(EXPENSIVE, tmp_path, calls=refused))


@pytest.mark.parametrize(("outcome", "word"), [("expired", Word.PASS), ("failed", Word.PASS), ("throttled", Word.FAIL)])
@pytest.mark.parametrize("check", [CHEAP, EXPENSIVE])
def test_what_ran_out_of_time_while_the_stub_stood_still_is_nobodys_loss(check, outcome, word, tmp_path):
    def late(rows):
        lost("north", 3)(rows)
        each(rows, of("north", status=429), outcome=outcome, done_ns=lambda row: row["due_ns"] + 1_200_000_000)

    mine = trial(FILE[check], tmp_path, calls=late)
    assert failed(judge_one(mine, check, {})) == {"requests not served"}
    write_rows(mine.folder, [{"from_ns": 2 * S, "to_ns": 3 * S + S // 2}], STALLS)
    assert judge_one(read_trial(mine.folder), check, {}).word is word


def test_a_small_stall_excuses_no_request_that_ran_out_of_time(tmp_path):
    def late(rows):
        lost("north", 3)(rows)
        each(rows, of("north", status=429), outcome="expired", done_ns=lambda row: row["due_ns"] + 1_200_000_000)

    mine = trial(FILE[CHEAP], tmp_path, calls=late)
    write_rows(mine.folder, [{"from_ns": 2 * S, "to_ns": 2 * S + S // 2}], STALLS)
    assert failed(judge_one(read_trial(mine.folder), CHEAP, {})) == {"requests not served"}
