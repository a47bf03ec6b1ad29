"""v09.ambiguous_write: each defect's signature in the rows, an honest twin, thin and withheld evidence."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from tests.unit.verification_trials import (
    ARRIVALS,
    CALLS,
    DECISIONS,
    EFFECTS,
    arrivals,
    decisions,
    edited,
    healthy,
    more,
    read,
    verdict,
    without,
)  # fmt: skip

CHECK = "v09.ambiguous_write"


@pytest.fixture
def trial(tmp_path):
    return healthy("v09", tmp_path)


def key(row):
    return row.get("run"), row.get("step")


def with_fault(trial, fault):
    return [key(a) for a in read(trial, ARRIVALS) if a.get("fault") == fault]


def test_the_healthy_controller_passes(trial):
    found = verdict(trial, CHECK)
    assert found.word is Word.PASS, found.sentence
    assert found.sentence.startswith("12 writes were committed without an answer and 12 were not: ")


def test_a_blind_retry_fails_even_where_the_key_saves_it(trial):
    steps = set(with_fault(trial, "hang"))
    blind = arrivals(trial, lambda a: None if key(a) in steps and a.get("readback") else a)
    found = verdict(blind, CHECK)
    assert found.word is Word.FAIL
    assert "were repeated without looking first" in found.sentence
    assert set(found.witnesses) == {f"{run}/{step}" for run, step in steps}


def test_a_look_that_comes_after_the_repeat_is_none(trial):
    steps = set(with_fault(trial, "hang"))

    def late(a):
        return (
            a | {"t_ns": a["t_ns"] + 10**9, "ended_ns": a["ended_ns"] + 10**9}
            if key(a) in steps and a.get("readback")
            else a
        )

    assert "were repeated without looking first" in verdict(arrivals(trial, late), CHECK).sentence


def test_a_second_commit_fails(trial):
    first = read(trial, EFFECTS)[0]
    found = verdict(more(trial, EFFECTS, [first | {"t_ns": first["t_ns"] + 10**9, "attempt": 2}]), CHECK)
    assert (found.word, found.witnesses) == (Word.FAIL, (first["logical"],))
    assert "were committed more than once" in found.sentence


def test_a_new_key_for_each_attempt_fails(trial):
    found = verdict(
        arrivals(
            trial,
            lambda a: (
                a | {"idempotency_key": f"{a['idempotency_key']}-{a['attempt']}"} if a.get("idempotency_key") else a
            ),
        ),
        CHECK,
    )
    assert found.word is Word.FAIL
    assert "changed their idempotency key" in found.sentence


def test_writing_a_committed_one_again_fails(trial):
    run, step = with_fault(trial, "commit_then_timeout")[0]
    last = max((a for a in read(trial, ARRIVALS) if key(a) == (run, step)), key=lambda a: a["ended_ns"])
    again = last | {
        "t_ns": last["ended_ns"] + 1,
        "ended_ns": last["ended_ns"] + 10**6,
        "operation": "write",
        "attempt": 2,
        "status": 200,
    }
    again.pop("readback", None)
    found = verdict(more(trial, ARRIVALS, [again]), CHECK)
    assert found.word is Word.FAIL
    assert "committed: 1 writes were written again" in found.sentence.lower()


def test_a_retry_token_spent_on_a_committed_one_fails(trial):
    steps = set(with_fault(trial, "commit_then_timeout"))

    def spent(r):
        return (
            r | {"remaining_retry_tokens": r["remaining_retry_tokens"] - 1}
            if key(r) in steps and r["outcome"] == "served"
            else r
        )

    found = verdict(decisions(trial, spent), CHECK)
    assert found.word is Word.FAIL
    assert "cost a retry token" in found.sentence


@pytest.mark.parametrize("outcome", ["failed", "needs_person", "throttled"])
def test_committed_and_told_otherwise_fails(trial, outcome):
    steps = set(with_fault(trial, "commit_then_timeout"))
    false = decisions(trial, lambda r: r | {"outcome": outcome} if key(r) in steps and r["outcome"] == "served" else r)
    found = verdict(false, CHECK)
    assert found.word is Word.FAIL
    assert f"told {outcome}, committed at" in found.sentence


def test_told_otherwise_only_to_the_caller_fails(trial):
    runs = {run for run, _ in with_fault(trial, "commit_then_timeout")}
    asked = {r["request"] for r in read(trial, DECISIONS) if r["kind"] == "batch" and r["run"] in runs}
    requests = {".".join(request.split(".")[:2]) for request in asked}
    false = edited(trial, CALLS, lambda c: c | {"outcome": "failed"} if c["call"] in requests else c)
    found = verdict(false, CHECK)
    assert found.word is Word.FAIL
    assert "were told something else than what happened" in found.sentence


def test_served_and_never_committed_fails(trial):
    steps = set(with_fault(trial, "hang"))
    false = edited(trial, EFFECTS, lambda e: None if key(e) in steps else e)
    found = verdict(false, CHECK)
    assert found.word is Word.FAIL
    assert "were recorded as served and never committed" in found.sentence


def test_an_unresolved_one_told_so_is_the_truth(trial):
    """Twin: no read-back was answered, so a person is asked, whatever happened."""
    run, step = with_fault(trial, "commit_then_timeout")[0]
    silent = arrivals(trial, lambda a: a | {"status": 0} if key(a) == (run, step) and a.get("readback") else a)
    honest = decisions(
        silent,
        lambda r: (
            r | {"outcome": "needs_person", "reason": "unresolved"}
            if key(r) == (run, step) and r["outcome"] == "served"
            else r
        ),
    )
    requests = {r["request"] for r in read(trial, DECISIONS) if r["kind"] == "batch" and r["run"] == run}
    honest = edited(
        honest,
        CALLS,
        lambda c: c | {"outcome": "needs_person"} if any(q.startswith(c["call"]) for q in requests) else c,
    )
    found = verdict(honest, CHECK)
    assert found.word is Word.PASS, found.sentence


def test_without_writes_that_are_not_committed_it_is_inconclusive(trial):
    steps = set(with_fault(trial, "hang"))
    thin = arrivals(trial, lambda a: None if key(a) in steps else a)
    found = verdict(thin, CHECK)
    assert found.word is Word.INCONCLUSIVE
    assert "fault `hang` on writes" in found.add


@pytest.mark.parametrize("file", [ARRIVALS, DECISIONS, EFFECTS])
def test_withheld_evidence_is_inconclusive(trial, file):
    assert verdict(without(trial, file), CHECK).word is Word.INCONCLUSIVE


# --- each rule by itself


def looked_up_at(trial, move):
    """The read-backs of writes that hung, moved; `move` is given the first attempt, the repeat and the read-back."""
    rows = read(trial, ARRIVALS)
    steps = set(with_fault(trial, "hang"))
    writes = {place: [a for a in rows if key(a) == place and not a.get("readback")] for place in steps}
    repeated = {place: made for place, made in writes.items() if len(made) > 1}

    def moved(a):
        return a | move(*repeated[key(a)][:2], a) if key(a) in repeated and a.get("readback") else a

    return arrivals(trial, moved)


@pytest.mark.parametrize(("late_ms", "broken"), [(1, False), (2, True)])
def test_a_look_has_to_be_answered_before_the_repeat(trial, late_ms, broken):
    late = looked_up_at(trial, lambda first, repeat, look: {"ended_ns": repeat["t_ns"] + late_ms * 10**6})
    assert ("were repeated without looking first" in verdict(late, CHECK).sentence) is broken


@pytest.mark.parametrize(("before_ns", "broken"), [(0, False), (1, True)])
def test_a_look_before_the_write_was_sent_is_none(trial, before_ns, broken):
    early = looked_up_at(trial, lambda first, repeat, look: {"t_ns": first["t_ns"] - before_ns})
    assert ("were repeated without looking first" in verdict(early, CHECK).sentence) is broken


@pytest.mark.parametrize(("status", "broken"), [(0, True), (504, True), (503, False)])
def test_each_attempt_without_an_answer_is_looked_up_also_a_later_one(trial, status, broken):
    """The second was answered; the third was not, if it was not, and a fourth follows."""
    rows = read(trial, ARRIVALS)
    mine = next(place for place in with_fault(trial, "hang") if sum(key(a) == place for a in rows) > 2)
    second = next(a for a in rows if key(a) == mine and a["attempt"] == 2 and not a.get("readback"))
    answered = arrivals(trial, lambda a: a | {"status": 503} if a == second else a)
    ended = second["ended_ns"]
    third = second | {"attempt": 3, "status": status, "t_ns": ended + 10**8, "ended_ns": ended + 2 * 10**8}
    fourth = second | {"attempt": 4, "t_ns": ended + 3 * 10**8, "ended_ns": ended + 4 * 10**8}
    found = verdict(more(answered, ARRIVALS, [third, fourth]), CHECK)
    assert ("were repeated without looking first" in found.sentence) is broken


@pytest.mark.parametrize(("after_ms", "broken"), [(-1, False), (0, True)])
def test_a_retry_that_is_scheduled_for_a_committed_write_has_cost_a_token(trial, after_ms, broken):
    run, step = with_fault(trial, "commit_then_timeout")[0]
    committed = min(e["t_ns"] for e in read(trial, EFFECTS) if key(e) == (run, step))
    served = next(r for r in read(trial, DECISIONS) if key(r) == (run, step) and r["outcome"] == "served")
    retry = {**served, "kind": "retry", "outcome": "scheduled", "t_ns": committed + after_ms * 10**6}
    found = verdict(more(trial, DECISIONS, [retry]), CHECK)
    assert ("cost a retry token" in found.sentence) is broken


def test_a_committed_one_that_never_ends_was_told_nothing(trial):
    steps = set(with_fault(trial, "commit_then_timeout"))
    silent = decisions(trial, lambda r: None if key(r) in steps and r["outcome"] == "served" else r)
    found = verdict(silent, CHECK)
    assert found.word is Word.FAIL
    assert "told nothing, committed at" in found.sentence


@pytest.mark.parametrize(
    ("status", "word"), [(199, Word.PASS), (200, Word.FAIL), (299, Word.FAIL), (300, Word.PASS), (503, Word.PASS)]
)
def test_whoever_was_told_that_it_is_committed_may_not_ask_a_person(trial, status, word):
    run, step = with_fault(trial, "commit_then_timeout")[0]
    answered = arrivals(trial, lambda a: a | {"status": status} if key(a) == (run, step) and a.get("readback") else a)
    told = decisions(
        answered,
        lambda r: (
            r | {"outcome": "needs_person", "reason": "unresolved"}
            if key(r) == (run, step) and r["outcome"] == "served"
            else r
        ),
    )
    requests = {r["request"] for r in read(trial, DECISIONS) if r["kind"] == "batch" and r["run"] == run}
    told = edited(
        told, CALLS, lambda c: c | {"outcome": "needs_person"} if any(q.startswith(c["call"]) for q in requests) else c
    )
    assert verdict(told, CHECK).word is word


def test_a_caller_that_is_told_of_a_write_that_never_was_fails(trial):
    steps = set(with_fault(trial, "hang"))
    runs = {run for run, _ in steps}
    undone = edited(trial, EFFECTS, lambda e: None if key(e) in steps else e)
    undone = decisions(
        undone, lambda r: r | {"outcome": "failed"} if key(r) in steps and r["outcome"] == "served" else r
    )
    found = verdict(undone, CHECK)
    assert found.word is Word.FAIL
    assert "not committed, told served" in found.sentence
    requests = {r["request"] for r in read(trial, DECISIONS) if r["kind"] == "batch" and r["run"] in runs}
    mine = {".".join(request.split(".")[:2]) for request in requests}
    honest = edited(undone, CALLS, lambda c: c | {"outcome": "failed"} if c["call"] in mine else c)
    assert verdict(honest, CHECK).word is Word.PASS


def test_writes_that_all_have_keys_leave_one_question_open(trial):
    def keyed(row):
        return row | {"idempotency_key": f"{row['run']}/{row['step']}"} if row.get("step") else row

    found = verdict(decisions(arrivals(trial, keyed), keyed), CHECK)
    assert (found.word, found.add) == (Word.INCONCLUSIVE, "write steps with `key: none`")


def test_two_effects_of_one_write_are_two_whatever_names_them(trial):
    first = read(trial, EFFECTS)[0]
    bare = [{k: v for k, v in e.items() if k != "logical"} for e in (first, first | {"t_ns": first["t_ns"] + 1})]
    others = edited(trial, EFFECTS, lambda e: None if key(e) == key(first) else e)
    found = verdict(more(others, EFFECTS, bare), CHECK)
    assert (found.word, found.witnesses) == (Word.FAIL, (f"{first['run']}/{first['step']}",))
