"""v03.tenant_share at its bounds: whose call it was, the slots and the queue of a flood, in rows written by hand."""

from __future__ import annotations

import pytest

from harness.checks.registry import CHECKS
from harness.checks.v03_tenant_share import NAME
from harness.checks.verdict import Word
from tests.unit.capacity_trials import failed, open_questions
from tests.unit.written_steps import SERVICE, arrival, decided, holds_to_bounds, judged, opened

CHARGED, IN_FLIGHT, WAITING = "charged to another", "calls in flight", "steps waiting"
LIMIT = SERVICE["reads"]["limit"]


def call(tenant, number=0, **more):
    place = ("quiet", "flood", "other").index(tenant)
    told = {"action": "open", "tenant": tenant, "run_id": tenant, "outcome": "served", "due_ns": 0}
    return {**told, "call": f"{place}.{number}", **more}


CALLS = [call("quiet"), call("flood"), call("other")]
TENANTS = {
    name: {"runs": [{"name": "work", "at": "0s", "batches": [[{"dependency": "billing"}]]}]}
    for name in ("quiet", "flood", "other")
}


@pytest.fixture
def judge(tmp_path):
    def judge_them(arrivals=(), decisions=(), params=None, calls=CALLS, target="stub", says=None, **capacity):
        profile = {"tenants": TENANTS, "ordinary": ["quiet"], **(says or {})}
        rows = [list(each) for each in (arrivals, decisions)]
        found = judged(NAME, tmp_path, *rows, params or {}, calls=calls, target=target, says=profile, capacity=capacity)
        assert found.word is not Word.INVALID, found.sentence
        return found

    return judge_them


def of(verdict, quantity):
    return [finding for finding in verdict.findings if finding.quantity == quantity]


# --- who is charged


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (decided("flood", 5, tenant="quiet", step="b0.3"), "flood/b0.3"),
        (opened("flood", tenant="quiet"), "flood"),
    ],
)
def test_a_decision_that_names_another_tenant_is_a_breach_as_an_arrival_is(judge, row, named):
    found = judge((), [opened("quiet", tenant="quiet"), row])
    assert (failed(found), found.witnesses) == ({CHARGED}, (named,))
    assert of(found, CHARGED)[0].samples == 2


def test_rows_that_name_no_tenant_and_decisions_of_no_run_are_no_evidence_of_a_charge(judge):
    found = judge([arrival("flood", 1)], [{**decided("", 1, tenant="quiet"), "run": None}, opened("flood")])
    assert (of(found, CHARGED)[0].samples, CHARGED in open_questions(found)) == (0, True)
    assert of(judge([arrival("flood", 1, tenant="flood")]), CHARGED)[0].samples == 1
    assert failed(judge([arrival("flood", 1), arrival("flood", 2, tenant="quiet")])) == {CHARGED}


@pytest.mark.parametrize(("n", "shown"), [(1, "t0"), (3, "t0, t1, t2"), (4, "t0, t1, t2 and 1 more")])
def test_three_that_were_charged_are_named(judge, n, shown):
    rows = [arrival("flood", at, tenant=f"t{place}") for place in range(n) for at in (2 * place, 2 * place + 1)]
    assert f"calls were charged to {shown}, not to" in judge(rows).sentence


def test_a_call_counts_once_however_many_rows_charge_it_and_a_long_name_is_cut(judge):
    rows = [arrival("flood", at, tenant="x" * 41) for at in (1, 2)]
    found = judge(rows)
    assert found.sentence.startswith(f"1 calls were charged to {'x' * 40}, not to")


# --- the flood's slots


def under_way(n, run="flood", begin_ms=10, **more):
    """So many calls at once."""
    return [arrival(run, begin_ms, step=f"b{n}.{place}", took_ms=50, **more) for place in range(n)]


SHARES = {"quiet": {"slots": 1}, "other": {"slots": 1}, "flood": {"slots": 1}}


@pytest.mark.parametrize(("n", "broken"), [(LIMIT - 2, set()), (LIMIT - 1, {IN_FLIGHT})])
@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_flood_uses_what_is_kept_for_no_other_and_not_one_slot_more(judge, n, broken, kind):
    found = judge(under_way(n, operation=kind), shares=SHARES)
    assert failed(found) == broken
    [finding] = of(found, IN_FLIGHT)
    assert (finding.subject, finding.measured, finding.bound) == (f"flood at billing {kind}s", n, LIMIT - 2)
    assert finding.samples == n
    if broken:
        assert set(found.witnesses) == {f"flood/b{n}.{place}" for place in range(n)}
        assert f"{n} calls in flight where 2 may be: 2 of 4 are kept for others" in found.sentence


