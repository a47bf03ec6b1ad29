"""v07.retry_after, answer by answer: two steps written by hand, one told to come back in time and one told too late."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from tests.unit.capacity_trials import failed, open_questions
from tests.unit.ledgers import Rows
from tests.unit.written_steps import DEADLINE_MS, SERVICE, arrival, decided, judged, opened

AT_MS = 1_000
"""When each first attempt is answered."""
NOTHING_ASKED = {"least": 0, "malformed": 0}

NOT_RETRIED = "were not retried, or far too late"
EARLY, HOT = "were retried early", "were retried in a hot loop"
TWICE, OVERDUE = "led to more than one retry", "were retried too late to end before the deadline"
RETRIED = "were retried though the retry cannot end in time"
SLEPT, UNTYPED = "were slept for instead of answered", "ended without a typed outcome and its reason"


def in_time(retry_ms: float | None = 1_000, raw: str | None = "1", status: int = 429, **more: object) -> Rows:
    """Told to come back after a second. retry_ms: how long after the answer the retry arrived; None: there was none."""
    rows = [arrival("near", AT_MS, status=status, retry_after=raw, fault="retry_after", **more)]
    return rows if retry_ms is None else [*rows, arrival("near", AT_MS + retry_ms, 2, 200, 50)]


BEYOND = [arrival("far", AT_MS, status=429, retry_after="3600", fault="retry_after")]
DECIDED = [opened("near"), opened("far"), decided("far", AT_MS, "throttled", "retry_after_beyond_deadline")]


@pytest.fixture
def judge(tmp_path):
    def judge_them(arrivals, decisions=DECIDED, params=None, **more):
        given = {**NOTHING_ASKED, **(params or {})}
        return judged("v07.retry_after", tmp_path, [*arrivals, *BEYOND], decisions, given, **more)

    return judge_them


def test_one_answer_of_each_kind_is_enough_where_no_more_are_asked_for(judge):
    found = judge(in_time())
    assert found.word is Word.PASS, found.sentence
    assert found.sentence.startswith("2 answers with Retry-After in 1 forms: ")
    assert {finding.samples for finding in found.findings if finding.subject != "evidence"} == {1}


def test_without_an_answer_of_a_kind_its_rules_are_open(judge):
    found = judge([])
    assert open_questions(found) == {NOT_RETRIED, EARLY, HOT, TWICE, OVERDUE}
    assert "answers with a Retry-After that fits the deadline" in found.add


# --- which answers are judged


@pytest.mark.parametrize(
    ("raw", "fault", "broken"),
    [("1", None, {EARLY}), (None, "retry_after", {HOT}), ("", "retry_after", {HOT}), (None, None, set())],
)
def test_an_answer_counts_that_says_when_or_that_was_to_say_it(judge, raw, fault, broken):
    first = arrival("near", AT_MS, status=429, retry_after=raw, fault=fault)
    assert failed(judge([first, arrival("near", AT_MS + 1, 2, 200, 50)])) == broken


def test_a_write_that_may_not_be_repeated_hides_no_other_step(judge):
    """Nor one whose deadline nobody tells."""
    write = [arrival("bare", 10, status=429, retry_after="1", operation="write")]
    endless = [arrival("endless", 11, status=429, retry_after="1")]
    assert failed(judge([*write, *endless, *in_time(None)])) == {NOT_RETRIED}
    assert failed(judge([*write, *endless, *in_time()])) == set()


def test_a_later_answer_of_the_same_step_is_judged_as_the_first(judge):
    later = [*in_time(None), arrival("near", AT_MS + 1_000, 2, 429, retry_after="2", fault="retry_after")]
    assert failed(judge([*later, arrival("near", AT_MS + 3_000, 3, 200)])) == set()
    assert failed(judge([*later, arrival("near", AT_MS + 2_900, 3, 200)])) == {EARLY}
    assert failed(judge(later)) == {NOT_RETRIED}


# --- what fits


@pytest.mark.parametrize(
    ("left_ms", "broken"),
    [(549.999, set()), (550, {NOT_RETRIED})],
)
def test_one_that_leaves_half_a_second_beside_the_call_surely_fits(judge, left_ms, broken):
    told = [opened("near", AT_MS + 1_000 + left_ms), *DECIDED[1:]]
    assert failed(judge(in_time(None), told)) == broken


@pytest.mark.parametrize(
    ("room", "left_ms", "broken"),
    [("0s", 50, {NOT_RETRIED}), ("0s", 49, {SLEPT}), ("2s", 2_049, set()), ("2s", 2_050, {NOT_RETRIED})],
)
def test_how_much_it_leaves_is_the_profiles_to_say(judge, room, left_ms, broken):
    told = [opened("near", AT_MS + 1_000 + left_ms), *DECIDED[1:]]
    assert failed(judge(in_time(None), told, {"room": room})) == broken


@pytest.mark.parametrize(
    ("stalled", "broken"),
    [
        ([], {NOT_RETRIED}),
        ([(1_005, 1_006)], set()),  # heard of a little later, and there is no room to lose
        ([(1_011, 1_012)], {NOT_RETRIED}),  # it was heard of before, and what is stated is an instant
        ([(2_100, 2_101)], set()),  # a millisecond less was left from then on
        ([(900, 950)], {NOT_RETRIED}),
    ],
)
def test_a_stall_takes_from_the_time_that_is_left(judge, stalled, broken):
    told = [opened("near", AT_MS + 1_550), *DECIDED[1:]]
    assert failed(judge(in_time(None), told, stalled=stalled)) == broken


# --- how long a call is expected to take


@pytest.mark.parametrize(
    ("dependency", "params", "expected_ms"),
    [
        (SERVICE, {}, 50),
        (SERVICE | {"expected": "200ms"}, {}, 200),
        (SERVICE, {"expected": "300ms"}, 300),
        (SERVICE | {"expected": "200ms"}, {"expected": "0s"}, 0),
        (None, {}, 0),
    ],
)
@pytest.mark.parametrize(("late_ms", "broken"), [(25, set()), (25.001, {OVERDUE})])
def test_a_retry_may_start_until_it_can_no_longer_end(judge, dependency, params, expected_ms, late_ms, broken):
    """The profile's own parameter before what it says of the dependency; of one that it does not know, nothing."""
    last_ms = DEADLINE_MS - AT_MS - expected_ms
    name = "billing" if dependency else "another"
    capacity = {"dependencies": {name: dependency or SERVICE}}
    assert failed(judge(in_time(last_ms + late_ms), params=params, capacity=capacity)) == broken


