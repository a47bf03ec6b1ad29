"""Shares, identity, shuffle isolation, recovery, shadows: what each check says without evidence, and at its edges."""

from __future__ import annotations

import pytest

from harness import checks
from harness.checks.judge import judge_one
from harness.checks.shadow import paired
from harness.checks.verdict import Word
from harness.ledger.call import Call
from harness.ledger.reader import DECISIONS, read_trial
from harness.matrix import judge_in_virtual_time, trial_in_virtual_time
from harness.profile.loader import load
from harness.profile.model import Claims
from harness.shipped import VERIFICATION
from harness.workload.claims import claimed_by
from tests.conftest import WORKED_EXAMPLE, with_values
from tests.unit.ledgers import edited, rows_of, simulated, without_decisions

MAX_MIN, IDENTITY, ISOLATION = "fairness.max_min", "fairness.identity_from_credential", "fairness.shuffle_isolation"
RECOVERS, AGREES = "fairness.recovers", "fairness.shadow_agrees"
ALL = (MAX_MIN, IDENTITY, ISOLATION, RECOVERS, AGREES)
FAIR = {"policy": "fair_queues", "queue_per_tenant": 10}


def document(name, sets=()):
    return load(VERIFICATION / f"{name}.yaml", sets=sets, checks=checks.PARAMETERS).document


def verdict(name, check, defect=None, **values):
    return judge_in_virtual_time(with_values(document(name), values), defect, [check]).of(check)


@pytest.mark.parametrize("check", ALL)
def test_a_trial_of_nothing_of_the_kind_is_inconclusive_and_says_what_to_add(tmp_path, check):
    quiet = {"duration": "5s", "phases": {}, "tenants.D.rate": "1/s"}
    found = judge_one(simulated(tmp_path / "t", quiet), check, {})
    assert found.word is Word.INCONCLUSIVE
    assert found.add


@pytest.mark.parametrize("check", ALL)
def test_a_profile_of_agent_runs_is_none_of_their_business(check):
    found = judge_in_virtual_time(document("v09"), None, [check]).of(check)
    assert found.word is Word.INCONCLUSIVE


@pytest.mark.parametrize("scale", [0.5, 2.0])
@pytest.mark.parametrize(
    ("name", "check"),
    [("max_min", MAX_MIN), ("identity", IDENTITY), ("shuffle", ISOLATION), ("recovers", RECOVERS), ("shadow", AGREES)],
)
def test_verdicts_do_not_depend_on_the_time_scale(name, check, scale):
    assert judge_in_virtual_time(document(name), None, [check], time_scale=scale).of(check).word is Word.PASS


# --- max_min


def test_without_decisions_idle_workers_cannot_be_seen(tmp_path):
    trial = trial_in_virtual_time(tmp_path, document("max_min"))
    without_decisions(trial)
    found = judge_one(trial, MAX_MIN, {})
    assert found.word is Word.INCONCLUSIVE
    assert "decisions" in found.add


def test_the_weights_of_a_target_are_given():
    """Equal turns are right by equal weights, and wrong by the profile's."""
    params = {MAX_MIN: {"weights": {"gold": 1, "silver": 1}}}
    assert verdict("max_min", MAX_MIN, "weights_ignored", checks=[params]).word is Word.PASS
    assert verdict("max_min", MAX_MIN, checks=[params]).word is Word.FAIL


def test_a_backlog_of_a_few_windows_is_too_short():
    short = {"duration": "2500ms", "phases": {}, "tenants.late.rate": "1/s"}
    rate = ["80/s", {"from": "1s", "to": "2s", "rate": "300/s"}]
    found = verdict(
        "max_min", MAX_MIN, **short, **{f"tenants.{name}.rate": rate for name in ("gold", "silver", "bronze")}
    )
    assert found.word is Word.INCONCLUSIVE
    assert "windows" in found.sentence


def test_a_first_in_first_out_queue_is_not_max_min():
    fifo = {"service.admission": {"policy": "shared_fifo", "queue": 100}}
    assert verdict("max_min", MAX_MIN, **fifo).word is Word.FAIL


def unfair(tmp_path, defect="weights_ignored"):
    return trial_in_virtual_time(tmp_path, document("max_min"), defect)


def of(verdict, quantity):
    return [finding for finding in verdict.findings if finding.quantity == quantity]


def test_a_tenant_is_short_only_if_its_whole_interval_is_over_the_bound(tmp_path):
    trial = unfair(tmp_path)
    quiet = {"starved_pct": 99.9, "idle_pct": 99.0}
    worst = max(of(judge_one(trial, MAX_MIN, quiet), "short of its share"), key=lambda finding: finding.measured)
    words = {}
    for name, bound in (
        ("under", worst.low - 0.01),
        ("inside", worst.low),
        ("at", worst.high),
        ("over", worst.high + 0.01),
    ):
        found = judge_one(trial, MAX_MIN, {**quiet, "short_pct": bound})
        words[name] = next(f for f in of(found, "short of its share") if f.subject == worst.subject).word.value
        assert found.word.value == words[name]
        assert (found.witnesses != ()) is (words[name] == "FAIL")
    assert words == {"under": "FAIL", "inside": "INCONCLUSIVE", "at": "INCONCLUSIVE", "over": "PASS"}


