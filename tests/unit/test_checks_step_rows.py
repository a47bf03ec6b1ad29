"""What a trial's rows say of one step, its run and its circuit: which rows are its own, and what they tell."""

from __future__ import annotations

import pytest

from harness.checks import step_rows
from harness.checks.step_rows import Frame, RunRows, StepRows, frame_of, most_at_once
from harness.ledger.outcomes import FROM_SERVICE
from tests.unit.capacity_rows import MS, asked, said, seen, trial


def frame(tmp_path, **rows) -> Frame:
    return frame_of(trial(tmp_path, **rows))


def of(decisions=(), attempts=(), readbacks=(), effects=()):
    return StepRows("r", "b0.0", list(decisions), list(attempts), list(readbacks), list(effects))


def test_a_frame_is_made_once_a_trial_and_apart_from_the_other_frame_of_it(tmp_path):
    mine = trial(tmp_path)
    assert frame_of(mine) is frame_of(mine)
    assert "step_rows" in mine.memo


def test_classes_are_in_order_of_precedence(tmp_path):
    names = ("maintenance", "approval_resume", "autonomous", "interactive")
    rows = [said(1, "step", "queued", step=name, traffic_class=name) for name in names]
    steps = frame(tmp_path, decisions=rows).steps.values()
    ordered = sorted(steps, key=lambda step: step_rows.CLASSES.index(step.told("traffic_class")))
    assert [step.step for step in ordered] == ["interactive", "approval_resume", "autonomous", "maintenance"]


@pytest.mark.parametrize("outcome", FROM_SERVICE)
def test_a_step_ends_with_its_first_decision_that_ends_it(outcome):
    rows = [said(1, "retry", outcome), said(2, "step", "queued"), said(3, "step", outcome), said(4, "step", "served")]
    mine = of(rows)
    assert ([row["t_ns"] for row in mine.ends], mine.outcome) == ([3 * MS, 4 * MS], outcome)
    assert (of(rows[:2]).end, of(rows[:2]).outcome, of().outcome) == (None, None, None)


def test_decisions_are_asked_for_by_kind_and_by_outcome():
    rows = [said(1, "step", "queued"), said(2, "retry", "scheduled"), said(3, "step", "served"), said(4, "late", "x")]
    mine = of(rows)
    assert mine.id == "r/b0.0"
    assert mine.decided("step") == [rows[0], rows[2]]
    assert mine.decided("step", "served", "failed") == [rows[2]]
    assert mine.decided("step", "scheduled") == []


def test_what_a_step_tells_of_a_key_is_what_the_first_of_its_rows_says():
    assert of([{"a": None}, {"a": 1}], [{"a": 2}]).told("a") == "1"
    assert of([{}], [{"a": None}, {"a": 2}], [{"a": 3}]).told("a") == "2"
    assert of([{}], [], [{"a": 3}], [{"a": 4}]).told("a") == "3"
    assert of(effects=[{"a": 0}]).told("a") == "0"
    assert of([{}]).told("a") is None


def test_when_a_step_began_to_wait_and_when_it_was_first_heard_of():
    waited = of([said(7, "retry", "queued"), said(8, "step", "queued"), said(9, "step", "queued")])
    assert (waited.queued_ns, waited.first_ns) == (8 * MS, 7 * MS)
    assert (of([said(5, "step", "served")], [seen(3, 4)], [seen(6, 7)]).first_ns) == 3 * MS
    assert (of(readbacks=[seen(6, 7)]).first_ns, of().first_ns, of().queued_ns) == (6 * MS, 0, None)


@pytest.mark.parametrize(
    ("rows", "deadline_ns"),
    [
        ([], None), ([said(1, "run", "opened")], None), ([said(1, "run", "opened", deadline_ns=7)], 7),
        ([said(1, "run", "ended", deadline_ns=5), said(1, "step", "opened", deadline_ns=6)], None),
        ([said(1, "run", "ended", deadline_ns=5), said(2, "run", "opened", deadline_ns=8)], 8),
        ([said(1, "run", "opened", deadline_ns=7), said(2, "run", "opened", deadline_ns=8)], 7),
    ],
)  # fmt: skip
def test_a_runs_deadline_is_the_one_promised_when_it_opened(rows, deadline_ns):
    assert RunRows("r", rows).deadline_ns == deadline_ns


def test_a_step_has_its_runs_deadline_else_the_earliest_that_its_rows_tell(tmp_path):
    own = [said(1, "step", "queued", step="b0.0", deadline_ns=50), said(2, "step", "served", step="b0.0")]
    arrivals = [seen(2, 3, deadline_ns=40), seen(4, 5, deadline_ns=0)]

    def deadline(name, decisions, arrivals=()):
        mine = frame(tmp_path / name, decisions=decisions, arrivals=arrivals)
        return mine.deadline_of(mine.steps["r/b0.0"])

    assert deadline("promised", [said(0, "run", "opened", deadline_ns=90), *own], arrivals) == 90
    assert deadline("untold", [said(0, "run", "opened"), *own], arrivals) == 40
    assert deadline("unopened", own) == 50
    assert deadline("nowhere", own[1:]) is None
    assert frame(tmp_path / "x").deadline_of(of(attempts=arrivals)) == 40


