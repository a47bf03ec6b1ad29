"""v02.foreground_first: latency as callers saw it, slots as the dependencies saw them."""

from __future__ import annotations

from functools import cache

import pytest

from harness.checks.judge import judge_one
from harness.checks.v02_foreground import NAME
from harness.checks.verdict import Word
from tests.unit.capacity_trials import (
    each,
    failed,
    healthy,
    judged,
    open_questions,
    runs_of,
    trial,
    with_profile,
    without_runs,
)
from tests.unit.ledgers import rows_of

MS = 1_000_000
BURST_NS = 4_000 * MS


def judge(tmp_path, params=None, **edits):
    return judged("v02", NAME, tmp_path, params, **edits)


@cache
def submitted(group):
    runs = set(runs_of("v02", group))
    return lambda row: row.get("run_id") in runs and row["action"] == "submit" and row["due_ns"] >= BURST_NS


def arrival(t_ms, ended_ms, run, **more):
    base = {"started_ns": t_ms * MS, "dependency": "customer", "operation": "read", "status": 200, "tenant": "triage"}
    return {**base, "t_ns": t_ms * MS, "ended_ns": ended_ms * MS, "run": run, "step": "b9.0", **more}


def test_a_healthy_trial_passes_and_says_by_how_much_it_moved(tmp_path):
    verdict = judge(tmp_path)
    assert verdict.word is Word.PASS
    assert verdict.sentence == (
        "Background work saturated its capacity, and the p95 of interactive calls moved by 0.0 ms; the reserve was "
        "lent, taken back, and its floor never touched."
    )
    assert (verdict.bound, verdict.unit) == (30, "ms")


def test_slower_answers_for_people_fail_with_the_slowest_as_witnesses(tmp_path):
    def slow(rows):
        each(rows, submitted("burst"), done_ns=lambda row: row["done_ns"] + 45 * MS)

    verdict = judge(tmp_path, calls=slow)
    assert failed(verdict) == {"p95 latency up"}
    assert verdict.sentence == "Interactive: p95 latency up by 45 ms (interval 45 to 45; allowed 30)."
    assert len(verdict.witnesses) == 20


def test_the_margin_is_a_parameter(tmp_path):
    def slow(rows):
        each(rows, submitted("burst"), done_ns=lambda row: row["done_ns"] + 45 * MS)

    assert judge(tmp_path, {"latency_up": "60ms"}, calls=slow).word is Word.PASS


def at_the_return(extra_ms):
    def slow(rows):
        each(rows, submitted("return"), done_ns=lambda row: row["done_ns"] + extra_ms * MS)

    return slow


def test_lent_slots_come_back_one_service_time_later_and_that_is_no_breach(tmp_path):
    assert judge(tmp_path, calls=at_the_return(55)).word is Word.PASS


def test_slots_that_come_back_much_later_fail(tmp_path):
    verdict = judge(tmp_path, calls=at_the_return(150))
    assert failed(verdict) == {"wait after the return"}
    assert "waited" in verdict.sentence
    late = [row["call"] for row in rows_of(healthy("v02")) if submitted("return")(row)]
    assert set(verdict.witnesses) == set(late)


def test_a_few_slow_calls_in_calm_do_not_excuse_a_slow_return(tmp_path):
    """They are held against calm's p95, not against the slowest that calm had."""
    calm, nth = set(runs_of("v02", "calm")), iter(range(10_000))

    def slow(rows):
        each(
            rows,
            lambda r: r.get("run_id") in calm and r["action"] == "submit" and next(nth) % 40 == 0,
            done_ns=lambda row: row["done_ns"] + 400 * MS,
        )
        at_the_return(150)(rows)

    assert "wait after the return" in failed(judge(tmp_path, calls=slow))


def test_too_few_served_per_second_fails(tmp_path):
    kept = iter(range(10_000))

    def fewer(rows):
        each(rows, lambda r: submitted("burst")(r) and next(kept) % 4 == 0, outcome="failed")

    verdict = judge(tmp_path, calls=fewer)
    assert failed(verdict) == {"served per second"}
    assert "under the floor of" in verdict.sentence
    assert judge(tmp_path / "stated", {"served": "300/s"}).word is Word.FAIL


def test_refused_people_fail(tmp_path):
    nth, refused = iter(range(10_000)), []

    def refuse(rows):
        each(rows, lambda r: submitted("burst")(r) and next(nth) % 20 == 0, outcome="throttled")
        refused.extend(row["call"] for row in rows if row["outcome"] == "throttled")

    verdict = judge(tmp_path, calls=refuse)
    assert "refusals up" in failed(verdict)
    assert verdict.witnesses
    assert set(verdict.witnesses) <= set(refused)


def test_a_person_shed_while_background_work_waits_fails(tmp_path):
    run = runs_of("v02", "burst")[3]

    def shed(rows):
        each(rows, lambda r: r.get("run") == run and r.get("step") == "b4.0" and r["outcome"] == "served",
             outcome="throttled", reason="queue_full")  # fmt: skip

    verdict = judge(tmp_path, decisions=shed)
    assert (failed(verdict), verdict.witnesses) == ({"shed before background"}, (f"{run}/b4.0",))


