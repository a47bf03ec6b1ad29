"""What the driver tells of a trial as it goes: each call in one place, of several processes the sum."""

from __future__ import annotations

import pytest

from harness.ledger.outcomes import TERMINAL
from harness.live.lateness import Lateness
from harness.live.progress import Tally, merged
from harness.profile.demand import busiest
from harness.profile.model import Profile

ENDS = ("served", "refused", "abandoned", "held_back", "failed", "dropped", "other")


@pytest.mark.parametrize("outcome", sorted(TERMINAL))
def test_every_outcome_counts_once(outcome):
    tally = Tally()
    tally.end(outcome, -1)
    counts = tally.counts()
    assert sum(counts[name] for name in ENDS) == 1
    assert sum(counts["wait_counts"]) == 0


def test_queue_waits_are_those_of_served_calls():
    tally = Tally()
    for outcome, wait_ns in (("served", 1_000_000), ("served", 1_000_001), ("served", 10**12), ("abandoned", 5)):
        tally.end(outcome, wait_ns)
    assert tally.counts()["wait_counts"] == [1, 1, *[0] * 13, 1]
    assert tally.counts()["wait_ns"] == 10**12 + 2_000_001


def event(late, rest=None, **tenants):
    made = {"tenants": tenants, "late_p99_ns": late, "late_ns": late, "late_counts": [late, 1]}
    return made | ({"rest": rest} if rest else {})


def test_progress_of_several_is_their_sum():
    a, b = {"due": 1, "wait_counts": [1, 2]}, {"due": 10, "wait_counts": [5, 0]}
    found = merged([event(3, {"due": 7}, A=a, B=b), {}, event(2, {"due": 1}, A=b)], 5)
    assert found == {
        "event": "progress",
        "now_ns": 5,
        "tenants": {"A": {"due": 11, "wait_counts": [6, 2]}, "B": b},
        "rest": {"due": 8},
        "late_p99_ns": 3,
        "late_ns": 5,
        "late_counts": [5, 2],
    }
    assert a == {"due": 1, "wait_counts": [1, 2]}
    assert merged([{}, {}], 5) == {"event": "progress", "now_ns": 5, "tenants": {}, "late_p99_ns": 0}


def test_lateness_in_few_buckets_is_close_to_the_true_one():
    late = Lateness()
    for late_ns in (-5, 0, 9_000, 11_000, 900_000, 5_000_000_000):
        late.add(late_ns)
    assert late.counts((10_000, 1_000_000)) == [3, 2, 1]
    assert late.sum_ns == 5_000_920_000


def test_of_very_many_tenants_the_busiest_are_those_of_the_plan():
    tenants = {
        **{f"t{place}": {"rate": "1/s"} for place in range(5)},
        "busy": {"rate": "2/s"},
        "runaway": {"rate": ["1/s", {"from": "1s", "to": "2s", "rate": "9/s"}]},
        "replanning": {"rate": "1/s", "replans": {"calls": 2, "after": "500ms", "rounds": 3}},
    }
    profile = Profile.model_validate({"name": "many", "duration": "4s", "patience": "1s", "tenants": tenants})
    assert set(busiest(profile, 3)) == {"replanning", "runaway", "busy"}
    assert busiest(profile, 100) == tuple(tenants)