@pytest.mark.parametrize("capacity", [None, {}])
def test_an_unlike_parameter_for_late_is_kept(judge, capacity):
    expected_ms = 50 if capacity is None else 0
    last_ms = DEADLINE_MS - AT_MS - expected_ms
    assert failed(judge(in_time(last_ms + 100), params={"late": "100ms"}, capacity=capacity)) == set()
    assert failed(judge(in_time(last_ms + 101), params={"late": "100ms"}, capacity=capacity)) == {OVERDUE}


# --- where no instant is stated


@pytest.mark.parametrize(
    ("capacity", "params", "shortest_ms", "longest_ms"),
    [
        (None, {}, 270, 660),
        ({}, {}, 50, 1_000),  # a target of its own
        (None, {"own_backoff": "100ms"}, 100, 660),
        (None, {"own_backoff_most": "2s"}, 270, 2_000),
        ({}, {"own_backoff": "0s"}, 0, 1_000),
    ],
)
@pytest.mark.parametrize("raw", ["0", "abc", "Thu, 01 Jan 2026 00:00:00 GMT"])
def test_own_backoff_is_neither_a_hot_loop_nor_a_sleep(judge, raw, capacity, params, shortest_ms, longest_ms):
    """Five milliseconds early and half a second late are borne."""

    def broken(after_ms: float) -> set[str]:
        rows = in_time(after_ms, raw, date="Thu, 01 Jan 2026 00:00:00 GMT")
        return failed(judge(rows, params=params, capacity=capacity))

    if shortest_ms:
        assert broken(shortest_ms - 5.001) == {HOT}
        assert broken(shortest_ms - 5) == set()
    assert broken(longest_ms + 500) == set()
    assert broken(longest_ms + 500.001) == {NOT_RETRIED}


