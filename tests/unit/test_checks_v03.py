"""v03.tenant_share: the protected tenant's callers, the flood's slots and queue, and who is charged."""

from __future__ import annotations

import pytest

from harness.checks.judge import judge_one
from harness.checks.v03_tenant_share import NAME
from harness.checks.verdict import Word
from tests.unit.capacity_trials import each, failed, judged, open_questions, runs_of, trial, with_profile, without_runs

MS = 1_000_000
BURST_NS = 3_000 * MS


def judge(tmp_path, **edits):
    return judged("v03", NAME, tmp_path, **edits)


def quiet(row):
    return row["tenant"] == "quiet" and row["action"] == "submit" and row["due_ns"] >= BURST_NS


def test_a_healthy_trial_passes(tmp_path):
    verdict = judge(tmp_path)
    assert verdict.word is Word.PASS
    assert verdict.sentence == (
        "Flood filled its own queue and slots; quiet kept served share, refusals and latency, and every call was "
        "charged to its credential."
    )


def test_one_queue_for_all_makes_the_quiet_tenant_wait(tmp_path):
    def slow(rows):
        each(rows, quiet, done_ns=lambda row: row["done_ns"] + 40 * MS)

    verdict = judge(tmp_path, calls=slow)
    assert failed(verdict) == {"mean latency up"}
    assert verdict.sentence == "Quiet: mean latency up by 40 ms (interval 40 to 40; allowed 25)."


@pytest.mark.parametrize(("outcome", "also"), [("throttled", {"refusals up"}), ("failed", set())])
def test_what_the_quiet_tenant_loses_fails(tmp_path, outcome, also):
    nth = iter(range(10_000))
    verdict = judge(
        tmp_path, calls=lambda rows: each(rows, lambda r: quiet(r) and next(nth) % 10 == 0, outcome=outcome)
    )
    assert failed(verdict) == {"served share down"} | also
    assert len(verdict.witnesses) == 20


def test_a_single_loss_cannot_be_told(tmp_path):
    once = iter([True])
    verdict = judge(tmp_path, calls=lambda rows: each(rows, lambda r: quiet(r) and next(once, False), outcome="failed"))
    assert verdict.word is Word.INCONCLUSIVE
    assert "a higher rate" in verdict.add or "scale rates" in verdict.add


def test_a_slot_that_is_kept_for_another_is_not_the_floods(tmp_path):
    run = runs_of("v03", "flood")[5]

    def more(rows):
        row = next(r for r in rows if r["run"] == run)
        return [*rows, {**row, "step": "b9.0", "t_ns": row["t_ns"] + 1, "ended_ns": row["ended_ns"] - 1}]

    verdict = judge(tmp_path, arrivals=more)
    assert failed(verdict) == {"calls in flight"}
    assert verdict.sentence == (
        "Flood at customer reads: 8 calls in flight where 7 may be: 7 of 14 are kept for others."
    )


def test_the_floods_queue_has_a_bound(tmp_path):
    """The tenant of each call taken for a new one: its queue has no end."""

    def endless(rows):
        made = list(rows)
        for row in rows:
            if row["kind"] == "step" and row["outcome"] == "throttled":
                row["t_ns"] += 500 * MS
                made.append({**row, "outcome": "queued", "t_ns": row["t_ns"] - 500 * MS})
        return made

    verdict = judge(tmp_path, decisions=endless)
    assert failed(verdict) == {"steps waiting"}
    assert "steps waited at once where its queue holds 60" in verdict.sentence


def test_a_limit_a_replica_is_twice_the_limit(tmp_path):
    runs = set(runs_of("v03", "flood"))

    def replicas(rows):
        return rows + [{**r, "step": f"x{r['step']}"} for r in rows if r["run"] in runs]

    assert {"calls in flight", "calls in flight, limit"} <= failed(judge(tmp_path, arrivals=replicas))


@pytest.mark.parametrize("named", ["quiet", "anonymous-17"])
def test_a_call_is_charged_to_the_credential_that_it_came_with(tmp_path, named):
    run = runs_of("v03", "flood")[0]
    verdict = judge(tmp_path, arrivals=lambda rows: each(rows, lambda r: r["run"] == run, tenant=named))
    assert "charged to another" in failed(verdict)
    assert f"calls were charged to {named}, not to the tenant whose credential they came with" in verdict.sentence


def test_without_a_flood_nothing_is_shown(tmp_path):
    verdict = judge(tmp_path, **without_runs(runs_of("v03", "flood")))
    assert verdict.word is Word.INCONCLUSIVE
    assert {"queued or shed", "shed, its queue full"} <= open_questions(verdict)


def test_too_few_calls_of_the_protected_tenant_are_inconclusive(tmp_path):
    verdict = judge(tmp_path, **without_runs(runs_of("v03", "work")[::2]))
    assert verdict.word is Word.INCONCLUSIVE
    assert "calls in the burst" in open_questions(verdict)


@pytest.mark.parametrize("gone", ["calm", "burst"])
def test_without_a_phase_there_is_nothing_to_compare(tmp_path, gone):
    mine = with_profile(trial("v03", tmp_path), lambda profile: profile["phases"].pop(gone))
    verdict = judge_one(mine, NAME, {})
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "`phases: {calm, burst}` and `ordinary: [...]`")


def test_without_arrivals_nothing_is_decided(tmp_path):
    verdict = judge(tmp_path, arrivals=None)
    assert verdict.word is Word.INCONCLUSIVE
    assert "--dependencies-only" in verdict.add


def test_a_share_of_no_slots_protects_nobody(tmp_path):
    def without(profile):
        profile["capacity"]["shares"]["quiet"]["slots"] = 0

    for place, edit in enumerate((without, lambda profile: profile["capacity"].pop("shares"))):
        verdict = judge_one(with_profile(trial("v03", tmp_path / str(place)), edit), NAME, {})
        assert "protected tenants with slots" in open_questions(verdict)
        assert "`shares:` for `ordinary`" in verdict.add or verdict.word is Word.FAIL


def test_a_run_of_nobody_known_is_charged_to_nobody(tmp_path):
    """Rows that do not name their tenant, or a run that no caller opened, accuse nobody."""
    run = runs_of("v03", "flood")[0]
    unnamed = judge(tmp_path / "unnamed", arrivals=lambda rows: each(rows, lambda r: r["run"] == run, tenant=None))
    assert unnamed.word is Word.PASS
    strange = {"run": "r9999", "tenant": "stranger", "step": "b0.0"}
    more = judge(tmp_path / "strange", arrivals=lambda rows: [*rows, {**rows[0], **strange}])
    assert "charged to another" not in failed(more)


def test_without_protected_tenants_it_says_what_to_add(tmp_path):
    mine = with_profile(trial("v03", tmp_path), lambda profile: profile.pop("ordinary"))
    verdict = judge_one(mine, NAME, {})
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "`phases: {calm, burst}` and `ordinary: [...]`")
