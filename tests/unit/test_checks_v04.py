"""v04.bulkheads: bystanders of a slow dependency, its own limit, and slots that come back."""

from __future__ import annotations

import pytest

from harness.checks.judge import judge_one
from harness.checks.v04_bulkheads import NAME
from harness.checks.verdict import Word
from tests.unit.capacity_trials import each, failed, judged, open_questions, runs_of, trial, with_profile, without_runs

MS = 1_000_000


def judge(tmp_path, **edits):
    return judged("v04", NAME, tmp_path, **edits)


def submits(tenant, from_ms, to_ms):
    return lambda r: r["tenant"] == tenant and r["action"] == "submit" and from_ms <= r["due_ns"] / MS < to_ms


def test_a_healthy_trial_passes_and_names_the_bystanders(tmp_path):
    verdict = judge(tmp_path)
    assert verdict.word is Word.PASS
    assert verdict.sentence == (
        "While billing reads slowed down, profiles, mails, payments kept served share, refusals, latency and slots; "
        "its own limit held, and its slots came back."
    )


@pytest.mark.parametrize("tenant", ["profiles", "mails", "payments"])
def test_a_bystander_that_is_refused_or_slowed_fails(tmp_path, tenant):
    nth = iter(range(10_000))
    mine = submits(tenant, 3_000, 6_000)
    refused = judge(
        tmp_path / "refused",
        calls=lambda rows: each(rows, lambda r: mine(r) and next(nth) % 8 == 0, outcome="throttled"),
    )
    assert failed(refused) == {"served share down", "refusals up"}
    slowed = judge(tmp_path / "slowed", calls=lambda rows: each(rows, mine, done_ns=lambda r: r["done_ns"] + 50 * MS))
    assert failed(slowed) == {"mean latency up"}
    assert slowed.sentence == f"{tenant.capitalize()}: mean latency up by 50 ms (interval 50 to 50; allowed 40)."


def test_harm_that_comes_after_the_burst_fails_too(tmp_path):
    """Slots under the ceiling leak away one by one."""
    nth = iter(range(10_000))
    mine = submits("mails", 7_000, 9_000)
    verdict = judge(
        tmp_path, calls=lambda rows: each(rows, lambda r: mine(r) and next(nth) % 5 == 0, outcome="throttled")
    )
    assert failed(verdict) == {"served share down in recovery", "refusals up in recovery"}


def test_slots_held_while_waiting_for_another_dependency_fail(tmp_path):
    """Arrivals do not show a slot that is held idle: the controller's own count does."""

    def held(rows):
        each(rows, lambda r: r["kind"] == "step" and r["outcome"] == "admitted" and r["dependency"] == "customer"
             and 3_000 <= r["t_ns"] / MS < 6_000, in_use=lambda r: r["in_use"] + 5)  # fmt: skip

    verdict = judge(tmp_path, decisions=held)
    assert failed(verdict) == {"slots in use up"}
    assert verdict.sentence.startswith("Customer reads: slots in use up by 5")


def test_few_slots_that_are_held_while_waiting_are_seen_by_themselves(tmp_path):
    """Not enough of them to move anybody's latency; one may be a connection that had to be opened anew."""

    def held(n):
        nth = iter(range(10_000))
        mine = lambda r: (  # noqa: E731
            r["kind"] == "step" and r["outcome"] == "admitted" and r["dependency"] == "customer"
            and r["tenant"] == "tickets" and next(nth) < n
        )  # fmt: skip
        edit = lambda rows: each(rows, mine, t_ns=lambda r: r["t_ns"] - 200 * MS)  # noqa: E731
        return judge(tmp_path / str(n), decisions=edit)

    assert held(1).word is Word.PASS
    verdict = held(2)
    assert failed(verdict) == {"slots held idle"}
    assert "2 steps of batches that call billing reads, too, held a slot elsewhere, with no call" in verdict.sentence
    assert len(verdict.witnesses) == 2


@pytest.mark.parametrize(("ms", "word"), [(150, Word.PASS), (151, Word.FAIL)])
def test_a_slot_may_be_held_idle_for_so_long(tmp_path, ms, word):
    nth = iter(range(10_000))

    def held(rows):
        each(rows, lambda r: r["kind"] == "step" and r["outcome"] == "admitted" and r["dependency"] == "customer"
             and r["tenant"] == "tickets" and next(nth) < 5, t_ns=lambda r: r["t_ns"] - ms * MS)  # fmt: skip

    assert judge(tmp_path, decisions=held).word is word


def test_the_slow_dependencys_own_limit_holds(tmp_path):
    run = runs_of("v04", "retrieve")[0]

    def more(rows):
        row = next(r for r in rows if r["run"] == run)
        times = {"t_ns": 4_000 * MS, "ended_ns": 4_100 * MS}
        return rows + [{**row, "step": f"b9.{i}", **times} for i in range(7)]

    verdict = judge(tmp_path, arrivals=more)
    assert "calls in flight, limit" in failed(verdict)
    assert "billing reads:" in verdict.sentence.lower()


def test_reads_and_writes_in_one_pool_exceed_the_limit_of_one(tmp_path):
    run = runs_of("v04", "pay")[0]

    def more(rows):
        row = next(r for r in rows if r["run"] == run)
        times = {"t_ns": 4_000 * MS, "ended_ns": 4_100 * MS}
        return rows + [{**row, "step": f"b19.{i}", **times} for i in range(13)]

    assert "calls in flight, limit" in failed(judge(tmp_path, arrivals=more))


