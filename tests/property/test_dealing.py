"""Dealing tenants to workers: everybody exactly once, evenly, the same every time, and calls as in one process."""

from __future__ import annotations

from fractions import Fraction
from heapq import merge

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.profile.model import Profile
from harness.workload.dealing import WHOLE, WHOLE_UP_TO_PER_S, Item, deal, items_of
from harness.workload.plan import callers, due_by, planned

loads = st.integers(0, 5_000).map(Fraction)
items = st.lists(st.tuples(loads, st.booleans()), min_size=1, max_size=40).map(
    lambda pairs: [Item(f"t{i}", load, splittable) for i, (load, splittable) in enumerate(pairs)]
)


@given(items, st.integers(1, 8))
def test_every_tenant_is_dealt_exactly_once(dealt, workers):
    shares = deal(dealt, workers)
    assert len(shares) == workers
    for item in dealt:
        parts = [share.parts[item.tenant] for share in shares if item.tenant in share.parts]
        n = parts[0][1]
        assert sorted(parts) == [(k, n) for k in range(n)]
        assert n == 1 or item.splittable
    assert sum(share.load for share in shares) == sum(item.load for item in dealt)
    assert deal(dealt, workers) == shares


@given(items, st.integers(1, 8))
def test_no_worker_has_more_than_the_bound_of_largest_first(dealt, workers):
    """Nobody has more than an even share and one piece that would not fit anywhere."""
    shares = deal(dealt, workers)
    even = sum((item.load for item in dealt), Fraction(0)) / workers
    pieces = [
        item.load / share.parts[item.tenant][1] for item in dealt for share in shares if item.tenant in share.parts
    ]
    assert max(share.load for share in shares) <= even + max(pieces)


def test_only_what_is_too_big_and_keeps_no_state_is_split():
    big = WHOLE_UP_TO_PER_S * 2
    shares = deal([Item("open", big, True), Item("agent", big, False), Item("small", Fraction(1), True)], 4)
    parts = [share.parts.get("open") for share in shares]
    assert sorted(part for part in parts if part) == [(0, 2), (1, 2)]
    assert [share.parts["agent"] for share in shares if "agent" in share.parts] == [WHOLE]


TENANTS = {
    "open": {"rate": ["2500/s", {"from": "500ms", "to": "1s", "rate": "3000/s"}], "phase": "3ms"},
    "poisson": {"rate": "650/s", "pace": "poisson"},
    "small": {"rate": "7/s"},
    "agent": {"rate": "600/s", "replans": {"calls": 1, "after": "10ms", "rounds": 1}},
    "budgeted": {"rate": "600/s", "budget": {"rate": "10/s", "burst": 10}},
}


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_calls_of_all_workers_are_those_of_one_process(workers):
    profile = Profile.model_validate({"name": "shared-out", "duration": "2s", "tenants": TENANTS})
    plan = planned(profile)
    shares = deal(items_of(profile, plan), workers)
    split = {name for share in shares for name, part in share.parts.items() if part != WHOLE}
    assert split <= {"open", "poisson"}
    assert split or workers == 1
    whole = [calls_of(caller) for caller in callers(profile)]
    parts = [calls_of(caller) for share in shares for caller in callers(profile, parts=share.parts)]
    assert list(merge(*map(sorted, parts))) == sorted(call for calls in whole for call in calls)
    for by_ns in (0, 1_234_567_890, 2_000_000_000):
        counted = sum(due_by(profile, share.parts, None, by_ns) for share in shares)
        assert counted == sum(due < by_ns for calls in whole for _, due in calls)


def calls_of(caller):
    return [(call.id, call.due_ns) for call in caller.on_due(10**10)]


def test_a_part_of_a_tenant_that_keeps_state_is_refused():
    profile = Profile.model_validate({"name": "x", "duration": "2s", "tenants": TENANTS})
    with pytest.raises(ValueError, match="cannot be shared out by call"):
        callers(profile, parts={"agent": (0, 2)})


def test_a_trial_without_workers_cannot_be_dealt():
    with pytest.raises(ValueError, match="at least one"):
        deal([], 0)
