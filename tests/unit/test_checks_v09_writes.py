"""v09.ambiguous_write, write by write: one or two of them written by hand, with just what its rule is about."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from tests.unit.capacity_trials import failed, open_questions
from tests.unit.ledgers import Rows
from tests.unit.written_steps import arrival, decided, judged, ns, opened

NONE_ASKED = {"least": 0, "unkeyed": 0, "repeated": 0}
TWICE, BLIND = "were committed more than once", "were repeated without looking first"
KEYS, AGAIN = "changed their idempotency key between attempts", "were written again"
TOKEN, LOST = "cost a retry token", "were committed and recorded as something else"
FALSE, CALLER = "were recorded as served and never committed", "were told something else than what happened"
SENT, LOOKED, REPEATED = 1_000, 1_200, 1_340


@pytest.fixture
def judge(tmp_path):
    def judge_them(arrivals, decisions, effects=(), params=None, **more):
        given = {**NONE_ASKED, **(params or {})}
        return judged("v09.ambiguous_write", tmp_path, arrivals, decisions, given, effects=list(effects), **more)

    return judge_them


def write(run: str, at_ms: float = SENT, number: int = 1, status: int = 0, took_ms: float = 200, **more: object):
    return arrival(run, at_ms, number, status, took_ms, operation="write", **more)


def look(run: str, at_ms: float = LOOKED, status: int = 200, **more: object):
    return arrival(run, at_ms, 1, status, 40, operation="readback", readback=True, **more)


def effect(run: str, at_ms: float = SENT + 40, **more: object) -> dict:
    return {"t_ns": ns(at_ms), "dependency": "billing", "run": run, "step": "b0.0", "logical": f"{run}/b0.0", **more}


def told(run: str, outcome: str = "served", at_ms: float = 1_500, **more: object) -> dict:
    return decided(run, at_ms, outcome, operation="write", **more)


COMMITTED = [write("a"), look("a")]
ABSENT = [write("b"), look("b"), write("b", REPEATED, 2, 200, 40)]
BOTH = [told("a"), told("b")]
EFFECTS = [effect("a"), effect("b", REPEATED + 40)]


def evidence(found) -> dict[str, float | None]:
    return {each.quantity: each.measured for each in found.findings if each.subject == "evidence"}


def test_one_of_each_is_enough_where_no_more_are_asked_for(judge):
    found = judge([*COMMITTED, *ABSENT], BOTH, EFFECTS)
    assert found.word is Word.PASS, found.sentence
    assert found.sentence.startswith("1 writes were committed without an answer and 1 were not: ")
    assert evidence(found) == {
        "committed without an answer": 1, "neither answered nor committed": 1, "without an idempotency key": 2,
        "repeated once known to be absent": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("param", "seen"), [("least", 1), ("unkeyed", 2), ("repeated", 1)])
def test_how_many_writes_there_have_to_be_is_the_profiles_to_say(judge, param, seen):
    assert open_questions(judge([*COMMITTED, *ABSENT], BOTH, EFFECTS, {param: seen})) == set()
    assert open_questions(judge([*COMMITTED, *ABSENT], BOTH, EFFECTS, {param: seen + 1})) != set()


def test_what_was_never_put_to_the_test_is_open(judge):
    assert open_questions(judge([], BOTH)) == {TWICE, BLIND, AGAIN, TOKEN, LOST, FALSE}
    assert open_questions(judge(ABSENT, BOTH[1:], EFFECTS[1:])) == {AGAIN, TOKEN}
    assert open_questions(judge(COMMITTED, BOTH[:1], EFFECTS[:1])) == set()


# --- which writes are ambiguous, and which of them were committed


@pytest.mark.parametrize(("status", "many"), [(0, 1), (504, 1), (503, 0), (200, 0)])
def test_one_without_an_answer_or_with_a_gateways_is(judge, status, many):
    found = judge([write("a", status=status)], BOTH[:1], EFFECTS[:1])
    assert evidence(found)["committed without an answer"] == many


def test_a_read_never_is_and_a_step_is_one_however_often_it_was_sent(judge):
    twice = [write("b"), look("b"), write("b", REPEATED, 2), look("b", 1_600), write("b", 1_700, 3, 200)]
    found = judge([*twice, arrival("c", SENT, status=0)], [told("b", at_ms=1_800)], [effect("b", 1_700)])
    assert failed(found) == set()
    assert evidence(found)["neither answered nor committed"] == 1


@pytest.mark.parametrize(("at_ms", "broken"), [(REPEATED, True), (REPEATED + 0.001, False)])
def test_a_write_was_committed_if_it_was_before_its_repeat_was_sent(judge, at_ms, broken):
    found = judge(ABSENT, BOTH[1:], [effect("b", at_ms)])
    assert failed(found) == ({AGAIN} if broken else set())
    assert ("(first b/b0.0: 1 more attempts)" in found.sentence) is broken


def test_the_first_effect_of_several_counts(judge):
    found = judge(ABSENT, BOTH[1:], [effect("b", REPEATED + 40), effect("b")])
    assert failed(found) == {TWICE, AGAIN}
    told_late = judge(ABSENT, [told("b", "failed")], [effect("b", REPEATED + 40), effect("b")])
    assert "told failed, committed at 1.04 s" in next(e.note for e in told_late.findings if e.quantity == LOST)


@pytest.mark.parametrize(
    ("first", "second", "broken"),
    [
        ({}, {}, True),
        ({}, {"logical": "other"}, False),
        ({"logical": None}, {"logical": None}, True),
        ({"logical": None}, {"logical": None, "step": "b0.1"}, False),
        ({"logical": "one"}, {"logical": "one", "run": "z"}, True),  # whoever sent it
    ],
)
def test_a_mutation_is_committed_once_answered_or_not(judge, first, second, broken):
    found = judge([write("a", status=200)], BOTH[:1], [effect("a", **first), effect(**{"run": "a", **second})])
    assert failed(found) == ({TWICE} if broken else set())


# --- looked up


def test_an_answered_attempt_needs_no_look_and_the_next_without_an_answer_does(judge):
    first = [write("b"), look("b"), write("b", REPEATED, 2, 503, 10), write("b", 1_500, 3), write("b", 1_900, 4, 200)]
    found = judge(first, [told("b", at_ms=2_000)], [effect("b", 1_900.001)])
    assert failed(found) == {BLIND}
    assert "(first b/b0.0: 200 ms after the first)" in found.sentence
    looked = [*first, look("b", 1_720)]
    assert failed(judge(looked, [told("b", at_ms=2_000)], [effect("b", 1_900.001)])) == set()


@pytest.mark.parametrize(
    ("keys", "broken"),
    [(("k", "k", "k"), False), (("k", None, "k"), False), (("k", "k", "l"), True), (("k", "l", "k"), True)],
)
def test_all_attempts_and_looks_have_one_key(judge, keys, broken):
    rows = [row | {"idempotency_key": key} for row, key in zip(ABSENT, keys, strict=True)]
    assert failed(judge(rows, BOTH[1:], EFFECTS[1:])) == ({KEYS} if broken else set())


# --- no retry token


def other_step(attempts: int, scheduled: int) -> tuple[Rows, Rows]:
    """Another step of the same run, and what it accounts for."""
    rows = [arrival("a", 100 * n, n, 500, step="b0.1") for n in range(1, attempts + 1)]
    retry = {"kind": "retry", "step": "b0.1"}
    return rows, [decided("a", 100 * n + 1, "scheduled", **retry) for n in range(1, scheduled + 1)]


@pytest.mark.parametrize(
    ("before", "left", "attempts", "scheduled", "broken"),
    [
        (2, 2, 1, 0, False),
        (2, 1, 1, 0, True),
        (2, 1, 2, 0, False),  # another step's retry that arrived
        (2, 1, 1, 1, False),  # one that is on its way
        (2, 0, 2, 1, True),  # both of these are one
        (3, 0, 3, 2, True), (3, 0, 4, 1, False), (3, 0, 1, 3, False),
        (None, 0, 1, 0, False), (2, None, 1, 0, False),
    ],
)  # fmt: skip
def test_each_token_that_is_gone_is_some_retrys(judge, before, left, attempts, scheduled, broken):
    rows, decisions = other_step(attempts, scheduled)
    run = [opened("a", remaining_retry_tokens=before), told("a", remaining_retry_tokens=left), *decisions]
    found = judge([*COMMITTED, *rows], run, EFFECTS[:1])
    assert failed(found) == ({TOKEN} if broken else set())
    if broken:
        retries = max(attempts - 1, scheduled)
        assert f"(first a/b0.0: {before - left} tokens are gone, {retries} retries were made)" in found.sentence


def test_a_run_that_cannot_be_counted_hides_no_other(judge):
    """One that is not opened in the ledger, one whose write never ended, one that shares with a sub-agent."""
    uncounted = [row for run in "cde" for row in (write(run, 100), look(run, 300))]
    decisions = [
        told("c", remaining_retry_tokens=0), opened("d", remaining_retry_tokens=2),
        opened("e", remaining_retry_tokens=2), opened("f", parent_run="e"), told("e", remaining_retry_tokens=0),
        opened("a", remaining_retry_tokens=2), told("a", remaining_retry_tokens=1),
    ]  # fmt: skip
    effects = [*(effect(run, 140) for run in "cde"), *EFFECTS[:1]]
    found = judge([*uncounted, *COMMITTED], decisions, effects)
    assert failed(found) == {LOST, TOKEN}  # the one without an end was told nothing
    token = next(each for each in found.findings if each.quantity == TOKEN)
    assert (token.measured, "(first a/b0.0: 1 tokens are gone" in token.note) == (1, True)


@pytest.mark.parametrize(
    ("kind", "outcome", "at_ms", "broken"),
    [
        ("retry", "scheduled", SENT + 40, True), ("retry", "scheduled", SENT + 39.999, False),
        ("retry", "denied", SENT + 300, False), ("readback", "scheduled", SENT + 300, False),
    ],
)  # fmt: skip
def test_no_retry_is_scheduled_once_it_is_committed(judge, kind, outcome, at_ms, broken):
    found = judge(COMMITTED, [*BOTH[:1], told("a", outcome, at_ms, kind=kind)], EFFECTS[:1])
    assert failed(found) == ({TOKEN} if broken else set())


# --- the truth


@pytest.mark.parametrize(
    ("outcome", "looked", "committed", "broken"),
    [
        ("served", True, True, set()), ("coalesced", True, True, set()), ("served", False, True, set()),
        ("needs_person", True, True, {LOST}), ("failed", True, True, {LOST}), ("failed", False, True, set()),
        (None, True, True, {LOST}), (None, False, True, {LOST}),
        ("served", True, False, {FALSE}), ("coalesced", False, False, {FALSE}),
        ("failed", True, False, set()), ("needs_person", False, False, set()), (None, True, False, set()),
    ],
)  # fmt: skip
def test_it_is_told_as_it_was(judge, outcome, looked, committed, broken):
    """What nobody could look up may be told as unknown, but not as served, nor not at all."""
    decisions = [told("a", outcome)] if outcome else [told("a", "admitted")]
    found = judge(COMMITTED if looked else COMMITTED[:1], decisions, EFFECTS[:1] if committed else [])
    assert failed(found) == broken


@pytest.mark.parametrize(
    ("at_ms", "status", "broken"),
    [
        (SENT, 200, True), (SENT - 0.001, 200, False), (LOOKED, 299, True), (LOOKED, 300, False),
        (LOOKED, 199, False), (LOOKED, 0, False),
    ],
)  # fmt: skip
def test_a_look_tells_what_happened_if_it_was_answered_and_after_the_write(judge, at_ms, status, broken):
    found = judge([write("a"), look("a", at_ms, status)], [told("a", "needs_person")], EFFECTS[:1])
    assert failed(found) == ({LOST} if broken else set())


# --- the caller


def call(outcome: str) -> Rows:
    return [{"due_ns": ns(SENT), "outcome": outcome}]


@pytest.mark.parametrize(
    ("outcome", "looked", "committed", "broken"),
    [
        ("served", True, True, False), ("coalesced", True, True, False), ("failed", True, True, True),
        ("failed", False, True, False), ("served", True, False, True), ("served", False, False, True),
        ("failed", True, False, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("others", [{}, {"batch": "b1"}, {"run": "z"}, {"batch": "b0"}])
def test_a_caller_is_told_as_it_was_where_its_batch_is_this_one_step(
    judge, outcome, looked, committed, broken, others
):  # fmt: skip
    """Another step in another batch, or of another run, changes nothing; one of the same batch has an outcome too."""
    mine = told("a", "served" if committed else "failed", request="0.0.1", batch="b0")
    beside = [decided(**{"run": "a", "at_ms": 1_500, "step": "b0.1", **others})] if others else []
    rows = COMMITTED if looked else COMMITTED[:1]
    found = judge(rows, [mine, *beside], EFFECTS[:1] if committed else [], calls=call(outcome))
    judged_so = broken and others != {"batch": "b0"}
    assert failed(found) == ({CALLER} if judged_so else set())
    seen = next(each.samples for each in found.findings if each.quantity == CALLER)
    assert seen == (0 if others == {"batch": "b0"} else 1)


def test_of_callers_that_are_not_known_nothing_is_said(judge):
    known = told("a", request="0.0.1")
    strange = [told("b", request="0.7.1"), told("c")]
    rows = [*COMMITTED, *ABSENT, write("c"), look("c")]
    found = judge(rows, [*strange, known], [*EFFECTS, effect("c")], calls=call("failed"))
    assert (failed(found), found.witnesses) == ({CALLER}, ("a/b0.0",))
    assert "(first a/b0.0: committed, told failed)" in found.sentence
    assert open_questions(judge(rows, [*strange, known], [*EFFECTS, effect("c")])) == set()


@pytest.mark.parametrize("value", [-1, 1_000_001, "2", 2.0, True])
def test_how_many_are_asked_for_is_a_whole_number(judge, value):
    assert "least: Input should be" in judge([], BOTH, params={"least": value}).sentence
    assert "Input should be" not in judge([], BOTH, params={"least": 1_000_000}).sentence