def test_slots_of_timed_out_calls_that_never_come_back_fail(tmp_path):
    mine = submits("invoices", 7_000, 9_000)
    verdict = judge(tmp_path, calls=lambda rows: each(rows, mine, outcome="throttled"))
    assert failed(verdict) == {"served in recovery"}
    assert "the slots of calls that timed out did not come back" in verdict.sentence


def lost(tmp_path, share, from_ms, to_ms):
    mine, nth = submits("invoices", from_ms, to_ms), iter(range(10_000))

    def refuse(rows):
        each(rows, lambda r: mine(r) and next(nth) * 37 % 100 < share, outcome="throttled")

    return judge(tmp_path / f"{share}-{from_ms}", calls=refuse)


def test_a_slowed_dependency_has_half_a_second_to_come_back_and_may_then_lose_one_in_twenty(tmp_path):
    assert lost(tmp_path, 100, 7_000, 7_500).word is Word.PASS
    assert lost(tmp_path, 4, 7_500, 9_000).word is Word.PASS
    late = lost(tmp_path, 12, 7_500, 9_000)
    assert failed(late) == {"served in recovery"}
    assert "calls served after the slowness had ended, under 95%" in late.sentence
    assert late.witnesses


def test_calls_that_never_time_out_prove_nothing(tmp_path):
    def quick(rows):
        each(rows, lambda r: r["dependency"] == "billing" and r["operation"] == "read",
             ended_ns=lambda r: min(r["ended_ns"], r["t_ns"] + 300 * MS), status=200)  # fmt: skip

    verdict = judge(tmp_path, arrivals=quick)
    assert "calls timed out" in open_questions(verdict)
    assert "a timeout below the slowed service time" in verdict.add


@pytest.mark.parametrize("gone", ["calm", "burst"])
def test_without_a_phase_there_is_nothing_to_compare(tmp_path, gone):
    mine = with_profile(trial("v04", tmp_path), lambda profile: profile["phases"].pop(gone))
    verdict = judge_one(mine, NAME, {})
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "`phases: {calm, burst}`")


def test_without_arrivals_nothing_is_decided(tmp_path):
    verdict = judge(tmp_path, arrivals=None)
    assert verdict.word is Word.INCONCLUSIVE
    assert "--dependencies-only" in verdict.add


@pytest.mark.parametrize(("group", "part"), [("ticket", "to the slowed one and another"), ("look", "calls in calm")])
def test_what_was_not_there_to_be_seen_is_named(tmp_path, group, part):
    verdict = judge(tmp_path, **without_runs(runs_of("v04", group)))
    assert (verdict.word, part in open_questions(verdict)) == (Word.INCONCLUSIVE, True)


def test_a_dependency_that_nobody_watches_is_named(tmp_path):
    """The tenant of the mails works on billing reads, too: nobody is left who calls notification alone."""

    def busy(profile):
        step = {"dependency": "billing", "tool": "retrieve"}
        profile["tenants"]["mails"]["runs"][0]["batches"].append([step])

    verdict = judge_one(with_profile(trial("v04", tmp_path), busy), NAME, {})
    assert (verdict.word, open_questions(verdict)) == (Word.INCONCLUSIVE, {"dependencies with one"})
    assert verdict.add == "a tenant that calls only notification"


@pytest.mark.parametrize(
    "fault",
    [
        {
            "dependency": "customer",
            "kind": "error",
            "status": 500,
            "from": "3s",
            "to": "6s",
        },  # it fails, and is not slow
        {"dependency": "customer", "kind": "slow", "factor": 10, "from": "6s", "to": "7s"},  # after the burst
        {"dependency": "customer", "kind": "slow", "factor": 10, "from": "1s", "to": "3s"},  # before it
    ],
)
def test_only_what_slows_a_dependency_in_the_burst_makes_others_stand_by(tmp_path, fault):
    mine = with_profile(trial("v04", tmp_path), lambda profile: profile["faults"].append(fault))
    verdict = judge_one(mine, NAME, {})
    assert verdict.sentence.startswith("While billing reads slowed down, profiles, mails, payments kept")


def test_a_fault_that_never_ends_slows_the_burst(tmp_path):
    fault = {"dependency": "customer", "kind": "slow", "factor": 10, "operation": "write", "from": "5999ms"}
    mine = with_profile(trial("v04", tmp_path), lambda profile: profile.update(faults=[fault]))
    assert "customer writes" in " ".join(finding.subject for finding in judge_one(mine, NAME, {}).findings)


def test_without_a_fault_there_is_nothing_to_stand_by(tmp_path):
    mine = with_profile(trial("v04", tmp_path), lambda profile: profile.pop("faults"))
    verdict = judge_one(mine, NAME, {})
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, "`faults: [{kind: slow, factor: 10, ...}]`")


def test_without_a_recovery_the_slots_cannot_be_seen_to_come_back(tmp_path):
    mine = with_profile(trial("v04", tmp_path), lambda profile: profile["phases"].pop("recovery"))
    verdict = judge_one(mine, NAME, {})
    assert (verdict.word, open_questions(verdict)) == (Word.INCONCLUSIVE, {"phase"})
