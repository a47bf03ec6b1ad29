"""v08.circuit, rule by rule: one circuit whose few calls and transitions are written by hand, at just each bound."""

from __future__ import annotations

import pytest

from tests.unit.capacity_trials import failed, open_questions
from tests.unit.ledgers import Rows
from tests.unit.written_steps import CIRCUIT, SERVICE, arrival, decided, judged, ns, turned

NONE_ASKED = {"while_open": 0, "elsewhere": 0, "at_half_open": 0, "after": 0}
OPENED, HALF, CLOSED = 1_040, 2_040, 2_100
STAYED, NO_CAUSE = "stayed closed though the rule to open was met", "opened though their own calls were well"
REACHED = "reached a dependency whose circuit was open"
NO_PROBE, TOO_MANY = "did not probe when the cool-down ended", "went along with the probes"
NOT_REOPENED, NOT_CLOSED = "did not reopen after a failed probe", "did not close by the recovery rule"
REFUSED = "were refused though the circuit of their dependency was closed"
SUFFERED, SLOWLY = "of a healthy dependency suffered", "were refused slowly"

FAILING = [arrival(f"bad{n}", 1_000 + n, status=503) for n in range(4)]
PROBES = [arrival(f"probe{n}", at_ms, took_ms=10) for n, at_ms in enumerate((HALF, HALF + 11, HALF + 22))]
TURNS = [turned(OPENED, "opened"), turned(HALF, "half_open"), turned(CLOSED, "closed")]


@pytest.fixture
def judge(tmp_path):
    def judge_them(arrivals, decisions, params=None, **more):
        capacity = {"dependencies": {"billing": SERVICE, "other": SERVICE}}
        return judged("v08.circuit", tmp_path, arrivals, decisions, {**NONE_ASKED, **(params or {})},
                      **{"capacity": capacity, **more})  # fmt: skip

    return judge_them


def note(found, quantity: str) -> str:
    return next(each.note for each in found.findings if each.quantity == quantity)


def refused(at_ms: float, run: str = "turned_away", **more: object) -> Rows:
    return [decided(run, at_ms, "dependency_unavailable", "circuit_open", **more)]


def opens(at_ms: float) -> Rows:
    return [turned(at_ms, "opened")]


def test_an_outage_by_the_rules_breaks_none(judge):
    found = judge([*FAILING, *PROBES], [*TURNS, *refused(1_500), decided("later", 3_000)])
    assert failed(found) == set()
    assert open_questions(found) == {NOT_REOPENED, "opened on latency"}


def test_what_a_circuit_has_not_come_to_yet_is_open(judge):
    assert open_questions(judge([arrival("well", 100)], [decided("well", 100)])) == {
        STAYED, NO_PROBE, TOO_MANY, NOT_REOPENED, NOT_CLOSED, "opened on failures", "opened on latency",
    }  # fmt: skip
    still_open = open_questions(judge(FAILING, opens(OPENED)))
    assert {TOO_MANY, NOT_REOPENED, NOT_CLOSED} < still_open
    assert not {STAYED, NO_PROBE, "opened on failures"} & still_open


@pytest.mark.parametrize("kind", ["failures", "latency"])
def test_what_it_opened_on_is_told_by_its_calls(judge, kind):
    slow = [arrival(f"slow{n}", 1_000 + n - 201, took_ms=201) for n in range(4)]
    found = judge([*(FAILING if kind == "failures" else slow), *PROBES], TURNS)
    other = {"failures": "latency", "latency": "failures"}[kind]
    assert f"opened on {other}" in open_questions(found)
    assert f"opened on {kind}" not in open_questions(found)


