"""What a profile will do, in sentences and figures (snapshots and sums done by hand)."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from harness.checks.ordinary_unmoved import Params
from harness.measure.intervals import lossless_needs, z_of
from harness.profile.demand import amplification, calls_within, most_calls, peak_rate_per_s
from harness.profile.describe import describe, stub_refusal, worst_case_rate_per_s
from harness.profile.evidence_describe import calls_to_pass
from harness.profile.loader import from_document, load

WORKED = Path(__file__).parents[2] / "profiles" / "worked_example.yaml"

SAID = """\
worked-example: 2m, 4 tenants, of whom A, B and C must not be hurt.
calm (0s to 30s): 32/s offered against a capacity of 40/s (service time 200ms): fits. A, B, C and D 8/s each.
burst (30s to 70s): 64/s offered against a capacity of 40/s (service time 200ms): overload, 1.6 times the capacity. \
A, B and C 8/s each; D 40/s.
recovery (70s to 2m): 32/s offered against a capacity of 40/s (service time 200ms): fits. A, B, C and D 8/s each.
Callers wait 2s for a call to start, then abandon it.
D: a refused or abandoned call becomes 2 new calls 500ms later, for at most 3 rounds: one call can become 15.
Original calls: 5,120 in all, at most 64/s.
Worst case, every call refused: 624/s, and 36,480 calls in all.
fairness.ordinary_unmoved: A, B and C have 320 calls each in the burst: enough to pass at a 1-point margin, not enough \
to fail a 2 % loss reliably (about 2,000 calls; scale rates and workers together x7); p95 may gate.
fairness.ordinary_unmoved: pooled, they have 960 calls in the burst: enough to pass at a 1-point margin, not enough to \
fail a 2 % loss reliably (about 2,000 calls; scale rates and workers together x3); p95 may gate.
One process can send that on time (up to 5,000/s with a core of its own).
The bundled stub can be trusted with that here (up to 2,500/s on 2 cores)."""


def profile(tenants, **more):
    document = {"name": "a", "duration": "100s", "tenants": tenants, **more}
    return from_document(document).profile


def test_the_worked_example_is_described_in_sentences():
    assert "\n".join(describe(load(WORKED).profile, cores=2).sentences) == SAID


def test_the_worked_example_in_figures():
    described = describe(load(WORKED).profile, cores=2)
    assert [(p.phase, p.offered_per_s, p.capacity_per_s) for p in described.phases] == [
        ("calm", 32, (40, 40)),
        ("burst", 64, (40, 40)),
        ("recovery", 32, (40, 40)),
    ]
    assert described.phases[1].calls == {"A": 320, "B": 320, "C": 320, "D": 1600}
    assert (described.peak_rate_per_s, described.worst_case_rate_per_s) == (64, 40 * (1 + 2 + 4 + 8) + 24)
    assert (described.original_calls, described.most_calls) == (5120, 2880 + 2240 * 15)


def test_a_scaled_trial_keeps_its_counts_and_fits_the_stub_just():
    fair = describe(load(WORKED, variant="fair_queues", time_scale=0.25).profile, cores=2)
    assert fair.worst_case_rate_per_s == 2496
    assert fair.original_calls == 5120
    assert fair.stub_refusal is None


def test_the_stub_is_refused_what_it_cannot_be_trusted_with():
    fast = load(WORKED, time_scale=0.2).profile
    assert stub_refusal(fast, 2) == (
        "the worst case is 3,120 calls/s, and the bundled stub is trusted up to 2,500/s on 2 cores; slow the trial "
        "down (--time-scale 1.25 times as large), cut the rates or the re-plans' rounds, give the tenant a budget, or "
        "simulate it (overload simulate)"
    )
    assert stub_refusal(fast, 4) is None
    assert stub_refusal(load(WORKED, time_scale=0.25).profile, 2) is None
    assert stub_refusal(load(WORKED, time_scale=0.2, variant="no_replans").profile, 2) is None
    assert describe(fast, cores=2).sentences[-1].startswith("Not on the bundled stub here: the worst case is 3,120")


@pytest.mark.parametrize(
    ("replans", "becomes"),
    [(None, 1), ((0, 3), 1), ((2, 0), 1), ((1, 3), 4), ((2, 3), 15), ((3, 2), 13)],
)
def test_one_call_can_become(replans, becomes):
    rule = replans and {"calls": replans[0], "after": "1s", "rounds": replans[1]}
    assert amplification(profile({"A": {"rate": "1/s", "replans": rule}}).tenants["A"]) == becomes


AGENT = {"rate": "10/s", "replans": {"calls": 2, "after": "1s", "rounds": 2}}


@pytest.mark.parametrize(
    ("budget", "patience", "worst", "calls"),
    [
        (None, None, 70, 7000),
        ({"rate": "5/s", "burst": 20}, None, 25, 20 + 500),
        ({"rate": "100/s", "burst": 20}, None, 70, 7000),
        # A run lives 2 rounds of (1 s + 1 s) after its original call: 2 tokens at once and 4 more in 4 s.
        ({"rate": "1/s", "burst": 2, "scope": "run"}, "1s", 60, 6000),
        ({"rate": "1/s", "burst": 2, "scope": "run"}, None, 70, 7000),
    ],
)
def test_a_budget_bounds_the_worst_case(budget, patience, worst, calls):
    one = profile({"A": {**AGENT, "budget": budget, "patience": patience}})
    assert worst_case_rate_per_s(one) == worst
    assert most_calls(one) == calls


def test_bursts_at_different_times_do_not_add_up():
    steps = [["0/s", {"from": f"{i}0s", "to": f"{i + 1}0s", "rate": "10/s"}] for i in range(3)]
    apart = profile({f"T{i}": {"rate": rate} for i, rate in enumerate(steps)})
    assert peak_rate_per_s(apart) == worst_case_rate_per_s(apart) == 10


def test_replans_of_a_burst_add_to_what_comes_after_it_while_they_live():
    rate = ["1/s", {"from": "10s", "to": "20s", "rate": "10/s"}]
    rule = {"calls": 1, "after": "1s", "rounds": 1}
    early = {"rate": rate, "replans": rule}
    late = {"rate": ["0/s", {"from": "22s", "to": "30s", "rate": "100/s"}]}
    assert worst_case_rate_per_s(profile({"A": early, "B": late}, patience="500ms")) == 100 + 2
    assert worst_case_rate_per_s(profile({"A": early, "B": late}, patience="2s")) == 100 + 1 + 10
    assert worst_case_rate_per_s(profile({"A": early, "B": late})) == 100 + 20


def test_recorded_tenants_count_as_their_reader_says():
    one = profile({"A": {"rate": "1/s"}, "R": {"recorded": {"file": "x"}, "replans": AGENT["replans"]}})
    assert worst_case_rate_per_s(one) == 1
    assert worst_case_rate_per_s(one, {"R": Fraction(5)}) == 1 + 35
    assert any("R calls as recorded" in sentence for sentence in describe(one).sentences)
    assert calls_within(one, one.tenants["R"]) is None


def sentences(check, tenants, **more):
    return [
        s for s in describe(profile(tenants, checks=[check], **more)).sentences if s.startswith("fair") or "agent." in s
    ]


PHASES = {"calm": ["0s", "30s"], "burst": ["30s", "70s"]}


@pytest.mark.parametrize(
    ("rate", "says"),
    [
        (
            "1/s",
            "A has 40 calls in the burst: too few to pass at a 1-point margin even without a loss (268 needed; "
            "scale rates and workers together x7); no percentile gates.",
        ),
        (
            "8/s",
            "A has 320 calls in the burst: enough to pass at a 1-point margin, not enough to fail a 2 % loss "
            "reliably (about 2,000 calls; scale rates and workers together x7); p95 may gate.",
        ),
        (
            "80/s",
            "A has 3,200 calls in the burst: enough to pass at a 1-point margin, and to fail a 2 % loss reliably; "
            "p99 may gate.",
        ),
    ],
)
def test_the_evidence_for_unmoved_tenants_is_sized(rate, says):
    shown = sentences("fairness.ordinary_unmoved", {"A": {"rate": rate}}, ordinary=["A"], phases=PHASES)
    assert shown == [f"fairness.ordinary_unmoved: {says}"]


def test_the_margin_is_that_of_the_check():
    check = {"fairness.ordinary_unmoved": {"served_down_pp": 2}}
    (shown,) = sentences(check, {"A": {"rate": "2/s"}}, ordinary=["A"], phases=PHASES)
    assert "too few to pass at a 2-point margin even without a loss (133 needed" in shown
    assert Params().served_down_pp == 1.0


def test_the_size_is_that_of_the_statistics():
    for margin in (0.001, 0.01, 0.02, 0.3):
        assert calls_to_pass(margin) == lossless_needs(margin, z_of(0.95))


@pytest.mark.parametrize(
    ("check", "more", "says"),
    [
        ("fairness.ordinary_unmoved", {"ordinary": ["A"]}, "it cannot be judged without phases calm and burst."),
        ("fairness.ordinary_unmoved", {"phases": PHASES}, "it cannot be judged without ordinary tenants."),
        ("agent.replan_share", {}, "no tenant re-plans, so every share will be 0."),
        ("agent.budget_at_source", {}, "it cannot be judged without a tenant's `budget: {rate: 10/s, burst: 10}`."),
    ],
)
def test_a_check_that_cannot_be_judged_is_told_beforehand(check, more, says):
    assert sentences(check, {"A": {"rate": "8/s"}}, **more) == [f"{check}: {says}"]


def test_hostile_and_many_tenants_stay_readable():
    tenants = {f"t{i}\u202e": {"rate": f"{i}/s"} for i in range(1, 400)}
    text = "\n".join(describe(profile(tenants, ordinary=list(tenants))).sentences)
    assert all(line.isprintable() for line in text.splitlines())
    assert len(text) < 3000


def test_a_trial_of_a_month_costs_nothing_to_describe():
    month = from_document({"name": "a", "duration": "720h", "tenants": {"A": {"rate": "1000000/s"}}}).profile
    assert describe(month).original_calls == 720 * 3600 * 1_000_000


def test_random_arrivals_are_announced_as_about_so_many():
    said = describe(profile({"A": {"rate": "5/s", "pace": "poisson"}, "B": {"rate": "5/s"}})).sentences
    assert any(sentence.startswith("Original calls: about ") for sentence in said)


def test_how_many_worker_processes_it_takes():
    many = profile({"A": {"rate": "11000/s"}, "B": {"rate": "8/s"}})
    described = describe(many)
    assert described.workers_needed == 3
    assert described.sentences[-2] == (
        "To send that on time takes 3 worker processes (up to 5,000/s with a core of its own): overload run --workers "
        "3, or some of them on other machines (docs/distributed.md)."
    )


def test_a_tenant_that_no_number_of_workers_can_send_on_time_is_named():
    runaway = profile(
        {"A": {"rate": "8/s"}, "D": {"rate": "500/s", "replans": {"calls": 2, "after": "1s", "rounds": 3}}}
    )
    assert describe(runaway).workers_needed == 2
    assert describe(runaway).sentences[-2].startswith("D cannot be shared out by call, and alone may ask more than one")
