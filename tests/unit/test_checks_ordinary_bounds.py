"""fairness.ordinary_unmoved at its bounds: how much evidence is enough, what a wait is, and which finding is told."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from harness.checks.judge import judge_one
from harness.checks.ordinary_unmoved import NAME
from harness.checks.verdict import Word
from harness.measure.blocks import change_of_means, series
from tests.unit.ledgers import manifest_edited, steady, written
from tests.unit.test_checks_ordinary_unmoved import BURST, CALM, calls, finding, judged

SERVED, REFUSED, WAIT = "served share down", "refusals up", "mean wait up"
ALL = "all ordinary tenants"
MS = 1_000_000
COLD = {"warm_up": "0s"}
LENIENT = {**COLD, "served_down_pp": 50.0, "refusals_up_pp": 50.0}


def service(workers=8, **service_time):
    given = {"mean": "200ms", **service_time}
    return {"workers": workers, "service_time": given, "admission": {"policy": "shared_fifo", "queue": 100}}


def mean_wait_up(tmp_path, rows, params=LENIENT, **options):
    return finding(judged(tmp_path, {"A": rows}, params, **options), "A", WAIT)


# --- how much evidence is enough


@pytest.mark.parametrize(
    ("n_calm", "n_burst", "enough"), [(50, 268, True), (49, 268, False), (50, 267, False), (195, 200, False)]
)
def test_so_many_calls_of_calm_and_of_the_burst_are_enough_to_pass(tmp_path, n_calm, n_burst, enough):
    found = judged(tmp_path, {"A": calls(n_calm, n_burst)}, COLD)
    row = finding(found, "A", SERVED)
    assert row.samples == n_calm + n_burst
    assert row.note.startswith("not judged") is not enough
    if not enough:
        assert (found.word, found.add) == (Word.INCONCLUSIVE, row.note)
        assert found.sentence == "No ordinary tenant has enough calls to be judged (not judged, too few calls: A)."


def test_the_stricter_margin_says_how_many_are_needed(tmp_path):
    found = judged(tmp_path, {"A": calls(100, 100)}, {**COLD, "refusals_up_pp": 10.0})
    assert finding(found, "A", SERVED).note == (
        "not judged: 100 calls in calm and 100 in the burst; 50 and 268 are needed"
    )


@pytest.mark.parametrize(
    ("n_calm", "n_burst", "word"), [(10, 10, "FAIL"), (9, 10, "INCONCLUSIVE"), (9, 400, "INCONCLUSIVE")]
)
def test_from_ten_calls_on_in_both_windows_a_tenant_that_is_cut_off_fails(tmp_path, n_calm, n_burst, word):
    assert judged(tmp_path, {"A": calls(n_calm, n_burst, lost=n_burst)}, COLD).word == word


@pytest.mark.parametrize(("n_calm", "word"), [(50, "FAIL"), (49, "INCONCLUSIVE")])
def test_from_fifty_calls_on_a_small_tenant_may_fail_by_its_wait_too(tmp_path, n_calm, word):
    assert judged(tmp_path, {"A": calls(n_calm, 60, wait_ms=5000)}, COLD).word == word


def test_the_note_of_the_tenant_with_most_calls_says_what_to_add(tmp_path):
    found = judged(tmp_path, {"A": calls(60, 60), "B": calls(20, 20)}, COLD)
    assert found.samples == 160
    assert found.add.startswith("not judged: 80 calls in calm and 80 in the burst")


def test_a_tenth_of_calm_is_a_tenth_of_its_length(tmp_path):
    """Calm is 20 s with 200 calls, and begins at 20 s."""
    phases = {"calm": ["20s", "40s"], "burst": ["40s", "80s"]}
    found = judged(tmp_path, {"A": calls()}, {"warm_up": "30s"}, profile={"phases": phases})
    assert found.samples == 180 + 400


@pytest.mark.parametrize("phases", [{"calm": ["0s", "40s"]}, {"burst": ["40s", "80s"]}, {}])
def test_both_windows_must_be_there(tmp_path, phases):
    found = judged(tmp_path, {"A": calls()}, profile={"phases": phases})
    assert (found.word, found.samples) == (Word.INCONCLUSIVE, 0)
    assert found.sentence == "The trial has no phases calm and burst to compare."


# --- intervals


def test_a_share_is_the_hull_of_both_intervals_and_no_share_is_over_all(tmp_path):
    """Losses that come together: the blocks' interval is the wider one."""
    rows = calls()
    for row in rows[400:500]:
        row.update(outcome="failed")
    found = finding(judged(tmp_path, {"A": rows}, LENIENT), "A", SERVED)
    at, hit = (np.array([row[key] for row in rows]) for key in ("due_ns", "outcome"))
    hit = hit == "failed"
    windows = [(at[s], hit[s], a * 10**9, b * 10**9) for s, (a, b) in ((slice(400, 800), BURST), (slice(400), CALM))]
    draws = np.random.default_rng([1, zlib.crc32(f"A:{SERVED}".encode())])
    blocks = change_of_means(*(series(*window) for window in windows), 0.95, draws).change
    assert (found.low, found.high) == (pytest.approx(100 * blocks.low), pytest.approx(100 * blocks.high))