def test_a_person_whose_own_tenant_has_filled_its_queue_is_not_shed_for_background_work(tmp_path):
    run = runs_of("v02", "burst")[3]

    def shed(rows):
        each(rows, lambda r: r.get("run") == run and r.get("step") == "b4.0" and r["outcome"] == "served",
             outcome="throttled", reason="tenant_queue_full")  # fmt: skip

    assert "shed before background" not in failed(judge(tmp_path, decisions=shed))


def test_the_floor_is_never_lent(tmp_path):
    """Three more background calls in the pause: nine are there already, twelve is the limit."""
    run = runs_of("v02", "steady")[0]
    more = [arrival(3_800, 3_850, run, step=f"b9.{i}") for i in range(3)]
    verdict = judge(tmp_path, arrivals=lambda rows: rows + more)
    assert {"background in flight"} == failed(verdict)
    assert "customer reads: 12 background calls in flight where 9 may be: 3 of 12 slots are never lent" in (
        verdict.sentence.lower()
    )


def test_lent_slots_that_are_not_taken_back_fail(tmp_path):
    """Background calls that begin in the middle of the burst, in slots of people who keep asking."""
    run = runs_of("v02", "steady")[0]
    more = [arrival(5_000 + 30 * i, 5_028 + 30 * i, run, step=f"b9.{i}.{k}") for i in range(20) for k in range(3)]
    verdict = judge(tmp_path, arrivals=lambda rows: rows + more)
    assert "background in a reserve that is asked for" in failed(verdict)
    assert "started in slots of a class that had just asked: not taken back" in verdict.sentence


@pytest.mark.parametrize("tenant", ["people", "approvals"])
def test_background_that_starts_while_people_wait_below_their_reserve_fails(tmp_path, tenant):
    mine = {row["run_id"] for row in rows_of(healthy("v02")) if row["tenant"] == tenant and row.get("run_id")}
    person, other = next(run for run in runs_of("v02", "burst") if run in mine), runs_of("v02", "steady")[0]

    def waits(rows):
        """The first person's third question is queued for 40 ms, while four of five slots are free."""
        admitted = next(r for r in rows if r.get("run") == person and r.get("step") == "b2.0")
        return [*rows, {**admitted, "outcome": "queued", "t_ns": admitted["t_ns"] - 40 * MS}]

    at_ms = next(
        row["t_ns"] for row in _arrivals() if row["run"] == person and row["step"] == "b2.0"
    ) // MS - 20  # fmt: skip
    verdict = judge(tmp_path, decisions=waits, arrivals=lambda rows: [*rows, arrival(at_ms, at_ms + 1, other)])
    assert "background started first" in failed(verdict)


def _arrivals():
    return rows_of(healthy("v02"), "arrivals.jsonl")


@pytest.mark.parametrize(("dependency", "what"), [("customer", "limit"), ("nowhere", "ceiling")])
def test_a_reserve_is_not_honoured_by_going_over_the_limit_or_the_ceiling(tmp_path, dependency, what):
    run = runs_of("v02", "burst")[0]
    more = [arrival(4_001, 4_020, run, step=f"b9.{i}", dependency=dependency, tenant="people") for i in range(12)]
    verdict = judge(tmp_path, arrivals=lambda rows: rows + more)
    assert f"calls in flight, {what}" in failed(verdict)


def test_too_few_calls_for_a_p95_are_inconclusive(tmp_path):
    runs = set(runs_of("v02", "calm")[::3])
    verdict = judge(tmp_path, calls=lambda rows: [r for r in rows if r.get("run_id") not in runs])
    assert verdict.word is Word.INCONCLUSIVE
    assert "p95 latency" in open_questions(verdict)
    assert "interactive runs at a higher rate" in verdict.add


def test_background_that_never_saturates_proves_nothing(tmp_path):
    edits = without_runs(runs_of("v02", "backlog", "steady", "reindex"))
    left = edits["decisions"]

    def without_background(rows):
        kept = left(rows)
        each(kept, lambda row: "in_use" in row, in_use=3, total_in_use=3)
        return kept

    verdict = judge(tmp_path, **{**edits, "decisions": without_background})
    assert verdict.word is Word.INCONCLUSIVE
    assert {"queued or shed", "full", "reached in the burst", "lent"} <= open_questions(verdict)


@pytest.mark.parametrize("gone", [("calm", "burst"), ("calm",), ("burst",)])
def test_without_phases_there_is_nothing_to_compare(tmp_path, gone):
    def less(profile):
        profile["phases"] = {name: span for name, span in profile["phases"].items() if name not in gone}

    mine = with_profile(trial("v02", tmp_path), less)
    verdict = judge_one(mine, NAME, {})
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "`phases: {calm, burst}`")


def test_without_arrivals_nothing_is_decided(tmp_path):
    verdict = judge(tmp_path, arrivals=None)
    assert verdict.word is Word.INCONCLUSIVE
    assert "--dependencies-only" in verdict.add
