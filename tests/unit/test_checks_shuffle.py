"""fairness.shuffle_isolation on ledgers written row by row: who is hurt, and what has to be known for it."""

from __future__ import annotations

import pytest

from harness.checks import shuffle
from harness.checks.context import profile_of
from harness.checks.judge import judge_one
from harness.checks.shuffle import NAME, Params
from harness.checks.verdict import Word
from harness.measure.chance import binomial_bound, binomial_tail
from tests.unit.ledgers import steady, written

MS = 1_000_000
HANDS = {"queues": 16, "hand": 4}
FLOOD = ["0/s", {"from": "40s", "to": "80s", "rate": "9/s"}]


def service(workers=64, **service_time):
    sharded = {"policy": "shuffle_sharded", "queues": 16, "hand": 4, "queue": 50}
    return {"workers": workers, "service_time": service_time or "200ms", "admission": sharded}


def light(wait_ms=1, **told):
    """One call in calm, and one at the end of the flood."""
    return steady(1, 10, 11) + steady(1, 70, 71, queue_wait_ns=wait_ms * MS, **told)


def recorded(tmp_path, lights, lost=40, target="url", **profile):
    """A heavy tenant of 80 calls in its flood, of which so many are lost, beside light ones."""
    heavy = steady(80, 40, 80)
    for row in heavy[:lost]:
        row.update(outcome="throttled", status=429)
    tenants = {"heavy": heavy, **{f"l{i}": rows for i, rows in enumerate(lights)}}
    given = {name: {"rate": FLOOD if name == "heavy" else "1/s"} for name in tenants}
    return written(tmp_path / "t", tenants, {"ordinary": list(tenants)[1:], "tenants": given, **profile}, target=target)


def judged(tmp_path, lights, params=HANDS, **options):
    return judge_one(recorded(tmp_path, lights, **options), NAME, params)


def hurt(verdict):
    return next(finding.measured for finding in verdict.findings if finding.subject == "by heavy")


@pytest.mark.parametrize("params", [{}, {"queues": 16}, {"hand": 4}, {"queues": 4, "hand": 5}])
def test_without_queues_and_a_hand_that_fits_there_is_no_theory(tmp_path, params):
    """Those of the profile's service are not a target's own."""
    found = judged(tmp_path, [light()], params, service=service())
    assert (found.word, found.samples, found.add) == (Word.INCONCLUSIVE, 0, "give `queues` and `hand`")


def test_what_is_given_goes_before_what_the_profile_has(tmp_path):
    found = judged(tmp_path, [light(300)] * 3, {"queues": 32}, service=service(), target="stub")
    assert "hands of 4 out of 32 queues" in found.sentence
    own = judged(tmp_path, [light(300)] * 3, {}, service=service(), target="stub")
    assert "hands of 4 out of 16 queues" in own.sentence


def test_without_a_service_time_no_wait_is_too_long_unless_it_is_given(tmp_path):
    lights = [[{**row, "service_ns": -1} for row in light(300)]]
    heavy_untold = recorded(tmp_path, lights)
    assert hurt(judge_one(heavy_untold, NAME, {**HANDS, "wait": "250ms"})) == 1
    by_cost = service(distribution="recorded_cost", base="100ms", per_unit="1ms")
    rows = [[{**row, "service_ns": -1} for row in light(300)] for _ in range(200)]
    found = judged(tmp_path, rows, service=by_cost, target="stub")
    assert (found.word, found.add) == (Word.INCONCLUSIVE, "give `wait`")


@pytest.mark.parametrize(("wait", "n"), [("300ms", 0), ("299ms", 1)])
def test_who_waits_for_longer_than_what_is_given_is_hurt(tmp_path, wait, n):
    lights = [light(300), light()]
    assert hurt(judged(tmp_path, lights, {"wait": wait}, service=service(), target="stub")) == n