@pytest.mark.parametrize(("hurt", "lost"), [("burst", slice(420, 800)), ("calm", slice(20, 400))])
def test_no_share_changes_by_more_than_all_of_it(tmp_path, hurt, lost):
    rows = calls()
    for row in rows[lost]:
        row.update(outcome="failed")
    found = finding(judged(tmp_path, {"A": rows}, COLD), "A", SERVED)
    assert (found.high == 100) if hurt == "burst" else (found.low == -100)


@pytest.mark.parametrize(("hurt", "blocks"), [([], False), ([5], True), ([405], True)])
def test_blocks_of_time_are_counted_as_soon_as_anything_was_lost(tmp_path, hurt, blocks):
    rows = calls()
    for place in hurt:
        rows[place].update(outcome="failed")
    found = finding(judged(tmp_path, {"A": rows}, LENIENT), "A", SERVED)
    assert found.word is Word.PASS
    assert ("independent blocks" in found.note) is blocks


def test_an_interval_that_reaches_the_margin_decides_nothing(tmp_path):
    trial = written(tmp_path / "trial", {"A": calls(lost=40)})
    row = finding(judge_one(trial, NAME, {}), "A", SERVED)
    for margin, word in (
        (row.low - 0.01, "FAIL"), (row.low, "INCONCLUSIVE"), (row.high, "INCONCLUSIVE"), (row.high + 0.01, "PASS")
    ):  # fmt: skip
        assert finding(judge_one(trial, NAME, {"served_down_pp": margin}), "A", SERVED).word == word


def test_what_the_trial_drew_decides_how_it_is_resampled(tmp_path):
    rows = calls()
    for row in rows[400:500]:
        row.update(outcome="failed")
    trial = written(tmp_path / "trial", {"A": rows})

    def high(edit):
        return finding(judge_one(manifest_edited(trial, edit), NAME, {}), "A", SERVED).high

    assert high(lambda kept: kept.update(seed=1)) != high(lambda kept: kept.update(seed=2))
    assert high(lambda kept: kept.update(seed=0)) == high(lambda kept: kept.pop("seed"))


# --- a calm that is overloaded