@pytest.mark.parametrize("shares", [{}, {"flood": {"slots": 3}}, {"quiet": {"slots": 0}}])
def test_where_nothing_is_kept_for_another_a_flood_may_use_the_limit(judge, shares):
    assert of(judge(under_way(LIMIT), shares=shares), IN_FLIGHT) == []


def test_calls_of_others_and_at_a_dependency_of_no_known_limit_are_not_the_floods(judge):
    rows = [*under_way(2), *under_way(2, "quiet"), *under_way(9, dependency="a")]
    found = judge(rows, shares=SHARES)
    assert [(each.subject, each.measured) for each in of(found, IN_FLIGHT)] == [("flood at billing reads", 2)]


def test_each_tenant_that_is_not_protected_is_held_to_its_own_bound(judge):
    rows = [*under_way(1), *under_way(2, "other")]
    found = judge(rows, shares={**SHARES, "other": {"slots": 2}})
    bounds = {each.subject: each.bound for each in of(found, IN_FLIGHT)}
    assert bounds == {"flood at billing reads": LIMIT - 3, "other at billing reads": LIMIT - 2}


def test_a_tenant_whose_class_has_slots_of_its_own_may_use_those(judge):
    """One that was passed over hides no other."""
    people = {"runs": [{**TENANTS["flood"]["runs"][0], "class": "interactive"}]}
    tenants = {"quiet": TENANTS["quiet"], "flood": people, "other": TENANTS["other"]}
    rows = [*under_way(LIMIT), *under_way(LIMIT, "other", 100)]
    reserves = {"interactive": {"slots": 1}}
    found = judge(rows, says={"tenants": tenants}, shares=SHARES, reserves=reserves)
    assert {each.subject for each in of(found, IN_FLIGHT)} == {"other at billing reads"}
    plain = judge(rows, says={"tenants": tenants}, shares=SHARES, reserves={"maintenance": {"slots": 1}})
    assert {each.subject for each in of(plain, IN_FLIGHT)} == {"flood at billing reads", "other at billing reads"}


def test_of_a_target_of_its_own_slots_and_queues_are_not_known(judge):
    found = judge(under_way(LIMIT), waiting(9), target="url", shares=SHARES, tenant_queue=1)
    assert not of(found, IN_FLIGHT)
    assert not of(found, WAITING)
    assert "margin of the latency" in open_questions(found)
    assert "give `latency_up`" in found.add
    given = judge(under_way(LIMIT), target="url", params={"latency_up": "5ms"})
    assert "margin of the latency" not in open_questions(given)


# --- the flood's queue


def waiting(n, run="flood", begin_ms=10, until_ms=60, **more):
    return [
        decided(run, at, outcome, step=f"b0.{place}", **more)
        for place in range(n) for at, outcome in ((begin_ms, "queued"), (until_ms, "throttled"))
    ]  # fmt: skip


@pytest.mark.parametrize(("queue", "bound"), [({}, 2), ({"flood": {"slots": 0, "queue": 3}}, 3)])
def test_a_queue_holds_as_many_as_its_share_says_or_as_any_tenants(judge, queue, bound):
    for n in (bound, bound + 1):
        found = judge((), waiting(n), shares={"quiet": {"slots": 1, "queue": 9}, **queue}, tenant_queue=2)
        assert failed(found) == ({WAITING} if n > bound else set())
        [finding] = of(found, WAITING)
        assert (finding.subject, finding.measured, finding.bound) == ("flood at billing reads", n, bound)
        assert finding.samples == n
    assert f"{bound + 1} steps waited at once where its queue holds {bound}" in found.sentence


def test_each_bulkhead_has_a_queue_of_its_own_and_who_left_it_waits_no_more(judge):
    rows = [*waiting(1), *waiting(1, begin_ms=60, until_ms=90), *waiting(1, operation="write")]
    told = [dict(row, step=f"b0.{place // 2}") for place, row in enumerate(rows)]
    found = judge((), told, tenant_queue=1)
    assert {each.subject: each.measured for each in of(found, WAITING)} == {
        "flood at billing reads": 1, "flood at billing writes": 1,
    }  # fmt: skip
    assert [each.measured for each in of(judge((), waiting(2, "quiet"), tenant_queue=1), WAITING)] == []