@pytest.mark.parametrize(
    ("workers", "wait_ms", "n"), [(64, 200, 0), (64, 201, 1), (16, 201, 1), (8, 400, 0), (8, 401, 1)]
)
def test_who_waits_for_longer_than_a_turn_of_all_queues_is_hurt(tmp_path, workers, wait_ms, n):
    """A service time of 200 ms, and twice that where there are half as many workers as queues."""
    lights = [light(wait_ms), light()]
    assert hurt(judged(tmp_path, lights, {}, service=service(workers), target="stub")) == n


@pytest.mark.parametrize(("wait_ms", "n"), [(200, 0), (201, 1)])
def test_of_a_target_whose_workers_are_not_known_it_is_a_service_time(tmp_path, wait_ms, n):
    assert hurt(judged(tmp_path, [light(wait_ms), light()])) == n


def test_where_no_wait_is_told_the_latency_from_due_counts(tmp_path):
    rows = light()
    rows[1].update(queue_wait_ns=-1)
    slow = light()
    slow[1].update(queue_wait_ns=-1, done_ns=slow[1]["due_ns"] + 900 * MS)
    at_once = light(0)
    at_once[1].update(done_ns=at_once[1]["due_ns"] + 900 * MS)
    assert hurt(judged(tmp_path, [rows, slow, at_once], {**HANDS, "wait": "500ms"})) == 1


@pytest.mark.parametrize("ordinary", [[], ["heavy", "l0"]])
def test_there_must_be_heavy_tenants_and_light_ones(tmp_path, ordinary):
    found = judged(tmp_path, [light()], ordinary=ordinary)
    assert (found.word, found.sentence) == (Word.INCONCLUSIVE, "Nobody is heavy, or nobody is light.")


@pytest.mark.parametrize(("lost", "word"), [(7, "INCONCLUSIVE"), (8, "FAIL")])
def test_a_flood_that_lost_less_than_a_tenth_of_its_calls_is_none_whoever_is_hurt(tmp_path, lost, word):
    found = judged(tmp_path, [light(900)] * 4 + [light()], lost=lost)
    row = next(finding for finding in found.findings if finding.subject == "by heavy")
    assert found.word == row.word == word
    if word == "FAIL":
        assert found.witnesses == ("1.1", "2.1", "3.1", "4.1")