@pytest.mark.parametrize(("lost", "word"), [(20, "PASS"), (21, "INCONCLUSIVE")])
def test_a_calm_that_serves_95_in_100_is_a_measure(tmp_path, lost, word):
    rows = calls()
    for window in (0, 400):
        for i in range(lost):
            rows[window + i * 400 // lost].update(outcome="failed")
    assert judged(tmp_path, {"A": rows}, LENIENT).word == word


@pytest.mark.parametrize(("more_ns", "word"), [(0, "PASS"), (1, "INCONCLUSIVE")])
def test_a_calm_that_waits_for_ten_margins_is_a_measure(tmp_path, more_ns, word):
    rows = calls(queue_wait_ns=1000 * MS + more_ns)
    assert judged(tmp_path, {"A": rows}, {**COLD, "wait_up": "100ms"}).word == word


def test_waits_of_the_burst_do_not_make_calm_an_overload(tmp_path):
    found = judged(tmp_path, {"A": calls(wait_ms=9000)})
    assert [finding(found, "A", name).word.value for name in (SERVED, REFUSED, WAIT)] == ["PASS", "PASS", "FAIL"]


# --- what a wait is


@pytest.mark.parametrize(
    ("untold", "note"), [(8, ""), (9, "latency from due: the service does not tell its queue wait")]
)
def test_queue_waits_count_where_99_in_100_are_told(tmp_path, untold, note):
    rows = calls()
    for row in rows[:untold]:
        row["queue_wait_ns"] = -1
    assert mean_wait_up(tmp_path, rows).note == note


def test_a_wait_of_nothing_is_a_wait_that_was_told(tmp_path):
    rows = calls(queue_wait_ns=0)
    assert mean_wait_up(tmp_path, rows).note == ""
    for row in rows[400:]:
        row["done_ns"] += 500 * MS
    found = judged(tmp_path, {"A": rows})
    assert found.word is Word.INCONCLUSIVE
    assert found.add.startswith("calls take longer than the queue wait that the service tells")


@pytest.mark.parametrize(
    ("wait_ns", "up_ms"), [(5001 * MS, 500), (0, -0.1), (-1, 0)]
)  # a tenth of 400; all others waited 1 ms
def test_who_was_refused_waited_if_the_service_says_so(tmp_path, wait_ns, up_ms):
    rows = calls()
    for row in rows[400::10]:
        row.update(outcome="expired", status=504, queue_wait_ns=wait_ns)
    assert mean_wait_up(tmp_path, rows).measured == pytest.approx(up_ms, abs=0.001)


@pytest.mark.parametrize(("patience", "up_ms"), [("20s", 200), ("40s", 400), (None, 300)])
def test_who_gave_up_waited_for_its_patience_and_without_one_until_it_gave_up(tmp_path, patience, up_ms):
    rows = calls()
    for row in rows[400::100]:
        row.update(outcome="abandoned", reason="patience", done_ns=row["due_ns"] + 30_000 * MS, queue_wait_ns=5)
    profile = {"patience": patience} if patience else {}
    assert mean_wait_up(tmp_path, rows, profile=profile).measured == pytest.approx(up_ms, rel=0.001)


@pytest.mark.parametrize(
    ("target", "profile", "word"),
    [
        ("stub", {"service": service()}, "PASS"),
        ("stub", {"service": service(load_slope=1.0)}, "INCONCLUSIVE"),
        ("stub", {}, "INCONCLUSIVE"),
        ("url", {"service": service()}, "INCONCLUSIVE"),
    ],
)
def test_only_a_service_time_that_the_profile_alone_decides_is_no_harm_of_the_burst(tmp_path, target, profile, word):
    rows = steady(400, *CALM) + steady(400, *BURST, service_ns=1700 * MS)
    assert judged(tmp_path, {"A": rows}, {"wait_up": "100ms"}, profile=profile, target=target).word == word


def test_a_wait_within_a_margin_that_is_wide_passes_though_few_waits_are_told(tmp_path):
    """Of the others all of the latency counts: they have not waited for longer."""
    rows = calls(60, 60)
    for row in rows[60::3]:
        row["queue_wait_ns"] = -1
    found = judged(tmp_path, {"A": rows, "B": calls(1200, 1200)}, {**LENIENT, "wait_up": "10s"})
    assert finding(found, "A", WAIT).word is Word.PASS


def test_latency_from_due_holds_what_is_beyond_a_queue_wait(tmp_path):
    """Half of the waits are told, and those calls took longer: on average by less than the margin."""
    rows = calls()
    for row in rows[::2]:
        row["queue_wait_ns"] = -1
    for row in rows[401::2]:
        row["done_ns"] += 180 * MS
    assert judged(tmp_path, {"A": rows}, {"wait_up": "100ms"}).word is Word.PASS


def test_without_enough_waits_to_compare_that_is_what_is_told(tmp_path):
    rows = calls()
    for row in rows[400:760]:
        row.update(outcome="failed", queue_wait_ns=-1)
    found = judged(tmp_path, {"A": rows}, {**COLD, "served_down_pp": 99.0})
    assert found.word is Word.INCONCLUSIVE
    told = "only 400 calls in calm and 40 in the burst have a wait to compare"
    assert found.sentence == f"Cannot tell whether the burst moved A: {WAIT}: {told}."


# --- what a fair turn costs


@pytest.mark.parametrize(("workers", "turn_ms"), [(1, 300), (2, 175), (4, 97.5)])
def test_a_fair_turn_is_that_of_the_first_worker_and_of_one_other_tenant(tmp_path, workers, turn_ms):
    """Half a service time and half of one, in which one worker is busy; and half as much again."""
    for wait_ms, word in ((turn_ms - 1, "INCONCLUSIVE"), (turn_ms + 2, "FAIL")) if workers < 4 else ((103, "FAIL"),):
        rows = calls(wait_ms=wait_ms)
        found = judged(tmp_path, {"A": rows}, profile={"service": service(workers)}, target="stub")
        assert found.word == word
        if word == "INCONCLUSIVE":
            assert found.add.startswith(f"with so few workers a fair turn alone may cost {turn_ms} ms")


@pytest.mark.parametrize(
    ("from_s", "to_s", "word"),
    [(50, 60, "INCONCLUSIVE"), (79, 90, "INCONCLUSIVE"), (0, 41, "INCONCLUSIVE"), (0, 40, "FAIL"), (80, 90, "FAIL")],
)
def test_the_fewest_workers_of_the_burst_count(tmp_path, from_s, to_s, word):
    workers = [8, {"from": f"{from_s}s", "to": f"{to_s}s", "workers": 1}]
    found = judged(tmp_path, {"A": calls(wait_ms=150)}, profile={"service": service(workers)}, target="stub")
    assert found.word == word


def test_a_service_whose_time_follows_from_the_cost_of_calls_has_no_fair_turn(tmp_path):
    by_cost = {**service(), "service_time": {"distribution": "recorded_cost", "base": "100ms", "per_unit": "1ms"}}
    rows = calls(service_ns=-1)
    found = judged(tmp_path, {"A": rows}, profile={"service": by_cost}, target="stub")
    assert found.add.startswith("the service time is not known")
    assert found.sentence.startswith(
        f"Cannot tell whether the burst moved A: {WAIT}: the service time is not known, so no margin is"
    )


# --- which finding is told, and of which calls


def test_of_several_failures_the_farthest_beyond_its_bound_is_told(tmp_path):
    """Three points of one allowed are more than 150 ms of 100."""
    found = judged(tmp_path, {"A": calls(4000, 4000, lost=200, wait_ms=170)})
    assert finding(found, "A", WAIT).word is Word.FAIL
    assert (found.word, found.unit) == (Word.FAIL, "pp")


def test_of_several_doubts_the_one_without_a_figure_is_told_first(tmp_path):
    rows = [{**row, "service_ns": -1} for row in calls(lost=2)]
    found = judged(tmp_path, {"A": rows})
    assert finding(found, "A", SERVED).word is Word.INCONCLUSIVE
    assert found.add.startswith("the service time is not known")


def test_of_those_that_pass_the_nearest_to_its_bound_is_told(tmp_path):
    found = judged(tmp_path, {"A": calls(), "B": calls(wait_ms=98)})
    assert "nearest to its bound, B, mean wait up by 97 ms" in found.sentence


def test_witnesses_of_a_loss_are_the_calls_of_the_burst_that_the_tenant_lost(tmp_path):
    tenants = {"A": calls(lost=2), "B": calls(lost=80)}
    tenants["B"][3].update(outcome="failed")
    for row in tenants["B"][401::100]:
        row.update(outcome="failed")
    found = judged(tmp_path, tenants, {"refusals_up_pp": 90.0})
    assert found.witnesses[:4] == ("1.400", "1.401", "1.405", "1.410")
    refused = judged(tmp_path, tenants, {"served_down_pp": 90.0})
    assert refused.witnesses[:4] == ("1.400", "1.405", "1.410", "1.415")


def test_witnesses_of_a_wait_are_those_of_the_burst_that_waited_longest(tmp_path):
    rows = calls(wait_ms=150)
    for place, wait_ms in ((100, 400), (450, 200), (500, 300), (420, 250)):
        rows[place]["queue_wait_ns"] = wait_ms * MS
    found = judged(tmp_path, {"A": rows, "B": calls(wait_ms=120)}, {"calm_wait": 100})
    assert found.witnesses[:5] == ("0.500", "0.420", "0.450", "0.400", "0.401")
    assert len(found.witnesses) == 20


def test_who_is_hurt_is_told_in_order_of_names_and_nobody_else(tmp_path):
    tenants = {name: calls(60, 60, lost=30) for name in "jebhdagcif"} | {"Fine": calls(270, 270)}
    found = judged(tmp_path, tenants)
    assert finding(found, "Fine", SERVED).word is Word.PASS
    assert found.sentence.startswith(f"The burst moved {ALL}: ")
    assert found.sentence.endswith("; hurt: a, b, c, d, e.")
    small = judged(tmp_path, {f"t{i}": calls(60, 60, lost=6) for i in range(10)})
    assert "hurt" not in small.sentence


@pytest.mark.parametrize(("few", "tail"), [(5, "t0, t1, t2, t3, t4"), (6, "t0, t1, t2, t3, t4 and 1 more")])
def test_five_that_were_not_judged_are_named_and_the_others_counted(tmp_path, few, tail):
    found = judged(tmp_path, {"A": calls(), **{f"t{i}": calls(5, 5) for i in range(few)}})
    assert found.sentence.endswith(f" (not judged, too few calls: {tail}).")