# --- how much there was to see


def seen(verdict):
    return {finding.quantity: finding.measured for finding in verdict.findings}


def test_a_flood_was_one_that_waited_or_was_shed_itself(judge):
    """One step waited and was served, one waited and was shed, one was shed at once, and two were served at once."""
    rows = [
        decided("flood", 1, "queued"), decided("flood", 2, "served"),
        decided("flood", 1, "queued", step="b0.1"), decided("flood", 2, "throttled", step="b0.1"),
        decided("flood", 1, "throttled", step="b0.2"), decided("flood", 1, "served", step="b0.3"),
        decided("flood", 1, "served", step="b0.4"),
        *waiting(5, "quiet"), decided("stranger", 1, "throttled"),
    ]  # fmt: skip
    found = seen(judge((), rows))
    assert (found["queued or shed"], found["shed, its queue full"]) == (3, 2)


@pytest.mark.parametrize(("have", "flooded"), [(2, 3), (3, 3)])
def test_so_much_is_enough(judge, have, flooded):
    rows = [arrival("flood", 100 * at, tenant="flood", step=f"b0.{at}") for at in range(have)]
    found = judge([*rows, arrival("flood", 900, step="b0.9")], waiting(have), {"flooded": flooded})
    open_ones = {"queued or shed", "arrivals that name their tenant"} & open_questions(found)
    assert bool(open_ones) == (have < flooded)
    assert seen(found)["arrivals that name their tenant"] == have


def test_one_step_that_was_shed_shows_a_queue_that_was_full(judge):
    assert "shed, its queue full" not in open_questions(judge((), waiting(1)))
    assert "shed, its queue full" in open_questions(judge((), []))


def test_protected_tenants_are_those_that_have_slots(judge):
    protected = "protected tenants with slots"
    says = {"ordinary": ["quiet", "other"]}
    assert seen(judge(says=says, shares=SHARES))[protected] == 2
    assert seen(judge(says=says, shares={"quiet": {"slots": 1}, "other": {"slots": 0}}))[protected] == 1
    none = judge(says=says, shares={"flood": {"slots": 1}})
    assert (seen(none)[protected], protected in open_questions(none)) == (0, True)
    assert protected not in open_questions(judge(says=says, shares={"quiet": {"slots": 1}}))


def test_the_margin_is_half_of_the_longest_service_time(judge):
    """Of the two dependencies, 50 ms and 90 ms. Two calls in calm and two in the burst."""
    calls = [
        call("quiet", at, action="submit", due_ns=at * 10**9, done_ns=at * 10**9 + 30_000_000) for at in (0, 1, 50, 51)
    ]  # fmt: skip
    slow = {**SERVICE, "service_time": "90ms"}
    found = judge(calls=calls, dependencies={"billing": SERVICE, "slow": slow})
    assert [each.bound for each in of(found, "mean latency up")] == [45]
    assert [each.bound for each in of(judge(calls=calls, params={"latency_up": "7ms"}), "mean latency up")] == [7]


def test_where_no_margin_is_known_a_latency_that_rises_is_not_held_against_the_layer(judge):
    """A target of its own, and a profile without `latency_up`: 2 ms more in the burst."""
    calls = [call("quiet", at, action="submit", due_ns=at * 10**9, done_ns=at * 10**9 + took)
             for at in range(80) for took in [30_000_000 + (at >= 40) * 2_000_000]]  # fmt: skip
    found = judge(calls=calls, target="url")
    assert (failed(found), of(found, "mean latency up")) == (set(), [])
    assert "margin of the latency" in open_questions(found)
    assert {each.subject for each in of(found, "served share down")} == {"quiet"}


# --- what a profile may say


def test_a_profile_that_says_nothing_more_is_judged_by_these(judge):
    assert judge().word is Word.INCONCLUSIVE
    assert CHECKS[NAME].params().model_dump() == {
        "served_down_pp": 1.0, "refusals_up_pp": 1.0, "latency_up": None, "confidence": 0.95, "flooded": 50,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("served_down_pp", (0.001, 99.9), (0, 100)), ("refusals_up_pp", (0.001, 99.9), (0, 100)),
        ("confidence", (0.8, 0.999), (0.799, 1.0)),
    ],
)  # fmt: skip
def test_a_figure_is_taken_up_to_its_bounds_and_refused_beyond_them(judge, name, taken, refused):
    holds_to_bounds(judge, NAME, name, taken, refused)
