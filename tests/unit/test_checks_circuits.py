"""A circuit's stages by its transitions, and what its own calls would have had it do: each rule at just its bound."""

from __future__ import annotations

import pytest

from harness.checks.circuits import (
    CLOSED,
    HALF_OPEN,
    NEVER_NS,
    OPEN,
    Arrived,
    Stage,
    arrived,
    cause,
    should_have_opened,
    stages,
)
from harness.checks.step_rows import Frame
from harness.ledger.evidence import Evidence
from harness.ledger.stalls import stalls
from harness.profile.capacity import Circuit
from harness.profile.model import Profile
from tests.unit.capacity_trials import ONE_DEPENDENCY

MS = 1_000_000
PROFILE = {
    "name": "one", "duration": "5s", "checks": ["v08.circuit"], "tenants": {"agents": {"rate": "1/s"}},
    "capacity": ONE_DEPENDENCY,
}  # fmt: skip
rule = Circuit.model_validate(ONE_DEPENDENCY["dependencies"]["billing"]["circuit"])


def still(spans):
    """Stalls of the stub, in ms."""
    return stalls((begin * MS, end * MS) for begin, end in spans)


def frame(arrivals=(), transitions=(), spans=(), profile=PROFILE):
    told = [{"outcome": outcome, "t_ns": at_ms * MS} for outcome, at_ms in transitions]
    evidence = Evidence(told, list(arrivals), [], has_decisions=True, has_arrivals=True, has_effects=False)
    return Frame(Profile.model_validate(profile), 1.0, evidence, {}, {}, {"billing": told}, {}, still(spans))


# --- stages


def test_stages_follow_each_other_without_a_gap_and_begin_closed():
    told = [("opened", 10), ("probing", 15), ("half_open", 20), (None, 22), ("opened", 30), ("closed", 50)]
    found = stages(frame(transitions=told), "billing")
    assert found == [
        Stage("billing", CLOSED, 0, 10 * MS, None, OPEN),
        Stage("billing", OPEN, 10 * MS, 20 * MS, CLOSED, HALF_OPEN),
        Stage("billing", HALF_OPEN, 20 * MS, 30 * MS, OPEN, OPEN),
        Stage("billing", OPEN, 30 * MS, 50 * MS, HALF_OPEN, CLOSED),
        Stage("billing", CLOSED, 50 * MS, NEVER_NS, OPEN, None),
    ]
    assert stages(frame(), "customer") == [Stage("customer", CLOSED, 0, NEVER_NS, None, None)]


def test_a_stage_ends_where_the_next_begins():
    stage = Stage("billing", OPEN, 10, 20, CLOSED, HALF_OPEN)
    assert [stage.holds(instant) for instant in (9, 10, 19, 20)] == [False, True, True, False]


# --- what one call says of its dependency's health


def one(took_ms, status, *, dependency="billing", at_ms=1000, spans=(), profile=PROFILE, **more):
    row = {"dependency": dependency, "t_ns": at_ms * MS, "ended_ns": (at_ms + took_ms) * MS, "status": status} | more
    (call,) = arrived(frame([row], spans=spans, profile=profile), dependency)
    return call


@pytest.mark.parametrize(
    ("took_ms", "status", "operation", "failed", "slow"),
    [
        (30, 200, "read", False, False),
        (150, 200, "read", False, False), (151, 200, "read", False, True), (151, 404, "read", False, True),
        (30, 499, "read", False, False), (30, 500, "read", True, False), (151, 503, "read", True, True),
        # Without an answer: failed from nine tenths of its bulkhead's timeout on; before, its caller had left it.
        (899, 0, "read", False, False), (900, 0, "read", True, False),
        (1799, 0, "write", False, False), (1800, 0, "write", True, False),
        (950, 1, "read", False, True), (951, 200, "read", False, True),
    ],
)  # fmt: skip
def test_a_call_is_failed_or_slow_or_proves_nothing(took_ms, status, operation, failed, slow):
    call = one(took_ms, status, operation=operation)
    assert (call.failed, call.slow, call.bad) == (failed, slow, failed or slow)
    assert (call.t_ns, call.ended_ns, call.held_up) == (1000 * MS, (1000 + took_ms) * MS, False)


@pytest.mark.parametrize("profile", [PROFILE, {k: v for k, v in PROFILE.items() if k != "capacity"}])
def test_a_dependency_that_the_profile_does_not_describe_has_no_slow_calls(profile):
    call = one(900, 200, dependency="elsewhere", profile=profile, spans=[(900, 2500)])
    assert (call.failed, call.slow, call.held_up) == (False, False, False)
    assert one(0, 0, dependency="elsewhere", profile=profile).failed  # nor a timeout: no answer is a failure


def test_calls_of_other_dependencies_are_left_out():
    rows = [{"dependency": name, "t_ns": at, "ended_ns": at + 1, "status": 200}
            for at, name in ((5, "billing"), (6, "customer"), (7, "billing"))]  # fmt: skip
    found = arrived(frame(rows), "billing")
    assert [(call.t_ns, call.row) for call in found] == [(5, rows[0]), (7, rows[2])]


@pytest.mark.parametrize(
    ("took_ms", "stalled", "held_up"),
    [
        (100, [(950, 1000)], False), (100, [(949, 1000)], True),  # for its caller 150 ms and 151
        (100, [(1100, 1150)], False), (100, [(1100, 1151)], True),
        (100, [(940, 989)], False), (100, [(940, 990)], True),  # a stall is next to it within the way of 10 ms
        (150, [(1150, 1160)], True), (151, [(1151, 1300)], False),  # slow by itself: that is no stall's doing
        (100, [], False), (150, [], False),
    ],
)  # fmt: skip
def test_a_call_that_was_slow_for_its_caller_alone_was_held_up(took_ms, stalled, held_up):
    call = one(took_ms, 200, spans=stalled)
    assert call.held_up is held_up
    assert call.slow is (took_ms > 150)