@pytest.mark.parametrize(
    ("param", "quantity"),
    [("while_open", REACHED), ("while_open", SLOWLY), ("elsewhere", SUFFERED),
     ("at_half_open", "came while it was half-open"), ("after", "were served after it closed")],
)  # fmt: skip
def test_how_many_steps_have_to_come_is_the_profiles_to_say(judge, param, quantity):
    """One came while it was open, to it and elsewhere; three while it probed; one was served after it had closed."""
    came = [
        *refused(1_500, request="0.0.1"), decided("else", 1_500, dependency="other"), decided("later", 3_000),
        decided("later2", 3_000, "failed"), decided("early", 500),
    ]  # fmt: skip
    calls = [{"due_ns": ns(1_500), "outcome": "dependency_unavailable"}]
    rows = [*FAILING, *PROBES, arrival("else", 1_500, dependency="other")]
    seen = 3 if param == "at_half_open" else 1
    assert quantity not in open_questions(judge(rows, [*TURNS, *came], {param: seen}, calls=calls))
    assert quantity in open_questions(judge(rows, [*TURNS, *came], {param: seen + 1}, calls=calls))


# --- closed


@pytest.mark.parametrize(("more_ms", "broken"), [(500, False), (500.001, True)])
@pytest.mark.parametrize(
    ("status", "took_ms", "what"), [(503, 0, "failed"), (200, 201, "slow"), (200, 200, ""), (499, 0, "")]
)
def test_it_opens_within_half_a_second_of_its_rule(judge, more_ms, broken, status, took_ms, what):
    """The fourth call meets it, and one more ends so much later."""
    ends = (1_000, 1_001, 1_002, 1_003, 1_003 + more_ms)
    found = judge(
        [arrival(f"b{n}", end - took_ms, 1, status, took_ms) for n, end in enumerate(ends)], [decided("b0", 2_000)]
    )
    assert (STAYED in failed(found)) is (broken and bool(what))
    if STAYED in failed(found):
        more = 2 if what == "failed" else 1  # of the slow ones three were sent before the rule was met
        assert f"calls {what} from 1.00 s on, and {more} more were sent" in found.sentence


def test_a_reopening_needs_no_cause_of_its_own(judge):
    """A probe that nobody answers in its lease is cause enough, and leaves no failure behind."""
    story = [*opens(OPENED), turned(3_000, "half_open"), *opens(4_000)]
    assert NO_CAUSE not in failed(judge(FAILING, story))
    assert NO_CAUSE in failed(judge(FAILING, opens(4_000)))


@pytest.mark.parametrize(
    ("at_ms", "broken"),
    [
        (OPENED - 20.001, True), (OPENED - 20, False), (1_500, False), (HALF + 30, False), (CLOSED + 20, False),
        (CLOSED + 20.001, True), (3_000, True), (100, True),
    ],
)  # fmt: skip
def test_nobody_is_refused_but_around_the_time_that_it_was_not_closed(judge, at_ms, broken):
    found = judge([*FAILING, *PROBES], [*TURNS, *refused(at_ms)])
    assert failed(found) == ({REFUSED} if broken else set())


def test_what_was_tried_or_ended_otherwise_was_not_refused_by_a_circuit(judge):
    tried = [arrival("tried", 3_000), *FAILING, *PROBES]
    full = decided("full", 3_000, "throttled", "queue_full")
    assert failed(judge(tried, [*TURNS, *refused(3_000, "tried"), full])) == set()


# --- open


@pytest.mark.parametrize(
    ("at_ms", "broken"), [(OPENED - 1, False), (OPENED + 20, False), (OPENED + 20.001, True), (HALF - 0.001, True)]
)
def test_nothing_arrives_while_it_is_open(judge, at_ms, broken):
    found = judge([*FAILING, *PROBES, arrival("late", at_ms)], TURNS)
    assert (REACHED in failed(found)) is broken
    assert (found.witnesses == ("late/b0.0",)) is broken


@pytest.mark.parametrize(("half_ms", "broken"), [(OPENED + 980, False), (OPENED + 979.999, True)])
def test_it_cools_down_for_as_long_as_the_profile_says(judge, half_ms, broken):
    found = judge(FAILING, [*opens(OPENED), turned(half_ms, "half_open")])
    assert failed(found) == ({NO_PROBE} if broken else set())


DUE = OPENED + 1_000