@pytest.mark.parametrize(
    ("phases", "plain"), [({"calm": ["0s", "30s"], "burst": ["30s", "35s"]}, (30, 35)), ({}, (0, 100))]
)
def test_a_heavy_tenant_floods_while_its_rate_is_above_its_base_and_without_such_steps_in_the_burst_or_all_the_time(
    tmp_path, phases, plain
):
    """In order of time, and not those that are light."""

    def rate(from_s, to_s):
        above = {"from": f"{from_s}s", "to": f"{to_s}s", "rate": "9/s"}
        return {"rate": ["1/s", above, {"from": "90s", "to": "95s", "rate": "0.5/s"}]}

    tenants = {"late": rate(60, 80), "light": rate(10, 20), "early": rate(40, 50), "plain": {"rate": "1/s"}}
    profile = {"tenants": tenants, "ordinary": ["light"], "phases": phases}
    trial = written(tmp_path / "t", {name: [] for name in tenants}, profile)
    windows = shuffle._windows(profile_of(trial))
    told = [(name, window.from_ns // 10**9, window.to_ns // 10**9) for name, window in windows]
    assert told == [("plain", *plain), ("early", 40, 50), ("late", 60, 80)]
    overlap = shuffle._overlapping(windows)
    assert overlap == ("" if phases else "plain and early")
    touching = [windows[1], (windows[2][0], windows[2][1].model_copy(update={"from_ns": 50 * 10**9}))]
    assert shuffle._overlapping(touching) == ""


def test_a_flood_is_judged_once_its_queues_are_full(tmp_path):
    """From two fifths of it on: 56 s of 40 to 80. Calls before, and those of calm, hurt nobody and are not shown."""
    early = steady(1, 10, 11) + steady(1, 50, 51, queue_wait_ns=900 * MS)
    at = steady(1, 55.9, 56, queue_wait_ns=900 * MS) + steady(1, 56, 57, queue_wait_ns=900 * MS)
    after = steady(1, 80, 81, queue_wait_ns=900 * MS)
    found = judged(tmp_path, [early, at, after, light(), light(900)])
    row = next(finding for finding in found.findings if finding.subject == "by heavy")
    assert (row.measured, row.samples, found.samples) == (2, 3, 3)
    assert (found.word, found.witnesses) == (Word.FAIL, ("2.1", "5.1"))


@pytest.mark.parametrize(("share", "word"), [(0.5, "PASS"), (0.4, "INCONCLUSIVE")])
def test_light_tenants_that_are_hurt_in_calm_are_no_measure(tmp_path, share, word):
    hurt_in_calm = steady(1, 10, 11, queue_wait_ns=900 * MS) + steady(1, 70, 71)
    found = judged(tmp_path, [hurt_in_calm, light()], {"queues": 16, "hand": 1, "calm_hurt": share})
    assert found.word == word
    if word == "INCONCLUSIVE":
        assert found.sentence == ("1 of 2 light tenants were hurt without any flood: the service is too small.")
    calm = [finding for finding in found.findings if finding.quantity == shuffle.HURT_CALM]
    assert [(finding.measured, finding.samples) for finding in calm] == [(1, 2)]
    none = judged(tmp_path, [hurt_in_calm, light()], phases={})
    assert [finding.quantity for finding in none.findings] == [shuffle.HURT]


def test_a_heavy_tenant_without_a_call_filled_nothing(tmp_path):
    trial = written(tmp_path / "t", {"heavy": [], "l0": light()}, {"ordinary": ["l0"]})
    found = judge_one(trial, NAME, HANDS)
    assert (found.word, found.samples) == (Word.INCONCLUSIVE, 0)
    assert found.sentence == "No heavy tenant was heavy enough to fill its queues."


@pytest.mark.parametrize(
    ("hand", "lights", "hurt_ones", "word"),
    [(1, 100, 6, "PASS"), (1, 20, 19, "FAIL"), (4, 200, 1, "PASS"), (4, 200, 9, "FAIL"), (2, 9, 0, "INCONCLUSIVE")],
)
def test_so_many_are_hurt_by_chance_and_so_few_tell_nothing(tmp_path, hand, lights, hurt_ones, word):
    rows = [light(900) if i < hurt_ones else light() for i in range(lights)]
    found = judged(tmp_path, rows, {"queues": 16, "hand": hand})
    assert (found.word, found.measured, found.samples) == (word, hurt_ones, lights)
    by_heavy = next(each for each in found.findings if each.subject == "by heavy")
    assert by_heavy.word is (Word.FAIL if word == "FAIL" else Word.PASS)
    if word == "INCONCLUSIVE":
        assert found.add.endswith(" times as many light tenants")


@pytest.mark.parametrize("n", [1, 3, 10, 100])
def test_so_many_times_as_many_light_tenants_would_tell_and_half_as_many_would_not(n):
    """By the definition: as many hurt as a hand of one hurts are, nearly always, more than chance allows."""
    params, queues, p = Params(), 16, 0.001

    def tells(tenants):
        allowed = binomial_bound(tenants, p, params.chance)
        return binomial_tail(tenants, 1 / queues, allowed) >= params.power

    factor = shuffle._needed(n, queues, p, params)
    assert factor in [2**power for power in range(1, 20)]
    assert tells(n * factor)
    assert factor == 2 or not tells(n * factor // 2)


def test_where_nothing_would_tell_it_stops_and_without_any_tenant_it_counts_from_one():
    params = Params()
    assert shuffle._needed(1, 1000, 0.0009, params) == 1 << 20
    assert shuffle._needed(0, 16, 0.001, params) == shuffle._needed(1, 16, 0.001, params)
