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