def test_a_step_came_with_the_request_that_it_or_its_batch_names(tmp_path):
    decisions = [
        said(1, "batch", "admitted", batch="b0", request="0.7.1"), said(1, "batch", "admitted", batch="b1"),
        said(2, "step", "queued", step="b0.0", batch="b0"), said(2, "step", "queued", step="b1.0", batch="b1"),
        said(2, "step", "queued", step="b0.1", batch="b0"), said(3, "step", "served", step="b0.1", request="0.9"),
        said(2, "step", "queued", step="b2.0"), said(2, "batch", "admitted", run="s", batch="b2", request="0.8"),
    ]  # fmt: skip
    mine = frame(tmp_path, decisions=decisions)
    asked_by = {name: mine.request_of(step) for name, step in mine.steps.items()}
    assert asked_by == {"r/b0.0": "0.7", "r/b1.0": None, "r/b0.1": "0.9", "r/b2.0": None}
    assert [(key, len(rows)) for key, rows in mine.batches.items()] == [
        (("r", "b0"), 1), (("r", "b1"), 1), (("s", "b2"), 1),
    ]  # fmt: skip


def test_steps_of_a_dependency(tmp_path):
    mine = frame(tmp_path, arrivals=[seen(1, 2), seen(1, 2, "moving", step="b0.1"), seen(3, 4)])
    assert [step.id for step in mine.of_dependency("model")] == ["r/b0.0"]


def test_each_row_is_of_the_step_that_it_names_and_rows_that_name_none_are_of_nobody(tmp_path):
    decisions = [
        said(1, "run", "opened"), said(1, "run", "opened", run="child", parent_run="r"),
        said(1, "run", "opened", run="other", parent_run="r"), said(2, "run", "ended", run="child", parent_run="r"),
        said(2, "step", "opened", step="b0.0", parent_run="r"),
        *(said(3, kind, "x", step="b0.0") for kind in ("step", "retry", "readback", "late", "cost", "circuit")),
        said(4, "step", "x", step=None), said(5, "step", "x", run=None, step="b0.0"),
        said(6, "circuit", "opened", run=None, dependency="model"), said(7, "limit", "raised", run=None),
        said(8, "circuit", "closed", run=None, dependency="model"),
    ]  # fmt: skip
    arrivals = [
        seen(0, 1, run=None), seen(0, 1, step=None), seen(1, 2), seen(3, 4, readback=True), seen(5, 6),
        seen(7, 8, operation="readback"),
    ]  # fmt: skip
    effects = [{"t_ns": 1, "run": "r"}, {"t_ns": 2, "step": "b0.0"}, {"t_ns": 3, "run": "r", "step": "b0.0"}]
    mine = frame(tmp_path, decisions=decisions, arrivals=arrivals, effects=effects)
    assert (list(mine.steps), list(mine.runs)) == (["r/b0.0"], ["r", "child", "other"])
    step = mine.steps["r/b0.0"]
    assert [row["kind"] for row in step.decisions] == ["step", "step", "retry", "readback", "late"]
    assert [row["t_ns"] for row in step.attempts] == [MS, 5 * MS]
    assert [row["t_ns"] for row in step.readbacks] == [3 * MS, 7 * MS]
    assert step.effects == effects[2:]
    assert (mine.runs["r"].steps, mine.runs["r"].children, mine.runs["child"].children) == ([step], 2, 0)
    assert len(mine.runs["r"].decisions) == 9
    assert {name: [row["outcome"] for row in rows] for name, rows in mine.circuits.items()} == {
        "model": ["opened", "closed"]
    }


def test_rows_that_say_nothing_of_time_or_status_are_of_the_beginning_and_without_an_answer():
    assert (step_rows.at({}), step_rows.at({"t_ns": 5})) == (0, 5)
    assert (step_rows.ended_ns({"t_ns": 5}), step_rows.ended_ns({"t_ns": 5, "ended_ns": 9})) == (5, 9)
    assert (step_rows.answered({}), step_rows.answered({"status": 503})) == (0, 503)


@pytest.mark.parametrize(
    ("spans", "most"),
    [
        ([], (0, 0)), ([(1, 5)], (1, 1)), ([(1, 5), (5, 9)], (1, 1)), ([(1, 6), (5, 9)], (2, 5)),
        ([(1, 9), (2, 4), (3, 5), (6, 8), (6, 8)], (3, 3)), ([(1, 9), (4, 2), (4, 6)], (2, 4)),
    ],
)  # fmt: skip
def test_most_spans_at_once_and_when_first(spans, most):
    assert most_at_once(spans) == most


def test_a_callers_rows_make_no_step(tmp_path):
    assert frame(tmp_path, calls=[asked("0.0", "submit", run_id="r")]).steps == {}
