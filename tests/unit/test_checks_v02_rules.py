"""v02.foreground_first at its bounds: which slots background work may have, and when, in rows written by hand."""

from __future__ import annotations

import pytest

from harness.checks.registry import CHECKS
from harness.checks.v02_foreground import NAME
from harness.checks.verdict import Word
from tests.unit.capacity_trials import failed, open_questions
from tests.unit.written_steps import MS, SERVICE, arrival, decided, holds_to_bounds, judged, ns

FLOOR, FIRST, BEYOND = "background in flight", "background started first", "background in a reserve that is asked for"
SHED, SERVED, RETURN = "shed before background", "served per second", "wait after the return"
LIMIT = SERVICE["reads"]["limit"]
CLASSES = {"people": "interactive", "approvals": "approval_resume", "triage": "autonomous", "upkeep": "maintenance"}
TENANTS = {
    tenant: {"runs": [{"name": "work", "class": kind, "at": "0s", "batches": [[{"dependency": "billing"}]]}]}
    for tenant, kind in CLASSES.items()
}
FLOORS = {"interactive": {"slots": 2, "floor": 1}, "approval_resume": {"slots": 1, "floor": 1}}
RESERVES = {"interactive": {"slots": 2}, "approval_resume": {"slots": 1}}
BURST_MS = 40_000


def call(tenant, due_ms, outcome="served", took_ms=0, **more):
    name = f"{list(CLASSES).index(tenant)}.{int(due_ms)}"
    told = {"action": "submit", "tenant": tenant, "run_id": tenant, "call": name, "outcome": outcome}
    return {**told, "due_ns": ns(due_ms), "done_ns": ns(due_ms + took_ms), **more}


OPENED = [call(tenant, 0, action="open") for tenant in CLASSES]


@pytest.fixture
def judge(tmp_path):
    def judge_them(
        arrivals=(), decisions=(), params=None, calls=(), target="stub", stalled=(), tenants=TENANTS, **capacity
    ):
        given = {"reserves": RESERVES, **capacity}
        says = {"tenants": tenants, "ordinary": [], "phases": {"calm": ["0s", "40s"], "burst": ["40s", "80s"]}}
        rows = [list(each) for each in (arrivals, decisions)]
        more = {"target": target, "says": says, "stalled": stalled, "capacity": given}
        found = judged(NAME, tmp_path, *rows, params or {}, calls=[*OPENED, *calls], **more)
        assert found.word is not Word.INVALID, found.sentence
        return found

    return judge_them


def of(verdict, quantity):
    return [finding for finding in verdict.findings if finding.quantity == quantity]


def at_once(n, run="triage", begin_ms=1_000, took_ms=20, **more):
    return [arrival(run, begin_ms, step=f"x{begin_ms}.{place}", took_ms=took_ms, **more) for place in range(n)]


# --- the floor


@pytest.mark.parametrize(("n", "broken"), [(LIMIT - 2, set()), (LIMIT - 1, {FLOOR})])
@pytest.mark.parametrize("run", ["triage", "upkeep"])
def test_background_work_never_has_the_slots_that_are_never_lent(judge, run, n, broken):
    found = judge([*at_once(n, run), *at_once(4 - n, "people")], reserves=FLOORS)
    assert failed(found) == broken
    assert {each.subject: (each.measured, each.bound, each.samples) for each in of(found, FLOOR)} == {
        "billing reads": (n, LIMIT - 2, n), "all dependencies": (n, 9 - 2, n),
    }  # fmt: skip
    if broken:
        assert set(found.witnesses) == {f"{run}/x1000.{place}" for place in range(n)}
        assert "billing reads: 3 background calls in flight where 2 may be: 2 of 4 slots are never lent" in (
            found.sentence.lower()
        )


@pytest.mark.parametrize(("n", "broken"), [(7, set()), (8, {FLOOR})])
def test_nor_those_of_the_ceiling(judge, n, broken):
    names = [f"d{place}" for place in range(n)]
    rows = [row for name in names for row in at_once(1, dependency=name)]
    found = judge(rows, reserves=FLOORS, dependencies=dict.fromkeys(["billing", *names], SERVICE))
    assert failed(found) == broken
    assert not broken or found.sentence.startswith("All dependencies: 8 background calls in flight where 7 may be")