@pytest.mark.parametrize(
    ("raw", "after_ms", "said"),
    [
        ("0", 1_161, "Retry-After: 0, states no instant, and was slept for 1161 ms"),
        ("", 1_161, "Retry-After: (none), states no instant, and was slept for 1161 ms"),
        (None, 1_161, "Retry-After: (none), states no instant, and was slept for 1161 ms"),
        ("0", 10, "Retry-After: 0, retried after 10 ms instead of 270 ms or more"),
    ],
)
def test_what_was_done_instead_is_said(judge, raw, after_ms, said):
    assert said in judge(in_time(after_ms, raw)).sentence


# --- dates


@pytest.mark.parametrize(("after_ms", "broken"), [(1_995, set()), (994.999, {EARLY}), (995, set()), (1, {EARLY})])
def test_a_date_of_two_seconds_is_good_to_one(judge, after_ms, broken):
    """Two seconds after the answer's own."""
    rows = in_time(after_ms, "Thu, 01 Jan 2026 00:00:02 GMT", date="Thu, 01 Jan 2026 00:00:00 GMT")
    assert failed(judge(rows)) == broken


@pytest.mark.parametrize(("seconds", "broken"), [("01", set()), ("00", {HOT})])
def test_a_date_of_the_next_second_may_be_now_and_one_of_the_same_states_no_instant(judge, seconds, broken):
    rows = in_time(1, f"Thu, 01 Jan 2026 00:00:{seconds} GMT", date="Thu, 01 Jan 2026 00:00:00 GMT")
    assert failed(judge(rows)) == broken


@pytest.mark.parametrize(
    ("left_ms", "retry_ms", "broken"),
    [
        (1_049, 1_000, {RETRIED}),  # its earliest reading does not fit
        (1_050, 1_000, set()), (1_050, None, set()),  # the earliest does, the latest does not: either is right
        (2_549, None, set()),
        (2_550, None, {NOT_RETRIED}),  # the latest fits
    ],
)  # fmt: skip
def test_where_one_reading_of_a_date_fits_and_another_does_not_either_is_right(judge, left_ms, retry_ms, broken):
    told = [opened("near", AT_MS + left_ms), *DECIDED[1:], decided("near", AT_MS, "throttled", "beyond")]
    rows = in_time(retry_ms, "Thu, 01 Jan 2026 00:00:02 GMT", date="Thu, 01 Jan 2026 00:00:00 GMT")
    assert failed(judge(rows, told)) == broken


DATED = {"raw": "Thu, 01 Jan 2026 00:00:02 GMT", "date": "Thu, 01 Jan 2026 00:00:00 GMT"}


@pytest.mark.parametrize(
    ("answer", "scale", "notes"),
    [
        ({"raw": "1"}, 1.0, []),
        ({"raw": "1"}, 0.5, []),
        (DATED, 1.0, []),
        (DATED, 0.5, ["1 answers not judged: a date is good to one second, and the scale is not 1"]),
        (DATED, 2.0, ["1 answers not judged: a date is good to one second, and the scale is not 1"]),
        (DATED | {"date": None}, 1.0, ["1 answers not judged: the answer has no Date of its own"]),
        (DATED | {"date": "7"}, 1.0, ["1 answers not judged: the answer has no Date of its own"]),
        (DATED | {"date": None}, 0.5, ["1 answers not judged: a date is good to one second, and the scale is not 1"]),
    ],
)  # fmt: skip
def test_dates_that_cannot_be_judged_are_counted_once(judge, answer, scale, notes):
    found = judge(in_time(1, **answer), scale=scale)
    assert [finding.note for finding in found.findings if finding.quantity == "note"] == notes
    assert (EARLY in failed(found)) is (not notes)


# --- retry tokens