# --- when the rule would have had it open


def ended(*instants_ms, failed=False, slow=False, took_ms=10):
    return [Arrived({}, (at - took_ms) * MS, at * MS, failed, slow) for at in instants_ms]


def due_ms(calls, *, patience_ms=100, since_ms=0, to_ms=10_000, spans=()):
    closed = Stage("billing", CLOSED, since_ms * MS, to_ms * MS, None, OPEN)
    found = should_have_opened(calls, rule, closed, patience_ms * MS, still(spans))
    return None if found is None else found / MS


TEN = range(1000, 1200, 20)
"""As many calls as the rule asks for before it says anything; the last at 1180."""


@pytest.mark.parametrize(
    ("bad", "well", "due"),
    [
        ({"failed": True}, 0, 1180), ({"failed": True}, 10, 1180), ({"failed": True}, 11, None),
        ({"slow": True}, 0, 1180), ({"slow": True}, 15, 1180), ({"slow": True}, 16, None),
    ],
)  # fmt: skip
def test_half_that_fail_or_four_in_ten_that_are_slow_are_enough(bad, well, due):
    assert due_ms([*ended(*[990] * well), *ended(*TEN, 1281, **bad)]) == due


def test_fewer_calls_than_the_rule_asks_for_say_nothing():
    assert due_ms(ended(*TEN[:9], failed=True)) is None
    assert due_ms(ended(*TEN)) is None


@pytest.mark.parametrize(("last_ms", "due"), [(1280, None), (1281, 1180)])
def test_it_may_take_as_long_as_patience_has_and_no_longer(last_ms, due):
    assert due_ms(ended(*TEN, last_ms, failed=True)) == due


@pytest.mark.parametrize(("stalled_ms", "due"), [(0, 1180), (19, 1180), (20, None)])
def test_time_in_which_the_stub_stood_still_is_not_counted(stalled_ms, due):
    assert due_ms(ended(*TEN, 1300, failed=True), spans=[(1200, 1200 + stalled_ms)]) == due


@pytest.mark.parametrize(("last_ms", "due"), [(1305, None), (1306, 1205)])
def test_patience_begins_anew_where_the_rule_was_not_met_in_between(last_ms, due):
    """After eleven good calls it is met again by the first bad one."""
    assert due_ms([*ended(*TEN, failed=True), *ended(*[1200] * 11), *ended(1205, last_ms, failed=True)]) == due


@pytest.mark.parametrize(("tenth_ms", "due"), [(1499, 1499), (1500, None)])
def test_a_call_counts_for_as_long_as_the_window_is(tenth_ms, due):
    """The first ended at 1000: at 1500 it is out, and nine are left."""
    assert due_ms(ended(1000, *range(1010, 1018), tenth_ms, tenth_ms + 1, failed=True), patience_ms=0) == due


def test_calls_count_from_when_they_ended_in_whatever_order_they_came():
    assert due_ms([*ended(1281, failed=True, took_ms=500), *ended(*TEN, failed=True)]) == 1180


@pytest.mark.parametrize(
    ("stage", "due"),
    [({"since_ms": 990}, 1180), ({"since_ms": 991}, None), ({"to_ms": 1282}, 1180), ({"to_ms": 1281}, None)],
)
def test_only_calls_that_began_and_ended_in_the_stage_count(stage, due):
    assert due_ms(ended(*TEN, 1281, failed=True), **stage) == due


# --- why it opened


def why(calls, **of_rule):
    asked = rule.model_copy(update={"failure_share": 0.6, "slow_share": 0.6} | of_rule)
    return cause(calls, asked, 2000 * MS, 100 * MS)


HELD_UP = Arrived({}, 1900 * MS, 1990 * MS, failed=False, slow=False, held_up=True)


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ([], None), (ended(*[1990] * 20), None),
        (ended(1990, 1990, failed=True), None), (ended(1990, 1990, 1990, failed=True), "failures"),
        (ended(1990, 1990, slow=True), None), (ended(1990, 1990, 1990, slow=True), "latency"),
        ([*ended(1990, 1990, slow=True), HELD_UP], "latency"), ([HELD_UP] * 2, None), ([HELD_UP] * 3, "latency"),
        (ended(1990, 1990, 1990, failed=True, slow=True), "failures"),
    ],
)  # fmt: skip
def test_half_of_what_the_rule_asks_for_is_a_cause(calls, found):
    """Six of ten are asked for: three are enough, whether they failed, were slow, or were so for their caller."""
    assert why(calls) == found


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "found"),
    [(1400, 1990, "failures"), (1399, 1990, None), (1990, 2010, "failures"), (1990, 2011, None)],
)
def test_what_ended_within_the_window_and_patience_before_or_just_after_may_be_the_cause(first_ms, last_ms, found):
    assert why(ended(first_ms, 1990, last_ms, failed=True)) == found


def test_where_any_share_is_enough_a_call_that_was_well_is_still_no_cause():
    none_asked = {"failure_share": 0.0, "slow_share": 0.0}
    assert why(ended(1990), **none_asked) is None
    assert why(ended(1990, failed=True), **none_asked) == "failures"
    assert why(ended(1990, slow=True), **none_asked) == "latency"
