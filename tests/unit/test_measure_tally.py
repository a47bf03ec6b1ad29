"""Counts of a trial, each kind of end by itself."""

from __future__ import annotations

import pytest

from harness.ledger.call import Call
from harness.ledger.outcomes import ABANDONED, DROPPED, EXPIRED, FAILED, HELD_BACK, OPEN, REFUSED, SERVED
from harness.measure.tally import Tally

ENDS = {
    SERVED: "served", ABANDONED: "abandoned", FAILED: "failed", HELD_BACK: "held_back", OPEN: "open",
    DROPPED: "dropped", "coalesced": "other", "cancelled": "other", None: "open",
    **dict.fromkeys(sorted(REFUSED), "refused"),
}  # fmt: skip
COUNTED = ("served", "refused", "abandoned", "failed", "held_back", "open", "dropped", "other")


def ended(outcome, tenant=0, **more):
    call = Call("AB"[tenant], tenant, 0, 0, 0, 0, None)
    call.outcome = outcome
    for name, value in more.items():
        setattr(call, name, value)
    return call


@pytest.mark.parametrize(("outcome", "counted"), ENDS.items())
def test_each_end_is_counted_once_and_as_what_it_was(outcome, counted):
    tally = Tally(["A", "B"])
    for _ in range(3):
        tally.add(ended(outcome, tenant=1))
    row = tally.tenants[1]
    assert {name: getattr(row, name) for name in COUNTED} == {name: 3 * (name == counted) for name in COUNTED}
    assert (row.due, row.replans, tally.tenants[0].due) == (3, 0, 0)


def test_shares_are_of_what_reached_the_service_and_has_ended():
    tally = Tally(["A"])
    for outcome in (SERVED, SERVED, EXPIRED, HELD_BACK, DROPPED, OPEN):
        tally.add(ended(outcome))
    row = tally.tenants[0]
    assert (row.due, row.offered, row.served_share) == (6, 4, 2 / 3)
    nobody = Tally(["A"]).tenants[0]
    assert (nobody.served_share, nobody.mean_wait_ns) == (None, None)


def test_waits_are_those_of_served_calls_where_they_are_known():
    tally = Tally(["A"])
    for outcome, wait_ns in ((SERVED, 1), (SERVED, 5), (SERVED, 0), (SERVED, -1), (EXPIRED, 100)):
        tally.add(ended(outcome, queue_wait_ns=wait_ns))
    assert (tally.tenants[0].wait_ns, tally.tenants[0].mean_wait_ns) == (6, 1.5)


def test_rounds_are_replans_and_an_attempt_that_is_tried_again_is_no_end():
    tally = Tally(["A"])
    for round_ in (0, 1, 2):
        tally.add(ended(SERVED, round=round_))
    tally.add(ended(FAILED, retried=True))
    assert (tally.tenants[0].due, tally.tenants[0].replans, tally.tenants[0].failed) == (3, 2, 0)