def test_one_window_in_which_a_tenant_starved_is_enough(tmp_path):
    trial = unfair(tmp_path, None)
    worst = max(of(judge_one(trial, MAX_MIN, {}), "short in one window"), key=lambda finding: finding.measured)
    assert worst.measured > 0
    at, under = ({"starved_pct": bound} for bound in (worst.measured, worst.measured - 0.01))
    assert judge_one(trial, MAX_MIN, at).word is Word.PASS
    found = judge_one(trial, MAX_MIN, under)
    assert (found.word, found.witnesses != ()) == (Word.FAIL, True)
    assert found.sentence.startswith(f"{worst.subject} was short in one window by {worst.measured:.1f} %")


def test_workers_may_be_idle_for_so_much_of_their_time(tmp_path):
    trial = unfair(tmp_path, "hard_quota")
    quiet = {"starved_pct": 99.9, "short_pct": 99.0}
    (idle,) = of(judge_one(trial, MAX_MIN, quiet), "idle while calls wait")
    assert judge_one(trial, MAX_MIN, {**quiet, "idle_pct": idle.measured}).word is Word.PASS
    found = judge_one(trial, MAX_MIN, {**quiet, "idle_pct": idle.measured - 0.01})
    assert (found.word, found.witnesses != ()) == (Word.FAIL, True)
    assert found.sentence.startswith("Workers were idle for ")


def test_a_tenant_with_too_small_a_share_is_not_judged_by_it(tmp_path):
    trial = unfair(tmp_path, None)
    (smallest, *_) = sorted(of(judge_one(trial, MAX_MIN, {}), "short of its share"), key=lambda f: f.samples)
    for least, judged in ((smallest.samples, True), (smallest.samples + 1, False)):
        found = judge_one(trial, MAX_MIN, {"least_calls": least})
        assert (smallest.subject in {f.subject for f in of(found, "short of its share")}) is judged
    nobody = judge_one(trial, MAX_MIN, {"least_calls": 10**6})
    assert (nobody.word, nobody.sentence) == (Word.INCONCLUSIVE, "No tenant had a share large enough to be judged.")


# --- identity


def test_who_claims_to_be_others_is_charged_as_it_is(tmp_path):
    trial_in_virtual_time(tmp_path, document("identity"))
    assert {row["tenant"] for row in rows_of(tmp_path, DECISIONS)} == {"A", "B", "runaway"}


def test_honest_tenants_alone_prove_nothing():
    assert verdict("identity", IDENTITY, **{"tenants.runaway.claims": None}).word is Word.INCONCLUSIVE


def test_one_call_charged_to_another_is_enough(tmp_path):
    trial = trial_in_virtual_time(tmp_path, document("identity"))

    def charge_one(rows):
        row = next(row for row in rows if row["call"].startswith("2.") and row["outcome"] == "queued")
        row["tenant"] = "A"

    found = judge_one(edited(trial, charge_one, DECISIONS), IDENTITY, {})
    assert found.word is Word.FAIL
    assert found.witnesses[0].startswith("2.")


@pytest.mark.parametrize(("defect", "word"), [(None, Word.PASS), ("tenant_header_believed", Word.FAIL)])
def test_a_log_that_tells_only_how_calls_ended_will_do(tmp_path, defect, word):
    """As proxies write it: one line a request."""
    trial = trial_in_virtual_time(tmp_path, document("identity"), defect)
    ends = edited(trial, lambda rows: [r for r in rows if r["outcome"] not in ("queued", "started")], DECISIONS)
    assert judge_one(ends, IDENTITY, {}).word is word


def test_a_claimed_name_follows_from_the_call_alone():
    names = [claimed_by(Call("D", 3, seq, 0, 0, seq, None), Claims(values=3)) for seq in range(4)]
    assert names == ["D-0", "D-1", "D-2", "D-0"]


# --- shuffle isolation


def test_queues_and_hand_of_a_target_are_given():
    params = {ISOLATION: {"queues": 16, "hand": 1}}
    found = verdict("shuffle", ISOLATION, checks=[params])
    assert found.word is Word.PASS
    assert "hands of 1 out of 16" in found.sentence


def test_too_few_light_tenants_tell_nothing():
    few = document("shuffle", ["tenants.light.count=70", "service.admission.queue=25"])
    found = judge_in_virtual_time(few, None, [ISOLATION]).of(ISOLATION)
    assert found.word is Word.INCONCLUSIVE
    assert "as many light tenants" in found.add


