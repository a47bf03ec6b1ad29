"""fairness.ordinary_unmoved on ledgers small enough to know the right verdict of."""

from __future__ import annotations

import numpy as np
import pytest

from harness.checks.judge import judge_one
from harness.checks.ordinary_unmoved import NAME
from harness.checks.verdict import Word
from tests.unit.ledgers import steady, written

CALM, BURST = (0, 40), (40, 80)


def calls(n_calm=400, n_burst=400, lost=0, wait_ms=1, **told):
    """Calm without a loss; in the burst, `lost` calls evenly refused, the others after a wait."""
    rows = steady(n_calm, *CALM, **told) + steady(n_burst, *BURST, **{"queue_wait_ns": wait_ms * 1_000_000, **told})
    for i in range(lost):
        row = rows[n_calm + i * n_burst // lost]
        row.update(outcome="throttled", status=429, done_ns=row["due_ns"])
        del row["queue_wait_ns"], row["service_ns"]
    return rows


def judged(tmp_path, tenants, params=None, **options):
    tmp_path.mkdir(exist_ok=True)
    return judge_one(written(tmp_path / "trial", tenants, **options), NAME, params or {})


def finding(verdict, subject, quantity):
    return next(f for f in verdict.findings if (f.subject, f.quantity) == (subject, quantity))


def test_nothing_lost_and_no_wait_passes_and_says_how_near(tmp_path):
    verdict = judged(tmp_path, {"A": calls(), "B": calls()})
    assert verdict.word is Word.PASS
    assert verdict.sentence == (
        "The burst moved no ordinary tenant: 2 judged one by one and together; nearest to its bound, A, "
        "served share down by 0.00 points (interval -0.69 to 0.67; allowed 1)."
    )
    assert len(verdict.findings) == 9
    assert verdict.witnesses == ()


def test_refusals_fail_with_witnesses(tmp_path):
    verdict = judged(tmp_path, {"A": calls(), "B": calls(lost=40)})
    assert verdict.word is Word.FAIL
    assert verdict.sentence.startswith("The burst moved B: served share down by 10.00 points (interval 7.")
    assert finding(verdict, "A", "served share down").word is Word.PASS
    assert finding(verdict, "B", "refusals up").word is Word.FAIL
    assert verdict.witnesses[:3] == ("1.400", "1.410", "1.420")
    assert len(verdict.witnesses) == 20


def test_a_longer_wait_fails_by_half_a_service_time(tmp_path):
    over = judged(tmp_path, {"A": calls(wait_ms=102)})
    assert (over.word, over.bound, over.unit) == (Word.FAIL, 100.0, "ms")
    assert over.sentence == "The burst moved A: mean wait up by 101 ms (interval 101 to 101; allowed 100)."
    under = judged(tmp_path / "under", {"A": calls(wait_ms=90)}) if (tmp_path / "under").mkdir() is None else None
    assert under.word is Word.PASS


def test_the_margin_of_the_wait_is_a_parameter(tmp_path):
    assert judged(tmp_path, {"A": calls(wait_ms=90)}, {"wait_up": "50ms"}).word is Word.FAIL


def test_getting_better_is_no_harm(tmp_path):
    rows = steady(400, *CALM, queue_wait_ns=90_000_000) + steady(400, *BURST)
    assert judged(tmp_path, {"A": rows}).word is Word.PASS


def test_one_loss_in_400_is_inconclusive_and_says_what_to_add(tmp_path):
    verdict = judged(tmp_path, {"A": calls(lost=1)})
    assert verdict.word is Word.INCONCLUSIVE
    assert verdict.sentence.startswith("Cannot tell whether the burst moved A: served share down by 0.25 points")
    assert verdict.add == (
        "if the change stays, 560 calls in the burst and 546 in calm would tell: scale rates and workers together by "
        "1.4, or lengthen calm and burst by as much"
    )


def test_abandoned_calls_waited_their_whole_patience(tmp_path):
    rows = calls()
    for row in rows[400::100]:
        row.update(outcome="abandoned", reason="patience", done_ns=row["due_ns"] + 1, queue_wait_ns=5)
    verdict = judged(tmp_path, {"A": rows}, {"served_down_pp": 50.0}, profile={"patience": "20s"})
    assert finding(verdict, "A", "mean wait up").measured == pytest.approx(200, rel=0.01)
    assert verdict.word is not Word.PASS


@pytest.mark.parametrize("outcome", ["failed", "open", "dropped"])
def test_whatever_is_not_served_counts_as_lost(tmp_path, outcome):
    rows = calls()
    for row in rows[400::10]:
        row.update(outcome=outcome)
    verdict = judged(tmp_path, {"A": rows})
    assert (verdict.word, finding(verdict, "A", "served share down").measured) == (Word.FAIL, 10)


def test_what_its_own_budget_held_back_is_not_the_services_doing(tmp_path):
    rows = calls(n_burst=800)
    for row in rows[400::2]:
        row.update(outcome="held_back", attempt=0)
    assert judged(tmp_path, {"A": rows}).word is Word.PASS


def test_replans_are_not_judged(tmp_path):
    rows = calls() + [
        {**row, "outcome": "throttled", "status": 429, "round": 1, "parent": "0.0"} for row in steady(400, *BURST)
    ]
    verdict = judged(tmp_path, {"A": rows})
    assert (verdict.word, verdict.samples) == (Word.PASS, 790)


@pytest.mark.parametrize(("warm_up", "left"), [("1s", 390), ("4s", 360), ("30s", 360), ("0s", 400)])
def test_a_cold_start_is_left_out_of_calm_but_never_more_than_a_tenth_of_it(tmp_path, warm_up, left):
    """400 calls in 40 s of calm, and 400 in the burst."""
    assert judged(tmp_path, {"A": calls()}, {"warm_up": warm_up}).samples == left + 400


def test_tenants_with_too_few_calls_are_listed_as_not_judged(tmp_path):
    verdict = judged(tmp_path, {"A": calls(), "B": calls(200, 200), "C": calls(3, 2), "D": []})
    assert verdict.word is Word.PASS
    assert verdict.sentence.endswith("(not judged, too few calls: B, C, D).")
    row = finding(verdict, "B", "served share down")
    assert row.word is Word.INCONCLUSIVE
    assert row.note == "not judged: 195 calls in calm and 200 in the burst; 50 and 268 are needed"


def test_too_few_calls_to_pass_may_be_enough_to_fail(tmp_path):
    verdict = judged(tmp_path, {"A": calls(), "B": calls(100, 100, lost=50)})
    assert verdict.word is Word.FAIL
    assert finding(verdict, "B", "served share down").word is Word.FAIL


def test_a_single_refusal_of_a_tiny_tenant_fails_nobody(tmp_path):
    """All together have lost 1 %, which is the margin."""
    assert judged(tmp_path, {"A": calls(), "B": calls(4, 4, lost=4)}).word is Word.INCONCLUSIVE


def test_none_that_can_be_judged_is_inconclusive_even_if_all_together_are_many(tmp_path):
    verdict = judged(tmp_path, {f"t{i}": calls(60, 60) for i in range(10)})
    assert verdict.word is Word.INCONCLUSIVE
    assert verdict.sentence == (
        "No ordinary tenant has enough calls to be judged (not judged, too few calls: t0, t1, t2, t3, t4 and 5 more)."
    )


def test_small_tenants_that_are_hurt_together_fail_pooled(tmp_path):
    verdict = judged(tmp_path, {f"t{i}": calls(60, 60, lost=6) for i in range(10)})
    assert (verdict.word, verdict.witnesses != ()) == (Word.FAIL, True)
    assert "moved all ordinary tenants" in verdict.sentence


def test_a_calm_that_is_itself_overloaded_passes_nobody(tmp_path):
    rows = calls()
    for row in rows[0:800:10]:
        row.update(outcome="throttled", status=429)
    verdict = judged(tmp_path, {"A": rows}, {"served_down_pp": 20.0, "refusals_up_pp": 20.0})
    assert verdict.word is Word.INCONCLUSIVE
    assert verdict.add.startswith("only 90.0% served in calm already")


def test_a_calm_that_waits_for_ages_passes_nobody(tmp_path):
    """Nothing is lost where the queue is long and everyone is patient; nor where calm is what the burst has left."""
    verdict = judged(tmp_path, {"A": calls(queue_wait_ns=9_000_000_000)})
    assert verdict.word is Word.INCONCLUSIVE
    assert verdict.add.startswith("a mean wait of 9000 ms in calm already")
    verdict = judged(tmp_path, {"A": calls(queue_wait_ns=9_000_000_000)}, {"calm_wait": 100})
    assert verdict.word is Word.PASS


def test_a_tiny_tenant_that_is_cut_off_fails_beside_a_large_one(tmp_path):
    """Pooled, its calls are too few to show."""
    verdict = judged(tmp_path, {"A": calls(8000, 8000), "B": calls(20, 20, lost=20)})
    assert (verdict.word, verdict.witnesses[:2]) == (Word.FAIL, ("1.20", "1.21"))
    assert verdict.sentence.startswith("The burst moved B: served share down by 100.00 points")


def test_a_few_losses_of_many_tiny_tenants_fail_none_of_them(tmp_path):
    tiny = {f"t{i}": calls(40, 40, lost=2 if i % 10 == 0 else 0) for i in range(50)}
    assert judged(tmp_path, {"A": calls(8000, 8000), **tiny}).word is Word.PASS


def test_chance_alone_fails_none_of_many_small_tenants(tmp_path):
    """Each loses 3 % in both windows. At 95 %, one or another of thirty would be blamed in one trial of three."""
    draws = np.random.default_rng(0)
    for trial in range(3):
        tenants = {f"t{i}": calls(100, 100) for i in range(30)}
        for row in (row for rows in tenants.values() for row in rows if draws.random() < 0.03):
            row.update(outcome="throttled", status=429, done_ns=row["due_ns"])
        verdict = judged(tmp_path / str(trial), tenants)
        assert verdict.word is Word.INCONCLUSIVE


@pytest.mark.parametrize(
    ("profile", "add"),
    [
        ({"phases": {}}, "give the profile `phases: {calm, burst}`"),
        ({"phases": {"burst": ["40s", "80s"]}}, "give the profile `phases: {calm, burst}`"),
        ({"ordinary": []}, "name those that must not be hurt under `ordinary:`"),
    ],
)
def test_what_is_missing_is_named(tmp_path, profile, add):
    verdict = judged(tmp_path, {"A": calls()}, profile=profile)
    assert (verdict.word, verdict.add) == (Word.INCONCLUSIVE, add)


def test_no_calls_at_all_is_inconclusive(tmp_path):
    assert judged(tmp_path, {"A": []}).word is Word.INCONCLUSIVE


def test_without_queue_waits_the_latency_from_due_is_judged(tmp_path):
    rows = calls(wait_ms=150)
    for row in rows:
        row["queue_wait_ns"] = -1
    verdict = judged(tmp_path, {"A": rows})
    assert verdict.word is Word.FAIL
    assert finding(verdict, "A", "mean wait up").note.startswith("latency from due")
    assert finding(verdict, "A", "mean wait up").measured == pytest.approx(149)


def test_without_queue_waits_and_service_times_there_is_no_margin_unless_given(tmp_path):
    rows = calls()
    for row in rows:
        del row["queue_wait_ns"], row["service_ns"]
    trial = written(tmp_path / "trial", {"A": rows})
    verdict = judge_one(trial, NAME, {})
    assert verdict.word is Word.INCONCLUSIVE
    assert "give `wait_up`" in verdict.add
    assert judge_one(trial, NAME, {"wait_up": "100ms"}).word is Word.PASS


def test_a_url_target_is_not_judged_by_the_service_of_the_profile(tmp_path):
    service = {"workers": 1, "service_time": "2s", "admission": {"policy": "shared_fifo", "queue": 1}}
    assert judged(tmp_path, {"A": calls(wait_ms=150)}, profile={"service": service}).word is Word.FAIL


def test_a_queue_that_the_service_does_not_own_up_to_never_passes(tmp_path):
    rows = calls()
    for row in rows[400:]:
        row["done_ns"] += 500_000_000
    verdict = judged(tmp_path, {"A": rows})
    assert verdict.word is Word.INCONCLUSIVE
    assert verdict.add == (
        "calls take longer than the queue wait that the service tells: it works more slowly, or has a queue that it "
        "does not see"
    )


def test_a_queue_that_is_told_as_service_time_never_passes(tmp_path):
    rows = steady(400, *CALM) + steady(400, *BURST, service_ns=1_700_000_000)
    verdict = judged(tmp_path, {"A": rows})
    assert (verdict.word, verdict.measured) == (Word.INCONCLUSIVE, pytest.approx(1500))
    for row in rows:
        row["service_ns"] = -1
    (tmp_path / "untold").mkdir()
    assert judged(tmp_path / "untold", {"A": rows}, {"wait_up": "100ms"}).word is Word.INCONCLUSIVE


def test_dearer_calls_of_the_profiles_own_are_no_harm(tmp_path):
    service = {"workers": 8, "service_time": "200ms", "admission": {"policy": "shared_fifo", "queue": 100}}
    rows = steady(400, *CALM) + steady(400, *BURST, service_ns=1_700_000_000)
    assert judged(tmp_path, {"A": rows}, profile={"service": service}, target="stub").word is Word.PASS


def test_a_service_time_that_the_callers_clock_contradicts_makes_no_margin(tmp_path):
    rows = steady(400, *CALM) + steady(400, *BURST, queue_wait_ns=1_500_000_000)
    for row in rows:
        row["service_ns"] = 100_000_000_000
    verdict = judged(tmp_path, {"A": rows})
    assert (verdict.word, verdict.bound) == (Word.FAIL, pytest.approx(100.5))


def test_a_few_calls_that_tell_a_service_time_do_not_speak_for_the_others(tmp_path):
    rows = steady(400, *CALM, service_ns=-1) + steady(400, *BURST, service_ns=-1)
    rows[0].update(service_ns=30_000_000_000, done_ns=rows[0]["due_ns"] + 30_000_000_000)
    verdict = judged(tmp_path, {"A": rows})
    assert (verdict.word, verdict.add.partition(",")[0]) == (Word.INCONCLUSIVE, "the service time is not known")


def test_waits_that_the_service_does_not_tell_are_not_taken_for_none(tmp_path):
    """A service that tells nearly all waits, and just not the long ones."""
    rows = calls(n_calm=4000, n_burst=4000)
    for row in rows[4000::100]:
        del row["queue_wait_ns"], row["service_ns"]
        row["done_ns"] += 20_000_000_000
    assert judged(tmp_path, {"A": rows}).word is Word.FAIL


def test_a_tenant_whose_waits_are_hardly_told_is_neither_passed_nor_blamed(tmp_path):
    rows = calls()
    for row in rows[400::3]:
        del row["queue_wait_ns"], row["service_ns"]
        row["done_ns"] += 5_000_000_000
    verdict = judged(tmp_path, {"A": rows, "B": calls(n_calm=40_000, n_burst=40_000)})
    assert verdict.word is Word.INCONCLUSIVE
    assert verdict.add.startswith("the service tells too few of its waits")


def test_a_cold_start_of_calm_is_left_out(tmp_path):
    rows = calls(wait_ms=102)
    for row in rows[:10]:
        row["queue_wait_ns"] = 30_000_000_000
    assert judged(tmp_path, {"A": rows}).word is Word.FAIL


def test_same_ledger_same_verdict(tmp_path):
    trial = written(tmp_path / "trial", {"A": calls(lost=7)})
    assert judge_one(trial, NAME, {}) == judge_one(trial, NAME, {})


@pytest.mark.parametrize(
    ("workers", "wait_ms", "word"),
    [(1, 150, "INCONCLUSIVE"), (2, 150, "INCONCLUSIVE"), (1, 350, "FAIL"), (2, 190, "FAIL"), (4, 103, "FAIL")],
)
def test_with_few_workers_a_fair_turn_alone_costs_more_than_the_margin_and_blames_nobody(
    tmp_path, workers, wait_ms, word
):
    admission = {"policy": "fair_queues", "queue_per_tenant": 9}
    service = {"workers": workers, "service_time": "200ms", "admission": admission}
    tenants = {"A": calls(wait_ms=wait_ms)}
    verdict = judged(tmp_path, tenants, profile={"service": service}, target="stub")
    assert verdict.word == word
    if word == "INCONCLUSIVE":
        assert verdict.add.endswith("ms: give `wait_up`, or more workers")
        assert (
            judged(tmp_path, tenants, {"wait_up": "100ms"}, profile={"service": service}, target="stub").word == "FAIL"
        )