@pytest.mark.parametrize(
    ("half_ms", "asked_ms", "tried", "broken"),
    [
        (DUE + 600, DUE + 500.001, False, True),
        (DUE + 600, DUE + 500, False, False),  # it had half a second to notice
        (DUE + 600, DUE + 599.999, False, True),
        (DUE + 600, DUE + 600, False, False),  # refused by a circuit that probes
        (DUE + 600, 1_500, False, False),  # nobody asked
        (DUE + 600, DUE + 550, True, False),  # that one was let through
        (None, DUE + 501, False, True),
        (None, DUE + 500, False, False),
    ],
)
def test_it_probes_once_it_has_cooled_down_if_anybody_asks(judge, half_ms, asked_ms, tried, broken):
    turns = [*opens(OPENED), *([turned(half_ms, "half_open")] if half_ms else [])]
    asked = [arrival("asks", asked_ms)] if tried else []
    found = judge([*FAILING, *asked], [*turns, *refused(asked_ms, "asks"), *refused(1_500)])
    assert (NO_PROBE in failed(found)) is broken
    if broken:
        until = "for good" if half_ms is None else "until 2.64 s"
        assert f"open from 1.04 s {until}; 1 steps refused too long" in note(found, NO_PROBE)


# --- half-open


@pytest.mark.parametrize(
    ("third_ms", "broken"),
    [(HALF + 1, True), (HALF + 779.999, True), (HALF + 780, False), (HALF + 900, False)],
)
def test_two_probes_at_once_and_more_only_when_a_lease_has_lapsed(judge, third_ms, broken):
    """Two that take longer than their lease of 800 ms, less 20 on the way; those of a later time are not blamed."""
    hung = [arrival(f"hung{n}", HALF, took_ms=5_000, status=0) for n in range(2)]
    after = arrival("after", HALF + 1_700)
    turns = [*opens(OPENED), turned(HALF, "half_open")]
    found = judge([*FAILING, *hung, arrival("third", third_ms, took_ms=10), after], turns)
    assert failed(found) == ({TOO_MANY} if broken else set())
    if broken:
        assert set(found.witnesses) == {"hung0/b0.0", "hung1/b0.0", "third/b0.0"}


@pytest.mark.parametrize("bad", [{"status": 503, "took_ms": 11}, {"took_ms": 201}])
@pytest.mark.parametrize(
    ("then", "after_ms", "broken"),
    [("opened", 500, False), ("opened", 500.001, True), ("opened", 1, False), ("closed", 1, True), (None, 0, True)],
)
def test_a_bad_probe_opens_it_again_within_half_a_second(judge, bad, then, after_ms, broken):
    ended = HALF + bad["took_ms"]
    turns = [*opens(OPENED), turned(HALF, "half_open"), *([turned(ended + after_ms, then)] if then else [])]
    found = judge([*FAILING, arrival("probe", HALF, **bad)], turns)
    assert (NOT_REOPENED in failed(found)) is broken
    if broken:
        assert note(found, NOT_REOPENED).startswith("half-open: 1 stages did not reopen after a failed probe (first pr")


def test_one_bad_probe_puts_both_rules_of_probing_to_the_test(judge):
    turns = [*opens(OPENED), turned(HALF, "half_open"), *opens(HALF + 20)]
    found = judge([*FAILING, arrival("probe", HALF, status=503)], turns)
    assert not {TOO_MANY, NOT_REOPENED} & open_questions(found)


def test_a_probing_without_a_bad_probe_hides_no_later_one(judge):
    turns = [*opens(OPENED), turned(HALF, "half_open"), *opens(HALF + 900), turned(4_000, "half_open")]
    found = judge([*FAILING, arrival("well", HALF), arrival("bad", 4_000, status=503)], turns)
    assert (NOT_REOPENED in failed(found), found.witnesses) == (True, ("bad/b0.0",))


@pytest.mark.parametrize(("after_ms", "broken"), [(0, False), (20, False), (20.001, True)])
def test_the_first_that_ends_badly_is_the_last_that_is_sent(judge, after_ms, broken):
    """Not the first that was sent: that one ends badly only later."""
    slow = arrival("slow", HALF, took_ms=300)
    probes = [slow, arrival("bad", HALF + 1, status=503, took_ms=10), arrival("next", HALF + 11 + after_ms)]
    found = judge([*FAILING, *probes], [*opens(OPENED), turned(HALF, "half_open"), *opens(HALF + 400)])
    assert failed(found) == ({NOT_REOPENED} if broken else set())