def test_a_bulkhead_of_no_known_limit_or_without_background_work_hides_no_other(judge):
    rows = [*at_once(9, dependency="a"), *at_once(2, "people", 5_000), *at_once(3, operation="write")]
    assert [each.subject for each in of(judge(rows, reserves=FLOORS), FLOOR) if each.word == "FAIL"] == [
        "billing writes", "all dependencies",
    ]  # fmt: skip


def test_only_floors_of_the_foreground_are_kept(judge):
    reserves = {"interactive": {"slots": 1, "floor": 1}, "maintenance": {"slots": 2, "floor": 2}}
    assert failed(judge(at_once(LIMIT - 1), reserves=reserves)) == set()
    assert failed(judge(at_once(LIMIT), reserves=reserves)) == {FLOOR}


def test_without_a_floor_it_says_what_to_add(judge):
    for found in (judge(at_once(LIMIT)), judge(at_once(LIMIT), reserves=FLOORS, target="url")):
        assert "floor" in open_questions(found)
        assert "`reserves:` with a `floor` for foreground classes" in found.add
        assert not of(found, FLOOR)


@pytest.mark.parametrize(
    ("run", "says", "broken"),
    [
        ("triage", "interactive", {FLOOR}),  # whatever it says of itself
        ("people", "autonomous", set()),
        ("stranger", "autonomous", {FLOOR}),
        ("stranger", "interactive", set()),
        ("stranger", None, set()),
    ],
)
def test_the_class_of_a_call_is_that_of_its_run_as_the_profile_has_it(judge, run, says, broken):
    assert failed(judge(at_once(LIMIT - 1, run, traffic_class=says), reserves=FLOORS)) == broken


# --- taken back: nobody waits below the reserve of its class


def waits(run="people", begin_ms=1_100, until_ms=1_200, **more):
    return [decided(run, at, outcome, **more) for at, outcome in ((begin_ms, "queued"), (until_ms, "admitted"))]


@pytest.mark.parametrize(
    ("at_ms", "broken"), [(1_100, set()), (1_100.001, {FIRST}), (1_199.999, {FIRST}), (1_200, set())]
)
@pytest.mark.parametrize("run", ["people", "approvals"])
def test_no_background_call_starts_while_a_foreground_one_waits(judge, run, at_ms, broken):
    found = judge(at_once(1, begin_ms=at_ms), waits(run))
    assert failed(found) == broken
    assert of(found, FIRST)[0].samples == 1
    assert not broken or found.witnesses == (f"triage/x{at_ms}.0",)


@pytest.mark.parametrize(("run", "reserve"), [("people", 2), ("approvals", 1)])
def test_who_has_the_whole_reserve_in_flight_waits_as_all_do(judge, run, reserve):
    waiting = waits(run, step="b1.0")
    for busy in (reserve - 1, reserve):
        rows = [*at_once(busy, run, 1_000, 190), *at_once(1, begin_ms=1_150, took_ms=1)]
        assert failed(judge(rows, waiting)) == (set() if busy == reserve else {FIRST})
    others = [row for other in ("people", "approvals") if other != run for row in at_once(2, other, 1_000, 190)]
    assert FIRST in failed(judge([*others, *at_once(1, begin_ms=1_150, took_ms=1)], waiting))


@pytest.mark.parametrize("more", [{"operation": "write"}, {"dependency": "elsewhere"}, {"run": "people"}])
def test_who_starts_elsewhere_or_is_no_background_work_takes_no_turn(judge, more):
    rows = [{**row, "step": "b9.0", **more} for row in at_once(1, begin_ms=1_150)]
    assert failed(judge(rows, waits())) == set()


def test_each_wait_and_each_class_is_looked_at(judge):
    told = [*waits(), *waits("people", 2_000, 2_100, step="b1.0"), *waits("approvals", 3_000, 3_100)]
    rows = [row for at in (1_050, 2_050, 2_500, 3_050) for row in at_once(1, begin_ms=at, took_ms=1)]
    found = judge(rows, told)
    assert found.witnesses == ("triage/x2050.0", "triage/x3050.0")
    assert of(found, FIRST)[0].samples == 3
    assert "2 background calls started while a foreground call waited below its reserve" in found.sentence


