"""capacity.cancelled at its bounds, row by row: when it was, what was waiting then, and what was running."""

from __future__ import annotations

import pytest

from harness.checks.cancelled import NAME
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.reader import DECISIONS, read_trial
from tests.unit.capacity_rows import MS, asked, said, seen, trial
from tests.unit.capacity_trials import failed
from tests.unit.cost_trials import found

BEGUN, RETRIED, UNENDED = "begun after cancellation", "retried after cancellation", "not ended as cancelled"
TAKEN, UNLOOKED = "taken after cancellation", "not looked at"
WAITING, RUNNING, FAILED = "waiting when cancelled", "running when cancelled", "failed after it"
CANCELLED = said(100, "run", "cancelled")
ADMITTED = said(1, "batch", "admitted", batch="b0")


def judged(tmp_path, *rows, calls=()):
    """Rows of decisions and arrivals of a run that is cancelled at 100 ms, unless they say otherwise."""
    decisions, arrivals = ([row for row in rows if ("kind" in row) is told] for told in (True, False))
    mine = trial(tmp_path, calls=[asked("0.0", run_id="r"), *calls], decisions=decisions, arrivals=arrivals)
    return judge_one(mine, NAME, {})


def ended(at, outcome="cancelled", **more):
    return said(at, "step", outcome, step="b0.0", **more)


def cancel(done, **more):
    return asked("0.9", "cancel", run_id="r", due_ns=0, done_ns=done * MS, **more)


@pytest.mark.parametrize(
    ("rows", "waiting", "running"),
    [
        ([seen(99, 101)], 0, 1), ([seen(100, 101)], 0, 1), ([seen(101, 110)], 1, 0), ([seen(90, 100)], 0, 0),
        ([seen(50, 60), seen(99, 110)], 0, 1),
        ([ended(99, "served")], 0, 0), ([ended(100)], 1, 0), ([ended(101)], 1, 0), ([said(50, "step", "queued",
          step="b0.0")], 1, 0), ([seen(120, 130), ended(130, "served")], 1, 0),
    ],
)  # fmt: skip
def test_a_step_waits_or_runs_by_what_had_begun_and_what_had_ended_when_its_run_was_cancelled(
    tmp_path, rows, waiting, running
):
    verdict = judged(tmp_path, CANCELLED, ADMITTED, *rows)
    assert [found(verdict, what).measured for what in (WAITING, RUNNING)] == [waiting, running]


@pytest.mark.parametrize(("at_ms", "waiting"), [(99, 1), (100, 1), (101, 0)])
def test_only_steps_that_were_asked_for_by_then_were_waiting(tmp_path, at_ms, waiting):
    verdict = judged(tmp_path, CANCELLED, said(at_ms, "batch", "admitted", batch="b0"), ended(101, "expired"))
    assert found(verdict, UNENDED).samples == waiting
    assert (UNENDED in failed(verdict)) is bool(waiting)


@pytest.mark.parametrize(
    ("rows", "calls", "begun"),
    [
        ([CANCELLED], [], True),
        ([said(200, "run", "cancelled")], [], False),
        ([said(200, "run", "cancelled")], [cancel(100)], True),
        ([CANCELLED], [cancel(200)], True),
        ([], [cancel(100)], True),
        ([], [cancel(200)], False),
        ([], [cancel(100, outcome="failed")], False),
        ([CANCELLED, said(200, "run", "cancelled")], [], True),
        ([said(100, "step", "cancelled", step="b0.1")], [cancel(200)], False),
        ([said(100, "run", "cancelled", run="other")], [], False),
    ],
)
def test_a_run_is_cancelled_when_the_layer_says_so_or_its_caller_had_the_answer_whichever_is_sooner(
    tmp_path, rows, calls, begun
):
    verdict = judged(tmp_path, ADMITTED, *rows, seen(131, 150), calls=calls)
    assert failed(verdict) == ({BEGUN} if begun else set())
    assert verdict.witnesses == (("r/b0.0",) if begun else ())