def successes(n: int, *last: dict) -> Rows:
    return [*(arrival(f"ok{k}", HALF + 11 * k, took_ms=10) for k in range(n)), *last]


@pytest.mark.parametrize(
    ("probes", "then", "broken"),
    [
        (successes(3), "closed", False),
        (successes(2), "closed", True),
        (successes(2, arrival("x", HALF + 22, took_ms=CLOSED - HALF - 22 + 1)), "closed", False),  # on its way back
        (successes(2, arrival("x", HALF + 22, took_ms=CLOSED - HALF - 22 + 1.001)), "closed", True),
        (successes(2, arrival("x", HALF + 22, status=500)), "closed", True),
        (successes(2, arrival("x", HALF - 1)), "closed", True),  # it was sent before
        (successes(2, arrival("x", CLOSED)), "closed", True),  # or after
        (successes(5), None, True),
        (successes(4), None, False),  # it may still be on its way to a decision
        (successes(5), "opened", False),
    ],
)
def test_it_closes_after_three_successes_and_has_to_after_five(judge, probes, then, broken):
    turns = [*opens(OPENED), turned(HALF, "half_open"), *([turned(CLOSED, then)] if then else [])]
    found = judge([*FAILING, *probes], turns)
    assert (NOT_CLOSED in failed(found)) is broken
    if then is None:
        assert (NOT_CLOSED in open_questions(found)) is not broken


# --- elsewhere


@pytest.mark.parametrize(
    ("at_ms", "outcome", "broken"),
    [
        (OPENED, "failed", True), (OPENED - 0.001, "failed", False), (HALF + 10, "failed", True),
        (CLOSED - 0.001, "throttled", True), (CLOSED, "failed", False), (1_500, "served", False),
        (1_500, "coalesced", False), (1_500, "cancelled", False), (1_500, "expired", True), (1_500, "admitted", True),
    ],
)  # fmt: skip
def test_others_do_not_suffer_while_it_is_out(judge, at_ms, outcome, broken):
    well = arrival("well", 100, dependency="other")
    found = judge([*FAILING, *PROBES, well], [*TURNS, decided("x", at_ms, outcome, dependency="other")])
    assert failed(found) == ({SUFFERED} if broken else set())
    said = "without an outcome" if outcome == "admitted" else outcome
    assert (f"other, ended {said}" in found.sentence) is broken


def test_of_one_that_was_never_called_or_is_ill_itself_nothing_is_said(judge):
    fails = decided("x", 1_500, "failed", dependency="other")
    assert failed(judge([*FAILING, *PROBES], [*TURNS, fails])) == set()
    ill = arrival("ill", 100, dependency="other", status=500)
    assert failed(judge([*FAILING, *PROBES, ill], [*TURNS, fails])) == set()


@pytest.mark.parametrize(
    ("ended_ms", "stalled", "broken"),
    [
        (4_000 - 2_800, True, False),
        (4_000 - 2_800.001, True, True),  # a window, a cool-down and a lease ago: long over
        (4_000, True, False),
        (4_000.001, True, True),  # only afterwards
        (3_000, False, True),
    ],
)
def test_a_call_that_stalls_made_slow_may_have_opened_a_healthy_circuit(judge, ended_ms, stalled, broken):
    """And whoever was refused by it then has not suffered from another's outage."""
    calls = [arrival("held", ended_ms - 10, took_ms=10, dependency="other"), arrival("well", 100, dependency="other")]
    spans = [(ended_ms - 215, ended_ms - 11)] if stalled else []
    served = decided("held", ended_ms, dependency="other")
    decisions = [*opens(OPENED), served, decided("x", 4_000, "failed", dependency="other")]
    assert (SUFFERED in failed(judge([*FAILING, *calls], decisions, stalled=spans))) is broken