@pytest.mark.parametrize(
    ("admitted_ms", "arrived_ms", "broken"),
    [
        (1_150, 1_199, {FIRST}),
        (1_090, 1_110, set()),  # it was started before anybody waited
        (1_090, 1_140, set()),
        (1_090, 1_140.001, {FIRST}),  # a start that long ago is not believed
        (1_190, 1_210, {FIRST}),
        (1_220, 1_150, {FIRST}),  # nor one after the arrival
    ],
)
def test_a_call_starts_when_it_is_admitted_where_that_is_believable(judge, admitted_ms, arrived_ms, broken):
    told = [*waits(), decided("triage", admitted_ms, "admitted", step="t.0")]
    assert failed(judge([arrival("triage", arrived_ms, step="t.0")], told)) == broken


def test_a_later_attempt_starts_when_it_arrives(judge):
    told = [*waits(), decided("triage", 1_090, "admitted", step="t.0")]
    rows = [arrival("triage", 1_091, step="t.0", status=500), arrival("triage", 1_120, 2, step="t.0")]
    assert failed(judge(rows, told)) == {FIRST}


def test_a_call_may_be_on_its_way_for_as_long_as_the_harness_stood_still(judge):
    told = [*waits(), decided("triage", 1_090, "admitted", step="t.0")]
    rows = [arrival("triage", 1_160, step="t.0")]
    assert (failed(judge(rows, told)), failed(judge(rows, told, stalled=[(1_100, 1_150)]))) == ({FIRST}, set())
    assert failed(judge(rows, told, {"started": "70ms"})) == set()


# --- taken back: nothing starts in a reserve that is asked for


@pytest.mark.parametrize(
    ("at_ms", "broken"), [(1_000, set()), (1_000.001, {BEYOND}), (1_050, {BEYOND}), (1_050.001, set())]
)
def test_a_reserve_is_asked_for_until_a_service_time_after_its_last_call(judge, at_ms, broken):
    """Three at once where four may be, and two if people have just asked."""
    found = judge([*at_once(1, "people", 1_000, 0.0001), *at_once(3, begin_ms=at_ms)])
    assert failed(found) == broken
    assert {each.subject: each.samples for each in of(found, BEYOND)} == {"billing reads": 3, "all dependencies": 3}
    if broken:
        assert set(found.witnesses) == {f"triage/x{at_ms}.{place}" for place in range(3)}
        assert "3 background calls started in slots of a class that had just asked: not taken back" in found.sentence


@pytest.mark.parametrize(
    ("asked", "room"), [((), 4), (("people",), 2), (("approvals",), 3), (("people", "approvals"), 1), (("upkeep",), 4)]
)
def test_each_class_that_has_just_asked_has_its_own_reserve_back(judge, asked, room):
    just = [row for run in asked for row in at_once(1, run, 990, 1)]
    reserves = {**RESERVES, "maintenance": {"slots": 1}}
    assert failed(judge([*just, *at_once(room)], reserves=reserves)) == set()
    if room < LIMIT:
        assert failed(judge([*just, *at_once(room + 1)], reserves=reserves)) == {BEYOND}


def test_the_ceiling_has_reserves_as_well_for_as_long_as_the_quickest_call(judge):
    """Of two dependencies, 50 ms and 90 ms; people have asked the slower one."""
    both = {"billing": SERVICE, "slow": {**SERVICE, "service_time": "90ms"}}
    for ago_ms, subjects in ((50, ["all dependencies"]), (51, [])):
        rows = [
            *at_once(1, "people", 1_000 - ago_ms, 1, dependency="slow"),
            *at_once(2),
            *at_once(1, "upkeep", dependency="slow"),
        ]
        found = judge(rows, dependencies=both, ceiling=4)
        assert [each.subject for each in of(found, BEYOND) if each.word == "FAIL"] == subjects
    for ago_ms, subjects in ((90, ["slow reads"]), (91, [])):
        rows = [*at_once(1, "people", 1_000 - ago_ms, 1, dependency="slow"), *at_once(3, dependency="slow")]
        found = judge(rows, dependencies=both)
        assert [each.subject for each in of(found, BEYOND) if each.word == "FAIL"] == subjects


def test_a_dependency_that_the_profile_does_not_have_has_no_reserve_and_hides_no_other(judge):
    rows = [
        *at_once(1, "people", 990, 1),
        *at_once(3),
        *at_once(3, "upkeep", dependency="a"),
        *at_once(1, begin_ms=1_030, operation="write"),
    ]
    found = judge(rows)
    assert {each.subject: each.word for each in of(found, BEYOND)} == {
        "billing reads": "FAIL", "billing writes": "PASS", "all dependencies": "PASS",
    }  # fmt: skip