def test_a_heavy_tenant_that_fills_nothing_is_none():
    rates = {f"tenants.heavy-{i}.rate": "5/s" for i in (1, 2, 3)}
    assert verdict("shuffle", ISOLATION, **rates).word is Word.INCONCLUSIVE


def test_floods_at_the_same_time_are_not_what_the_theory_is_of():
    rate = ["0/s", {"from": "900ms", "to": "1800ms", "rate": "650/s"}]
    found = verdict("shuffle", ISOLATION, **{"tenants.heavy-1.rate": rate, "tenants.heavy-2.rate": rate})
    assert found.word is Word.INCONCLUSIVE
    assert "same time" in found.sentence


def test_light_tenants_that_hurt_each_other_prove_nothing():
    found = verdict("shuffle", ISOLATION, **{"service.workers": 20})
    assert found.word is Word.INCONCLUSIVE
    assert "without any flood" in found.sentence


# --- recovers


def test_a_trial_that_ends_before_the_bound_says_how_long_it_must_be():
    found = verdict("recovers", RECOVERS, "replans_keep_overload_alive")
    assert found.word is Word.INCONCLUSIVE
    assert found.add.startswith("a trial of at least 8.")


def test_a_burst_that_nobody_notices_is_no_trigger():
    found = verdict("recovers", RECOVERS, **{"tenants.D.rate": "40/s"})
    assert found.word is Word.INCONCLUSIVE
    assert "none" in found.sentence


def test_more_offered_than_there_is_cannot_recover():
    found = verdict("recovers", RECOVERS, **{"service.workers": 12, "tenants.D.rate": "40/s", "patience": "60s"})
    assert found.word is Word.INCONCLUSIVE


def test_the_capacity_of_a_target_is_given():
    found = verdict("recovers", RECOVERS, checks=[{RECOVERS: {"capacity": "170/s", "at_least": "10ms"}}])
    assert found.word is Word.PASS
    assert "spare 10/s" in found.sentence


# --- shadow


def test_a_shadow_of_another_policy_needs_the_trial_in_which_it_is_switched_on(tmp_path):
    open_loop = {"tenants.D.replans": None}
    fifo = {"service.admission": {"policy": "shared_fifo", "queue": 30}}
    first = with_values(document("shadow"), open_loop | fifo)
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    before = trial_in_virtual_time(tmp_path / "before", first)
    trial_in_virtual_time(tmp_path / "after", with_values(document("shadow"), open_loop))
    alone = judge_one(before, AGREES, {})
    assert (alone.word, "other" in alone.add) == (Word.INCONCLUSIVE, True)
    both = judge_one(before, AGREES, {"other": "after"})
    assert both.word is Word.PASS
    assert both.measured == 0
    assert judge_one(before, AGREES, {"other": str(tmp_path / "before")}).word is Word.INCONCLUSIVE
    (tmp_path / "wrong").mkdir()
    trial_in_virtual_time(tmp_path / "wrong", with_values(document("shadow"), open_loop), "one_bound_for_all_queues")
    assert judge_one(before, AGREES, {"other": "wrong"}).word is Word.FAIL
    assert judge_one(before, AGREES, {"other": "nowhere"}).word is Word.INVALID


def test_other_arrivals_cannot_be_compared(tmp_path):
    for name, rate in (("a", "60/s"), ("b", "61/s")):
        (tmp_path / name).mkdir()
        trial_in_virtual_time(tmp_path / name, with_values(document("shadow"), {"tenants.A.rate": rate}))
    found = judge_one(read_trial(tmp_path / "a"), AGREES, {"other": "b"})
    assert found.word is Word.INCONCLUSIVE
    assert "other arrivals" in found.sentence


def test_nothing_refused_is_nothing_to_agree_on():
    assert verdict("shadow", AGREES, **{"tenants.D.rate": "10/s", "tenants.C.rate": "10/s"}).word is Word.INCONCLUSIVE


def test_a_paired_change_has_a_width_even_when_nothing_changed():
    assert paired(0, 0, 100, 2.0).high == pytest.approx(0.02)
    both = paired(30, 10, 400, 1.645)
    assert both.estimate == pytest.approx(0.05)
    assert both.low < 0.03 < both.estimate
    # Many calls that differ in both directions are noise, and wide.
    assert paired(100, 100, 400, 1.645).high > paired(1, 1, 400, 1.645).high


def test_the_worked_example_is_judged_as_it_is(tmp_path):
    """Of the worked example's variants only fair queues share fairly."""
    fifo, fair = (
        judge_in_virtual_time(with_values(WORKED_EXAMPLE, values), None, [MAX_MIN]).of(MAX_MIN).word
        for values in ({}, {"service.admission": FAIR})
    )
    assert (fifo, fair) == (Word.FAIL, Word.PASS)