def test_one_without_an_end_is_excused_by_no_stall(judge):
    held = arrival("held", 3_000, took_ms=10, dependency="other")
    ends = [decided("held", 3_010, dependency="other"), decided("x", 3_500, "admitted", dependency="other")]
    found = judge([*FAILING, held], [*opens(OPENED), *ends], stalled=[(2_795, 2_999)])
    assert (SUFFERED in failed(found), found.witnesses) == (True, ("x/b0.0",))


# --- refusals are quick


def answered(took_ms: list[float], outcome: str = "dependency_unavailable", **step: object) -> tuple[Rows, Rows]:
    """Calls of one refused step each, with what its caller waited; and the decisions on them."""
    calls = [
        {"due_ns": ns(1_500) + n, "sent_ns": ns(1_500) + n, "done_ns": ns(1_500 + ms) + n, "outcome": outcome}
        for n, ms in enumerate(took_ms)
    ]
    return calls, [refused(1_500, f"r{n}", request=f"0.{n}.1", **step)[0] for n in range(len(took_ms))]


@pytest.mark.parametrize(
    ("took_ms", "broken"),
    [
        ([100], False), ([100.001], True), ([100.001, *[1] * 9], False), ([100.001, *[1] * 8], True),
        ([101, 101, *[1] * 18], False), ([101, 101, 101, *[1] * 18], True),
    ],
)  # fmt: skip
def test_no_more_than_a_tenth_of_the_refusals_is_slow(judge, took_ms, broken):
    calls, steps = answered(took_ms)
    found = judge([*FAILING, *PROBES], [*TURNS, *steps], calls=calls)
    assert failed(found) == ({SLOWLY} if broken else set())
    assert ("(first r0/b0.0: after 10" in found.sentence) is broken


def test_what_else_a_call_waited_for_is_no_slow_refusal(judge):
    """Other steps of its batch; a queue, before the circuit opened; a call whose end nobody saw."""
    calls, steps = answered([900], "served")
    assert failed(judge([*FAILING, *PROBES], [*TURNS, *steps], calls=calls)) == set()
    calls, steps = answered([900])
    queued = decided("r0", 1_030, "queued")
    assert failed(judge([*FAILING, *PROBES], [*TURNS, queued, *steps], calls=calls)) == set()
    unknown = [refused(1_500, "r1", request="0.9.1")[0], refused(1_500, "r2")[0]]
    assert failed(judge([*FAILING, *PROBES], [*TURNS, *unknown], calls=[])) == set()


@pytest.mark.parametrize(("stalled", "broken"), [([(1_510, 1_610)], False), ([(1_510, 1_609)], True)])
def test_a_stall_is_not_the_circuits_delay(judge, stalled, broken):
    calls, steps = answered([200.001])
    found = judge([*FAILING, *PROBES], [*TURNS, *steps], calls=calls, stalled=[*stalled, (1_650, 1_650.001)])
    assert failed(found) == ({SLOWLY} if broken else set())


def test_a_lease_shorter_than_the_way_still_counts_for_a_moment(judge):
    capacity = {"dependencies": {"billing": SERVICE | {"circuit": CIRCUIT | {"lease": "10ms"}}, "other": SERVICE}}
    turns = [*opens(OPENED), turned(HALF, "half_open")]
    at_once = [arrival(f"p{n}", HALF + 1, took_ms=50) for n in range(3)]
    in_turn = [arrival(f"p{n}", HALF + 1 + n, took_ms=50) for n in range(3)]
    assert failed(judge([*FAILING, *at_once], turns, capacity=capacity)) == {TOO_MANY}
    assert failed(judge([*FAILING, *in_turn], turns, capacity=capacity)) == set()


@pytest.mark.parametrize("value", [-1, 1_000_001, "2", 2.0, True])
def test_how_many_are_asked_for_is_a_whole_number(judge, value):
    assert "while_open: Input should be" in judge([], [decided("a", 1)], params={"while_open": value}).sentence
    assert "Input should be" not in judge([], [decided("a", 1)], params={"while_open": 1_000_000}).sentence