def test_without_reserves_or_of_a_target_of_its_own_nothing_is_to_be_taken_back(judge):
    rows = [*at_once(1, "people", 990, 1), *at_once(4)]
    assert not of(judge(rows, reserves={}), BEYOND)
    assert not of(judge(rows, target="url"), BEYOND)
    assert FIRST not in failed(judge(at_once(1, begin_ms=1_150), waits(), target="url"))
    assert not of(judge(at_once(1, "people")), BEYOND)


def test_what_arrived_after_a_stall_had_perhaps_been_asked_for_before_it(judge):
    rows = [*at_once(1, "people", 1_000, 1), *at_once(3, begin_ms=1_040)]
    assert (failed(judge(rows)), failed(judge(rows, stalled=[(900, 1_000)]))) == ({BEYOND}, set())


# --- who is shed first


def shed(at_ms, outcome="throttled", reason="queue_full", run="people", **more):
    return decided(run, at_ms, outcome, reason, step="b5.0", **more)


@pytest.mark.parametrize(
    ("row", "broken"),
    [
        (shed(1_150), {SHED}),
        (shed(1_150, run="approvals"), {SHED}),
        (shed(1_150, run="upkeep"), set()),
        (shed(1_100), set()),
        (shed(1_100.001), {SHED}),
        (shed(1_199.999), {SHED}),
        (shed(1_200), set()),
        (shed(1_150, reason=None), {SHED}),
        (shed(1_150, reason="tenant_queue_full"), set()),
        (shed(1_150, "expired"), set()),
        (shed(1_150, "queued"), set()),
        (shed(1_150, operation="write"), set()),
    ],
)
@pytest.mark.parametrize("background", ["triage", "upkeep"])
def test_no_foreground_call_is_shed_while_background_work_waits_in_its_queue(judge, background, row, broken):
    found = judge((), [shed(900, reason="tenant_queue_full"), *waits(background), {**row, "step": "b6.0"}],
                  calls=[call("approvals", 50)])  # fmt: skip
    assert failed(found) == broken
    assert of(found, SHED)[0].samples == 1
    assert not broken or found.witnesses == (f"{row['run']}/b6.0",)


def test_refusals_of_all_the_foreground_may_rise_by_the_margin_and_of_no_other(judge):
    def lost(*tenants):
        rows = [
            call(tenant, at * 500, "throttled" if tenant in tenants and at >= 80 else "served")
            for tenant in CLASSES for at in range(1, 160)
        ]  # fmt: skip
        return judge(calls=rows, params={"refusals_up_pp": 2.0})

    for tenant in ("people", "approvals"):
        found = lost(tenant)
        assert "refusals up" in failed(found)
        assert [(each.bound, each.samples) for each in of(found, "refusals up")] == [(2, 160)]
    assert failed(lost("triage", "upkeep")) == set()


# --- how many are served, and how long they wait


def each_second(n, from_ms=0, **more):
    """Served calls of people, one a second."""
    return [call("people", from_ms + 1_000 * at + 1, **more) for at in range(n)]


@pytest.mark.parametrize(
    ("served", "params", "broken"),
    [
        (36, {}, set()),
        (35, {}, {SERVED}),
        (35, {"served_share": 0.875}, set()),
        (34, {"served_share": 0.875}, {SERVED}),
        (20, {"served": "0.5/s"}, set()),
        (19, {"served": "0.5/s"}, {SERVED}),
    ],
)
def test_people_are_served_as_often_as_the_floor_says(judge, served, params, broken):
    """Forty of them in calm's forty seconds."""
    others = [call("approvals", at, number) for at, number in ((90, "served"), (50_000, "served"))]
    unserved = [call("people", 70_000 + at, "failed") for at in range(10)]
    found = judge(calls=[*each_second(40), *each_second(served, BURST_MS), *others, *unserved], params=params)
    assert SERVED in failed(found) if broken else SERVED not in failed(found)
    [finding] = of(found, SERVED)
    assert (finding.measured, finding.samples) == (served / 40, 40 + served)
    # Whose wait is told: who was served, in the burst once lent calls have ended.
    assert [each.measured for each in of(found, "p95 latency")] == [served - 1]