def sibling(retried_ms: float) -> Rows:
    """Another step of the same run, and its retry."""
    other = {"step": "b0.1"}
    return [arrival("near", 100, status=500, **other), arrival("near", retried_ms, 2, 200, **other)]


@pytest.mark.parametrize(
    ("tokens", "retried_ms", "broken"),
    [
        (None, 200, {NOT_RETRIED}),  # a target that does not tell of them has them
        (0, 9_000, set()),
        (1, AT_MS, set()),  # spent by then
        (1, AT_MS + 1, {NOT_RETRIED}),  # spent only later
        (2, 200, {NOT_RETRIED}),
    ],
)
def test_a_retry_is_owed_as_long_as_the_run_has_a_token_for_it(judge, tokens, retried_ms, broken):
    told = [opened("near", remaining_retry_tokens=tokens), *DECIDED[1:]]
    assert failed(judge([*in_time(None), *sibling(retried_ms)], told)) == broken


# --- more than one


@pytest.mark.parametrize(
    ("first_status", "second_ms", "broken"),
    [
        (200, 49.999, {TWICE}),
        (200, 9_000, {TWICE}),  # it was answered well
        (399, 9_000, {TWICE}),
        (400, 9_000, set()),  # one more for another reason
        (400, 50, set()),
        (400, 49.999, {TWICE}),  # both at once
    ],
)
def test_one_retry_for_one_answer(judge, first_status, second_ms, broken):
    rows = [*in_time(None), arrival("near", AT_MS + 1_000, 2, first_status, 50)]
    found = judge([*rows, arrival("near", AT_MS + 1_000 + second_ms, 3, 200)])
    assert failed(found) == broken
    assert ("2 retries" in found.sentence) is bool(broken)


# --- beyond the deadline


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("end", "broken", "said"),
    [
        (("throttled", "x"), set(), ""),
        (("dependency_unavailable", "x"), set(), ""),
        (("expired", "x"), set(), ""),
        (("served", "x"), {UNTYPED}, "ended served, reason x"),
        (("throttled", None), {UNTYPED}, "ended throttled, reason (none)"),
        (None, {SLEPT}, "Retry-After: 3600, no outcome"),
    ],
)
def test_what_cannot_come_in_time_has_its_outcome_and_its_reason(judge, status, end, broken, said):
    refused = [arrival("near", AT_MS, status=status, retry_after="3600", fault="retry_after")]
    told = [*DECIDED, *([decided("near", AT_MS, *end)] if end else [])]
    found = judge(refused, told)
    assert failed(found) == broken
    assert said in found.sentence


@pytest.mark.parametrize(("told_ms", "broken"), [(250, set()), (250.001, {SLEPT})])
def test_it_is_told_at_once(judge, told_ms, broken):
    told = [opened("near"), opened("far"), decided("far", AT_MS + told_ms, "throttled", "x")]
    found = judge(in_time(), told)
    assert failed(found) == broken
    assert ("Retry-After: 3600, told after 250 ms" in found.sentence) is bool(broken)


def test_one_that_was_retried_is_not_blamed_for_its_end_too(judge):
    found = judge([*in_time(), arrival("far", 18_000, 2)], [opened("near"), opened("far")])
    assert failed(found) == {RETRIED, EARLY}
    assert "retried after 17000 ms" in next(each.note for each in found.findings if each.quantity == RETRIED)


def test_one_that_was_retried_hides_no_other_that_was_slept_for(judge):
    beyond = [arrival("near", AT_MS, status=429, retry_after="3600"), arrival("near", 18_000, 2)]
    assert failed(judge(beyond, [opened("near"), opened("far")])) == {RETRIED, EARLY, SLEPT}


@pytest.mark.parametrize("value", [-1, 1_000_001, "2", 2.0, True])
def test_how_many_are_asked_for_is_a_whole_number(judge, value):
    assert "least: Input should be" in judge(in_time(), params={"least": value}).sentence
    assert judge(in_time(), params={"least": 1_000_000}).word is Word.INCONCLUSIVE