def test_with_a_run_go_its_sub_agents_and_theirs(tmp_path):
    tree = [said(1, "run", "opened", run="b", parent_run="r"), said(1, "run", "opened", run="c", parent_run="b")]
    verdict = judged(
        tmp_path, CANCELLED, *tree, seen(50, 60, run="b"), seen(131, 140, run="c"), seen(131, 140, run="x")
    )
    assert (verdict.witnesses, found(verdict, BEGUN).samples) == (("c/b0.0",), 2)


def test_the_first_cancellation_above_a_run_counts(tmp_path):
    tree = [said(1, "run", "opened", run="b", parent_run="r"), said(200, "run", "cancelled", run="b")]
    step = said(150, "batch", "admitted", run="b", batch="b0"), said(210, "step", "expired", run="b", step="b0.0")
    verdict = judged(tmp_path / "late", CANCELLED, *tree, *step, seen(131, 140, run="b", step="b7.0"))
    assert (failed(verdict), verdict.witnesses) == ({BEGUN}, ("b/b7.0",))
    assert found(verdict, WAITING).measured == 0


def test_runs_that_name_each_other_as_parents_are_judged_all_the_same(tmp_path):
    ring = [said(1, "run", "opened", run="r", parent_run="b"), said(1, "run", "opened", run="b", parent_run="r")]
    verdict = judged(tmp_path, CANCELLED, *ring, seen(131, 140), seen(131, 140, run="b"))
    assert verdict.witnesses == ("r/b0.0", "b/b0.0")


def test_a_retry_is_told_from_a_beginning_and_all_steps_are_looked_at(tmp_path):
    rows = [seen(90, 99, step="a"), seen(131, 140, step="a"), seen(131, 140, step="b"), seen(130, 140, step="c")]
    verdict = judged(tmp_path, CANCELLED, *rows)
    assert verdict.witnesses == ("r/b", "r/a")
    assert [(found(verdict, what).measured, found(verdict, what).samples) for what in (BEGUN, RETRIED)] == [(1, 3)] * 2


@pytest.mark.parametrize(
    ("status", "looks", "broken"),
    [(200, 1, False), (200, 0, True), (200, 2, True), (503, 0, False), (0, 0, False), (503, 1, False)],
)
def test_a_result_is_looked_at_once_and_what_failed_need_not_be(tmp_path, status, looks, broken):
    late = [said(120 + i, "late", "discarded", step="b0.0") for i in range(looks)]
    verdict = judged(tmp_path, CANCELLED, seen(90, 110, status=status), *late)
    assert failed(verdict) == ({UNLOOKED} if broken else set())
    assert (found(verdict, UNLOOKED).samples, found(verdict, FAILED).measured) == (status == 200, status != 200)


@pytest.mark.parametrize(
    ("action", "at_ms", "outcome", "samples", "broken"),
    [
        ("submit", 101, "served", 1, True), ("open", 101, "throttled", 1, True), ("submit", 100, "served", 0, False),
        ("submit", 101, "cancelled", 1, False), ("submit", 101, "budget_exhausted", 1, False),
        ("finish", 101, "served", 0, False),
    ],
)  # fmt: skip
def test_what_is_asked_for_after_the_cancellation_is_refused_for_good(
    tmp_path, action, at_ms, outcome, samples, broken
):
    call = asked("0.5", action, run_id="r", due_ns=at_ms * MS, outcome=outcome)
    verdict = judged(tmp_path, CANCELLED, seen(1, 2), calls=[call])
    assert (found(verdict, TAKEN).samples, found(verdict, "asked for after it").measured) == (samples, samples)
    assert (failed(verdict), verdict.witnesses) == (({TAKEN}, ("0.5",)) if broken else (set(), ()))


def test_without_decisions_it_says_what_it_lacks(tmp_path):
    judged(tmp_path, seen(131, 140), calls=[cancel(100)])
    (tmp_path / "trial" / DECISIONS).unlink()
    verdict = judge_one(read_trial(tmp_path / "trial"), NAME, {})
    assert (verdict.word, verdict.sentence) == (
        Word.INCONCLUSIVE, "Cannot be judged: it needs both arrivals and decisions.",
    )  # fmt: skip