def test_a_call_is_served_in_the_phase_in_which_it_was_done(judge):
    done = [(39_000, 1_000), (70_000, 10_000), (79_000, 999.999)]
    found = judge(calls=[call("people", due, took_ms=took) for due, took in done])
    assert [each.measured for each in of(found, SERVED)] == [2 / 40]


@pytest.mark.parametrize(
    ("due_ms", "over_ms", "params", "broken"),
    [
        (BURST_MS, 140, {}, set()),
        (BURST_MS, 140.001, {}, {RETURN}),
        (BURST_MS + 89.999, 141, {}, {RETURN}),
        (BURST_MS + 90, 999, {}, None),
        (BURST_MS - 1, 999, {}, None),
        (BURST_MS, 35, {"settle": "20ms", "latency_up": "15ms"}, set()),
        (BURST_MS, 35.001, {"settle": "20ms", "latency_up": "15ms"}, {RETURN}),
        (BURST_MS + 20, 999, {"settle": "20ms", "latency_up": "15ms"}, None),
    ],
)
def test_who_comes_back_first_waits_a_service_time_and_the_margin_longer_than_in_calm(
    judge, due_ms, over_ms, params, broken
):
    """90 ms, the longest of all services, until lent calls have ended; and 50 ms, of whom people call, as a margin."""
    both = {"billing": SERVICE, "slow": {**SERVICE, "service_time": "90ms"}}
    calls = [*each_second(39, took_ms=10), call("people", due_ms, took_ms=10 + over_ms)]
    found = judge(calls=calls, params=params, dependencies=both)
    if broken is None:
        assert of(found, RETURN) == []
        return
    assert (RETURN in failed(found), of(found, RETURN)[0].samples) == (bool(broken), 1)
    assert of(found, RETURN)[0].bound == (35 if params else 140)


def test_of_a_target_of_its_own_the_margin_is_given_or_not_known(judge):
    found = judge(calls=each_second(80), target="url")
    assert "margin of the latency" in open_questions(found)
    assert "give `latency_up`" in found.add
    given = judge(calls=each_second(80), target="url", params={"latency_up": "5ms"})
    assert "margin of the latency" not in open_questions(given)
    assert [each.measured for each in of(given, "p95 latency")] == [40]


def test_the_margin_of_the_p95_is_the_longest_service_that_people_call(judge):
    """Whatever others call; and it is the slowest calls once lent ones have ended that are named."""
    both = {"billing": SERVICE, "slow": {**SERVICE, "service_time": "90ms"}}
    slow = [call("people", at * 100 + 1, took_ms=10 + (at >= 400) * (60 + at % 7)) for at in range(800)]
    work = TENANTS["triage"]["runs"][0]
    triage = {"runs": [{**work, "batches": [[{"dependency": "slow"}]]}]}
    found = judge(calls=slow, dependencies=both, tenants={**TENANTS, "triage": triage})
    [finding] = of(found, "p95 latency up")
    assert (finding.bound, finding.word, finding.samples) == (50, "FAIL", 799)
    named = {slow[int(each.partition(".")[2]) // 100]["done_ns"] for each in found.witnesses}
    assert len(named) == len(found.witnesses) == 20
    assert {call["done_ns"] - call["due_ns"] for call in slow if call["done_ns"] in named} == {76 * MS}


# --- what a profile may say


def test_a_profile_that_says_nothing_more_is_judged_by_these(judge):
    assert judge().word is Word.INCONCLUSIVE
    assert CHECKS[NAME].params().model_dump() == {
        "latency_up": None, "settle": None, "served": None, "served_share": 0.9, "refusals_up_pp": 1.0,
        "confidence": 0.95, "started": 50 * MS, "background": 20,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("served_share", (0.001, 1), (0, 1.001)), ("refusals_up_pp", (0.001, 99.9), (0, 100)),
        ("confidence", (0.8, 0.999), (0.799, 1.0)),
    ],
)  # fmt: skip
def test_a_figure_is_taken_up_to_its_bounds_and_refused_beyond_them(judge, name, taken, refused):
    holds_to_bounds(judge, NAME, name, taken, refused)


def test_who_comes_back_first_is_held_against_nothing_where_nobody_called_in_calm(judge):
    found = judge(calls=[call("people", BURST_MS + 1, took_ms=900)])
    assert of(found, RETURN) == []
    assert "p95 latency" in open_questions(found)
