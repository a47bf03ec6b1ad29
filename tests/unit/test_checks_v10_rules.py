"""v10.outage_recovery, rule by rule: an outage from 1.0 s to 2.1 s, and few steps that wait, written by hand."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from tests.unit.capacity_trials import failed
from tests.unit.ledgers import Rows
from tests.unit.written_steps import SERVICE, arrival, decided, judged, opened, turned

NONE_ASKED = dict.fromkeys(("stale", "drained", "ordered", "pressed", "interactive", "second_wave"), 0)
OPENED, CLOSED, AGAIN = 1_000, 2_100, 6_000
TURNS = [turned(OPENED, "opened"), turned(2_000, "half_open"), turned(CLOSED, "closed")]
FAULT = {"dependency": "billing", "kind": "hang", "from": "900ms", "to": "2s"}
NEXT = {"dependency": "billing", "kind": "hang", "from": "6s", "to": "7s"}
LATE, OTHERWISE = "started after their deadline", "went stale and did not end `expired`"
ORDER, PEOPLE = "started before more urgent work", "of interactive work were held up by the backlog"
READS, RATE = "reads waiting at once", "starts beyond the tested capacity"
REOPENED = "of the second wave met a circuit that opened again"
NEVER_CLOSED = "met a circuit that never closed again after the outage"
DRAINED, BY_FIFO = "waiting at the closing, and started", "a first-in-first-out drain would hold up"

WIDE = {"dependencies": {"billing": SERVICE | {"reads": {"limit": 40, "queue": 40, "timeout": "9s"}}}}

Step = tuple[Rows, Rows]
"""What arrived of it, and what was decided on it."""


def step(
    run: str, queued_ms: float | None, start_ms: float | None = None, *, end: str | None = "served",
    end_ms: float | None = None, deadline_ms: float = 20_000, name: str = "autonomous", **more: object,
) -> Step:  # fmt: skip
    """It waits from `queued_ms` on, and starts or not. end: how, at `end_ms` or when it starts; None: it never does."""
    told = {"traffic_class": name, **more}
    rows = [] if start_ms is None else [arrival(run, start_ms, **told)]
    ended_ms = end_ms if end_ms is not None else start_ms
    decisions = [opened(run, deadline_ms)]
    if queued_ms is not None:
        decisions.append(decided(run, queued_ms, "queued", **told))
    if end is not None and ended_ms is not None:
        decisions.append(decided(run, ended_ms, end, **told))
    return rows, decisions


@pytest.fixture
def judge(tmp_path):
    def judge_them(*steps, turns=TURNS, faults=(FAULT,), params=None, **more):
        arrivals = [row for rows, _ in steps for row in rows]
        decisions = [*turns, *(row for _, rows in steps for row in rows)]
        given = {**NONE_ASKED, "out_of_order": 0.0, **(params or {})}
        return judged("v10.outage_recovery", tmp_path, arrivals, decisions, given, faults=faults, **more)

    return judge_them


def finding(found, quantity: str):
    return next(each for each in found.findings if each.quantity == quantity)


def test_a_backlog_that_drains_by_the_rules_breaks_none(judge):
    found = judge(step("a", 1_100, 2_200), step("b", 1_200, end="expired", end_ms=1_700, deadline_ms=1_700))
    assert found.word is Word.PASS, found.sentence
    assert found.sentence.startswith("1 stale steps expired and none of them started; 1 others drained")
    assert (finding(found, DRAINED).measured, finding(found, BY_FIFO).measured) == (1, 0)


# --- an outage that does not end


def refused(run: str, at_ms: float, end: str = "dependency_unavailable", **more: object) -> Step:
    return step(run, None, end=end, end_ms=at_ms, **more)


@pytest.mark.parametrize(
    ("turns", "faults", "at_ms", "broken"),
    [
        (TURNS[:1], [FAULT], 4_000.001, True),  # two cool-downs of a second after the fault
        (TURNS[:1], [FAULT], 4_000, False),
        (TURNS[:2], [FAULT], 4_001, True),
        ([*TURNS, turned(3_000, "opened")], [FAULT], 4_001, True),
        (TURNS, [FAULT], 4_001, False),
        ([], [FAULT], 4_001, False),
        (TURNS[:1], [FAULT, FAULT | {"to": "3s"}], 4_500, False),  # the last of its faults counts
        (TURNS[:1], [FAULT, FAULT | {"to": "3s"}], 5_001, True),
        (TURNS[:1], [FAULT, FAULT | {"dependency": "other", "to": "9s"}], 4_001, True),  # another's does not
        (TURNS[:1], [{k: v for k, v in FAULT.items() if k != "to"}], 9_000, False),  # it never ends
        (TURNS[:1], [FAULT, {k: v for k, v in FAULT.items() if k != "to"}], 9_000, False),
        (TURNS[:1], [], 9_000, False),
    ],
)
def test_a_circuit_has_to_close_once_the_faults_are_over(judge, turns, faults, at_ms, broken):
    capacity = {"dependencies": {"billing": SERVICE, "other": SERVICE}}
    found = judge(
        refused("a", at_ms), turns=turns, faults=faults, params={"second_wave": 1}, capacity=capacity
    )  # fmt: skip
    assert (NEVER_CLOSED in failed(found)) is broken
    assert "the check itself broke" not in found.sentence
    if not broken and turns != TURNS and len(turns) < 4:
        assert found.sentence.startswith("Cannot be judged: no circuit opened and closed again"), found.sentence


@pytest.mark.parametrize(("many", "broken"), [(1, False), (2, True)])
def test_it_is_never_closed_for_those_that_it_does_not_serve(judge, many, broken):
    served = [step(f"s{n}", None, 5_000 + n) for n in range(3)]
    steps = [refused(f"r{n}", 5_000, *(["failed"] if n else [])) for n in range(many)]
    found = judge(*steps, *served, turns=TURNS[:1], params={"second_wave": 2})
    assert (NEVER_CLOSED in failed(found)) is broken
    if broken:
        assert (finding(found, NEVER_CLOSED).measured, finding(found, NEVER_CLOSED).samples) == (2, 5)
        assert set(found.witnesses) == {"r0/b0.0", "r1/b0.0"}


def test_one_that_recovered_does_not_hide_another_that_did_not(judge):
    capacity = {"dependencies": {"billing": SERVICE, "other": SERVICE}}
    faults = [FAULT, FAULT | {"dependency": "other"}]
    lost = refused("x", 5_000, dependency="other")
    found = judge(
        step("a", 1_100, 2_200), lost, turns=[*TURNS, turned(OPENED, "opened", "other")], faults=faults,
        params={"second_wave": 1}, capacity=capacity,
    )  # fmt: skip
    assert (NEVER_CLOSED in failed(found), finding(found, DRAINED).measured) == (True, 1)


# --- stale work


@pytest.mark.parametrize(
    ("start_ms", "end", "end_ms", "broken"),
    [
        (None, "expired", 1_700, set()),
        (None, "failed", 1_700, {OTHERWISE}),
        (None, "failed", 1_699.999, set()),  # it had ended before
        (None, None, None, {OTHERWISE}),
        (1_725, "served", 1_800, set()),
        (1_725.001, "served", 1_800, {LATE}),  # and is not blamed for its end as well
        (3_000, "expired", 1_700, {LATE}),
    ],
)
def test_what_waits_at_its_deadline_expires_and_never_starts(judge, start_ms, end, end_ms, broken):
    found = judge(step("a", 1_100, start_ms, end=end, end_ms=end_ms, deadline_ms=1_700), step("b", 1_100, 2_200))
    assert failed(found) & {LATE, OTHERWISE} == broken
    if broken == {OTHERWISE}:
        assert f"(first a/b0.0: ended {end or 'nowhere'})" in found.sentence


def test_what_is_late_in_the_next_outage_is_not_this_ones(judge):
    """It is first heard of when the next fault has begun."""
    late = step("x", AGAIN, AGAIN + 900, deadline_ms=AGAIN + 500)
    assert failed(judge(step("a", 1_100, 2_200), late, faults=[FAULT, NEXT])) == set()
    assert failed(judge(step("a", 1_100, 2_200), late)) == {LATE}


# --- order


def overtaken(
    start_ms: float, urgent_start_ms: float = 5_000, queued_ms: float = 1_100, **urgent: object
) -> list[Step]:
    """A start at `start_ms` while something more urgent goes on waiting."""
    return [
        step("low", 1_000.5, start_ms, name="maintenance"),
        step("urgent", queued_ms, urgent_start_ms, **{"name": "approval_resume", **urgent}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start_ms", "urgent", "broken"),
    [
        (2_200, {}, True),
        (2_200, {"queued_ms": 2_180}, True),
        (2_200, {"queued_ms": 2_180.001}, False),  # it had only just come
        (2_200, {"urgent_start_ms": 2_220}, False),  # both at once
        (2_200, {"urgent_start_ms": 2_220.001}, True),
        (2_200, {"urgent_start_ms": 2_150}, False),
        (CLOSED, {}, True),
        (CLOSED - 0.001, {}, False),  # a probe is nobody's turn
        (2_200, {"name": "maintenance"}, False),  # as urgent
        (2_200, {"name": "maintenance", "deadline_ms": 19_999}, True),  # an earlier deadline
        (2_200, {"name": "maintenance", "deadline_ms": 20_001}, False),
        (2_200, {"name": "autonomous", "deadline_ms": 30_000}, True),  # the class comes first
        (2_200, {"name": "unheard_of", "deadline_ms": 10_000}, False),  # one that nobody knows comes last
    ],
)
def test_the_more_urgent_starts_first(judge, start_ms, urgent, broken):
    found = judge(*overtaken(start_ms, **urgent))
    assert failed(found) == ({ORDER} if broken else set())
    if broken:
        assert found.witnesses == ("low/b0.0",)
        assert "(first low/b0.0: while urgent/b0.0 waited, which is more urgent)" in found.sentence


def test_what_never_starts_overtakes_nobody_and_what_waits_unstarted_is_overtaken(judge):
    gone = step("gone", 1_000.5, end="expired", end_ms=2_500, deadline_ms=2_500, name="maintenance")
    urgent = step("urgent", 1_100, 5_000, name="approval_resume")
    assert failed(judge(gone, urgent)) == set()
    assert finding(judge(gone, urgent), ORDER).samples == 1
    waits = step("waits", 1_100, end="cancelled", end_ms=5_000, name="approval_resume")
    assert failed(judge(step("low", 1_100, 2_200), waits)) == {ORDER}


def test_starts_are_taken_in_order_of_time_however_they_were_queued(judge):
    last = step("last", 1_010, 8_000, name="maintenance")
    early = step("early", 1_020, 2_500, name="maintenance")
    urgent = step("urgent", 1_030, 3_000, name="approval_resume")
    found = judge(last, early, urgent)
    assert (failed(found), found.witnesses) == ({ORDER}, ("early/b0.0",))


@pytest.mark.parametrize(("share", "broken"), [(0.5, False), (0.49, True)])
def test_a_share_may_overtake(judge, share, broken):
    """One of two starts."""
    found = judge(*overtaken(2_200), params={"out_of_order": share})
    assert failed(found) == ({ORDER} if broken else set())


def test_steps_without_a_deadline_wait_for_those_that_have_one(judge):
    endless = [(rows, decisions[1:]) for rows, decisions in (step("e1", 1_100, 2_200), step("e2", 1_100, 2_300))]
    assert failed(judge(*endless)) == set()
    assert failed(judge(endless[0], step("due", 1_100, 2_400))) == {ORDER}
    assert failed(judge(step("due", 1_100, 2_200), endless[1])) == set()


def test_a_stall_parts_no_two_that_came_at_once(judge):
    """Of 40 ms between the two starts 20 were stalled; so were 20 of the 30 for which it had waited."""
    both = overtaken(2_200, 2_240)
    assert failed(judge(*both, stalled=[(2_210, 2_230)])) == set()
    assert failed(judge(*both, stalled=[(2_210, 2_229.999)])) == {ORDER}
    assert failed(judge(*overtaken(2_200, queued_ms=2_170), stalled=[(2_175, 2_186)])) == set()


def test_how_many_first_in_first_out_would_hold_up_is_counted(judge):
    found = judge(
        step("low", 1_010, 4_000, name="maintenance"),
        step("gone", 1_015, end="cancelled", end_ms=2_150, name="approval_resume"),
        step("u1", 1_020, 2_200, name="approval_resume"),
        step("u2", 1_030, 2_300, name="autonomous"),
        step("low2", 1_040, 4_010, name="maintenance"),
        step("after", 2_200, 2_350, name="autonomous"),
        capacity=WIDE,
    )
    assert failed(found) == set()
    assert (finding(found, BY_FIFO).measured, finding(found, DRAINED).measured) == (2, 4)


# --- people


def person(first_ms: float, start_ms: float | None, **more: object) -> Step:
    return step("desk", first_ms, start_ms, name="interactive", **more)


@pytest.mark.parametrize(
    ("first_ms", "start_ms", "more", "broken"),
    [
        (2_200, 2_400, {}, ""),
        (2_200, 2_400.6, {}, "waited 201 ms, at most 200 ms"),
        (CLOSED, 2_400, {}, "waited 300 ms, at most 200 ms"),
        (CLOSED - 0.001, 2_400, {}, ""),  # it was there before
        (2_200, None, {"end": "throttled", "end_ms": 2_210}, "ended throttled"),
        (2_200, None, {"end": "expired", "end_ms": 2_500}, "waited 300 ms, at most 200 ms"),
        (2_200, None, {"end": None}, "waited 3800 ms, at most 200 ms"),
        (2_200, 2_300, {"end": "failed"}, "ended failed"),
        (2_200, 2_300, {"end": None}, ""),  # it started; how it ends nobody knows
        (AGAIN - 200, AGAIN + 400, {}, ""),  # of the next outage
        (AGAIN - 200.6, AGAIN + 400, {}, "waited 201 ms, at most 200 ms"),
        (AGAIN - 200, None, {"end": "failed", "end_ms": AGAIN}, ""),
        (AGAIN - 200, None, {"end": "failed", "end_ms": AGAIN - 0.001}, "ended failed"),
    ],
)
def test_people_do_not_wait_behind_the_backlog(judge, first_ms, start_ms, more, broken):
    found = judge(step("a", 1_100, 2_150), person(first_ms, start_ms, **more), faults=[FAULT, NEXT])
    assert (PEOPLE in failed(found)) is bool(broken)
    assert (f"(first desk/b0.0: {broken})" in finding(found, PEOPLE).note) is bool(broken)


@pytest.mark.parametrize("name", ["approval_resume", "autonomous", "maintenance"])
def test_what_is_no_persons_may_wait(judge, name):
    assert failed(judge(step("a", 2_200, 4_000, name=name))) == set()


@pytest.mark.parametrize(("first_ms", "in_drain"), [(2_200, 1), (2_500, 1), (2_500.001, 0), (2_099, 0)])
def test_people_count_who_come_while_it_drains(judge, first_ms, in_drain):
    found = judge(step("a", 1_100, 2_500), person(first_ms, first_ms + 1))
    assert finding(found, PEOPLE).samples == in_drain


def test_a_stall_is_nobodys_wait(judge):
    assert failed(judge(person(2_200, 2_450), stalled=[(2_300, 2_350)])) == set()
    assert failed(judge(person(2_200, 2_450), stalled=[(2_300, 2_349)])) == {PEOPLE}


# --- the queue


def crowd(many: int, first_end_ms: float = 3_000, kind: str = "read") -> list[Step]:
    """They come one after the other, and are cancelled later; the first of them at `first_end_ms`."""
    ends = [first_end_ms, *[3_000.0] * (many - 1)]
    return [
        step(f"q{n}", 1_100 + n, end="cancelled", end_ms=end_ms, operation=kind) for n, end_ms in enumerate(ends)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize(("many", "broken"), [(4, False), (5, True)])
def test_no_more_wait_than_the_queue_holds(judge, kind, many, broken):
    past = step("past", 1_000.5, end="cancelled", end_ms=1_050, operation=kind)
    later = step("later", 2_990, end="cancelled", end_ms=3_000, operation="read" if kind == "write" else "write")
    found = judge(past, later, *crowd(many, kind=kind))
    quantity = f"{kind}s waiting at once"
    assert failed(found) == ({quantity} if broken else set())
    assert (finding(found, quantity).measured, finding(found, quantity).samples) == (many, many + 1)
    if broken:
        assert set(found.witnesses) == {f"q{n}/b0.0" for n in range(5)}
        assert f"Billing: 5 {kind}s waited at once where the queue holds 4" in found.sentence


def test_each_kind_has_a_queue_of_its_own(judge):
    mixed = [step(f"w{n}", 1_100 + n, end="cancelled", end_ms=3_000, operation="write") for n in range(4)]
    assert failed(judge(*mixed, *crowd(4))) == set()


@pytest.mark.parametrize(("left_ms", "broken"), [(1_124, False), (1_124.001, True)])
def test_a_place_is_free_a_little_before_its_step_arrives(judge, left_ms, broken):
    """The fifth comes at 1,104 ms."""
    assert failed(judge(*crowd(5, left_ms))) == ({READS} if broken else set())


def test_a_stall_keeps_a_step_on_its_way(judge):
    assert failed(judge(*crowd(5, 1_135), stalled=[(1_110, 1_121)])) == set()
    assert failed(judge(*crowd(5, 1_135), stalled=[(1_110, 1_120)])) == {READS}


@pytest.mark.parametrize("kind", ["read", "write"])
def test_who_was_turned_away_by_a_full_queue_is_counted_by_kind(judge, kind):
    away = [step(f"t{n}", None, end="throttled", end_ms=1_500, operation=kind) for n in range(3)]
    other = step("o", None, end="throttled", end_ms=1_500, operation="write" if kind == "read" else "read")
    failed_one = step("f", None, end="failed", end_ms=1_500, operation=kind)
    found = judge(*away, other, failed_one, *crowd(4, kind=kind))
    assert finding(found, f"{kind}s turned away by a full queue").measured == 3


# --- the start rate: 10/s and a burst of 8


def starts(*at_ms: float, queued_ms: float = 1_100) -> list[Step]:
    return [step(f"s{n}", queued_ms, at) for n, at in enumerate(at_ms)]


@pytest.mark.parametrize(
    ("at_ms", "measured"),
    [
        ([2_600], 1),
        ([2_600] * 8, 8), ([2_600] * 9, 9),
        ([2_600, 2_700, 2_800, 2_900], 1),  # as fast as it may
        ([2_600, 2_650, 2_700, 2_750], 2.5),
        ([2_600] * 3 + [2_750], 3),  # the worst span, not the last
        ([2_600] * 3 + [2_650], 3.5),
        ([2_600] + [5_000] * 3, 3),  # what was saved up before does not count
        ([CLOSED] * 9, 9), ([CLOSED - 0.001] * 9 + [2_200], 1),
    ],
)  # fmt: skip
def test_starts_of_the_drain_keep_to_the_tested_capacity(judge, at_ms, measured):
    found = judge(*starts(*at_ms), capacity=WIDE)
    assert finding(found, RATE).measured == measured
    assert failed(found) == ({RATE} if measured > 8 else set())


def test_who_broke_it_is_named_and_until_when(judge):
    others = [
        step("gone", 1_100, end="cancelled", end_ms=2_200), step("later", 1_100, 5_000), step("new", 2_200, 2_300),
    ]  # fmt: skip
    found = judge(*starts(*[2_600] * 9), *others, capacity=WIDE)
    assert failed(found) == {RATE}
    assert set(found.witnesses) == {f"s{n}/b0.0" for n in range(9)}
    said = "Billing: 9 calls more than the tested 10/s allow had been started by 2.60 s (11 in all, from 2.10 s)"
    assert said in found.sentence


def test_only_its_own_calls_until_the_backlog_has_started_are_the_drain(judge):
    wave = [step(f"w{n}", None, 3_000.001) for n in range(9)]
    elsewhere = [step(f"x{n}", None, 2_600, dependency="other") for n in range(9)]
    found = judge(*starts(3_000), *wave, *elsewhere, capacity=WIDE)
    assert (failed(found), finding(found, RATE).samples) == (set(), 1)


@pytest.mark.parametrize(("begin_ms", "broken"), [(2_500, False), (2_501, True)])
def test_what_arrives_after_a_stall_may_have_been_started_before_it(judge, begin_ms, broken):
    """A tenth of a second allows one more."""
    found = judge(*starts(*[2_600] * 9), capacity=WIDE, stalled=[(begin_ms, 2_590)])
    assert failed(found) == ({RATE} if broken else set())


# --- the second wave


@pytest.mark.parametrize(
    ("turns", "faults", "broken"),
    [
        ([turned(4_000, "opened")], [FAULT], True),
        ([turned(4_000, "half_open")], [FAULT], False),
        ([turned(4_000, "opened")], [FAULT, FAULT | {"from": "4s", "to": "5s"}], False),
        ([turned(4_000, "opened")], [FAULT, FAULT | {"from": "4001ms", "to": "5s"}], True),
        ([turned(4_000, "opened")], [FAULT, FAULT | {"from": "3s", "to": "4s"}], True),
        ([turned(4_000, "opened")], [FAULT, FAULT | {"from": "3s", "to": "4001ms"}], False),
        ([turned(4_000, "opened")], [FAULT, {"dependency": "billing", "kind": "hang", "from": "3s"}], False),
        ([turned(4_000, "opened")], [FAULT, FAULT | {"dependency": "other", "from": "3s", "to": "5s"}], True),
        ([], [], False),  # the outage's own opening needs no fault to explain it
    ],
)
def test_what_comes_afterwards_does_not_open_it_again(judge, turns, faults, broken):
    capacity = {"dependencies": {"billing": SERVICE, "other": SERVICE}}
    found = judge(step("a", 1_100, 2_200), turns=[*TURNS, *turns], faults=faults, capacity=capacity)
    assert failed(found) == ({REOPENED} if broken else set())
    assert ("(first billing: opened again at 4.00 s)" in found.sentence) is broken


def test_a_reopening_by_a_probe_is_the_same_outage(judge):
    turns = [turned(OPENED, "opened"), turned(1_500, "half_open"), turned(1_600, "opened"), *TURNS[1:]]
    assert failed(judge(step("a", 1_100, 2_200), turns=turns, faults=[])) == set()


def test_a_probe_that_fails_after_the_next_fault_is_no_opening_of_its_own(judge):
    """It opened in the fault, and is not closed yet."""
    turns = [turned(6_100, "opened"), turned(7_100, "half_open"), turned(7_200, "opened"), turned(9_000, "half_open")]
    faults = [FAULT, NEXT]
    assert REOPENED not in failed(judge(step("a", 1_100, 2_200), turns=[*TURNS, *turns], faults=faults))


@pytest.mark.parametrize(
    ("first_ms", "name", "many"),
    [(CLOSED, "autonomous", 1), (CLOSED - 0.001, "autonomous", 0), (3_000, "interactive", 0), (AGAIN, "autonomous", 0)],
)
def test_a_second_wave_is_what_comes_after_the_closing(judge, first_ms, name, many):
    wave = step("w", None, first_ms, name=name)
    found = judge(step("a", 1_100, 2_200), wave, faults=[FAULT, NEXT])
    assert finding(found, REOPENED).samples == many


# --- several outages

LATER = [turned(AGAIN + 100, "opened"), turned(7_500, "half_open"), turned(7_600, "closed")]


def test_each_outage_has_its_own_backlog_and_those_with_one_are_judged(judge):
    """The second time something is overtaken: told if that time a backlog drained, also where the first time did."""
    second = [
        step("low", AGAIN + 200, 7_700, name="maintenance"), step("urgent", AGAIN + 200, 9_000, name="autonomous"),
    ]  # fmt: skip
    given = {"turns": [*TURNS, *LATER], "faults": [FAULT, NEXT]}
    assert failed(judge(step("a", 1_100, 2_200), *second, **given)) == {ORDER}
    assert failed(judge(*second, **given, params={"drained": 1})) == {ORDER}
    few = judge(step("a", 1_100, 2_200), *second, **given, params={"drained": 3})
    assert failed(few) == set()  # of neither there is enough: the first tells what is missing
    assert (few.word, finding(few, DRAINED).measured) == (Word.INCONCLUSIVE, 1)


def test_without_a_fault_between_them_the_second_opening_is_no_outage(judge):
    found = judge(step("a", 1_100, 2_200), turns=[*TURNS, *LATER])
    assert failed(found) == {REOPENED}
    assert len([each for each in found.findings if each.quantity == DRAINED]) == 1


def test_an_outage_of_a_service_that_the_profile_does_not_know_has_no_bounds_to_keep(judge):
    strange = [turned(row["t_ns"] / 1e6, row["outcome"], "strange") for row in TURNS]
    steps = [step(f"s{n}", 1_100, 2_200, dependency="strange") for n in range(6)]
    found = judge(*steps, turns=strange, faults=[])
    assert (found.word, finding(found, DRAINED).measured) == (Word.PASS, 6)
    assert not [each for each in found.findings if each.quantity.endswith("waiting at once")]


@pytest.mark.parametrize("value", [-1, 1_000_001, "2", 2.0, True])
def test_how_many_are_asked_for_is_a_whole_number(judge, value):
    assert "stale: Input should be" in judge(step("a", 1_100, 2_200), params={"stale": value}).sentence
    assert "Input should be" not in judge(step("a", 1_100, 2_200), params={"stale": 1_000_000}).sentence


def test_the_first_in_the_queue_can_be_overtaken_and_who_comes_later_hides_nobody(judge):
    urgent, lazy = step("urgent", 1_100, 2_400, deadline_ms=5_000), step("lazy", 1_200, 2_300)
    later = step("later", 2_600, 2_700)
    assert failed(judge(urgent, lazy)) == {ORDER}
    assert failed(judge(later, lazy, urgent)) == {ORDER}
    assert failed(judge(step("lazy", 2_299, 2_300), urgent)) == {ORDER}
    assert failed(judge(step("urgent", 1_100, 2_250, deadline_ms=5_000), lazy)) == set()


def test_a_fault_without_an_end_explains_whatever_opens_after_it(judge):
    endless = {key: value for key, value in FAULT.items() if key != "to"}
    turns = [*TURNS, turned(3_000, "opened")]
    found = judge(step("a", 1_100, 2_200), turns=turns, faults=(endless,))
    assert (found.word is Word.INVALID, failed(found)) == (False, set())
    assert REOPENED in failed(judge(step("a", 1_100, 2_200), turns=turns))
