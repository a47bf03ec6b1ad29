"""v01.fan_out_ceiling: a healthy trial passes, and each way past the ceiling is seen by what arrived."""

from __future__ import annotations

import pytest

from harness.checks.v01_fan_out import NAME
from harness.checks.verdict import Word
from tests.unit.capacity_trials import each, failed, healthy, judged, open_questions, runs_of, without_runs
from tests.unit.ledgers import rows_of


def judge(tmp_path, **edits):
    return judged("v01", NAME, tmp_path, **edits)


def test_a_healthy_trial_passes_and_says_what_was_shown(tmp_path):
    verdict = judge(tmp_path)
    assert verdict.word is Word.PASS
    assert verdict.sentence == (
        "114 runs, 56 of which asked for more than they may: no run passed its ceiling, and each batch that asked for "
        "too much was refused whole before any of its calls."
    )
    assert verdict.samples == 114


@pytest.mark.parametrize("group", ["parallel", "replans", "retries", "failing", "delegates", "one_batch"])
def test_calls_beyond_the_ceiling_fail_however_they_came(tmp_path, group):
    """The arrivals of the last step come again as steps that the controller never counted."""
    run = runs_of("v01", group)[-1]

    def more(rows):
        last = next(row for row in reversed(rows) if row["run"] == run)
        return rows + [{**last, "step": f"b9.{i}"} for i in range(9)]

    verdict = judge(tmp_path, arrivals=more)
    assert verdict.word is Word.FAIL
    assert "calls over the ceiling" in failed(verdict)
    assert "calls reached the dependencies where its envelope holds" in verdict.sentence


def test_a_sub_agents_calls_count_for_its_parent_even_if_the_controller_does_not_link_them(tmp_path):
    root = runs_of("v01", "delegates")[0]

    def more(rows):
        child = next(row for row in rows if row["run"] != root and row["run"] in runs_of("v01", "delegates"))
        return rows + [{**child, "step": f"b0.{i}"} for i in range(3, 60)]

    def unlinked(rows):
        for row in rows:
            row.pop("parent_run", None)

    verdict = judge(tmp_path, arrivals=more, decisions=unlinked)
    assert "calls over the ceiling" in failed(verdict)
    assert verdict.witnesses[0] in runs_of("v01", "delegates")


def test_a_budget_for_one_dependency_is_a_ceiling_too(tmp_path):
    run = runs_of("v01", "one_dependency")[0]

    def more(rows):
        return rows + [{**next(r for r in rows if r["run"] == run), "step": f"b8.{i}"} for i in range(2)]

    verdict = judge(tmp_path, arrivals=more)
    assert failed(verdict) == {"calls over a budget"}
    assert verdict.sentence == f"Run {run}: 5 calls to customer where its budget is 4 (1 such runs)."


def test_a_call_of_a_refused_batch_fails(tmp_path):
    run = runs_of("v01", "one_batch")[0]

    def begun(rows):
        return [*rows, {**next(r for r in rows if r["run"] == run), "step": "b1.0"}]

    verdict = judge(tmp_path, arrivals=begun)
    assert (failed(verdict), verdict.witnesses) == ({"refused, yet begun"}, (f"{run}/b1.0",))


def test_excess_that_is_dropped_in_silence_fails(tmp_path):
    run = runs_of("v01", "dribble")[0]

    def drop(rows):
        return [row for row in rows if not (row.get("run") == run and row.get("step") == "b2.2")]

    verdict = judge(tmp_path, arrivals=drop, decisions=drop)
    assert (failed(verdict), verdict.witnesses) == ({"begun in part"}, (f"{run}/b2",))


@pytest.mark.parametrize("group", ["replans", "delegates"])
def test_a_call_of_a_replan_or_of_a_sub_agent_that_is_dropped_in_silence_fails(tmp_path, group):
    """Of a batch that began, a call of which nothing was ever heard again."""
    runs, ending = set(runs_of("v01", group)), "r1.2" if group == "replans" else "b0.2"
    run, step = next(
        (row["run"], row["step"])
        for row in rows_of(healthy("v01"), "arrivals.jsonl")
        if row["run"] in runs and row["step"].endswith(ending)
    )

    def drop(rows):
        return [row for row in rows if (row.get("run"), row.get("step")) != (run, step)]

    verdict = judge(tmp_path, arrivals=drop, decisions=drop)
    assert (failed(verdict), verdict.witnesses) == ({"begun in part"}, (f"{run}/{step.rpartition('.')[0]}",))


def test_how_a_run_with_sub_agents_ends_is_not_judged_by_what_they_were_refused(tmp_path):
    roots = set(runs_of("v01", "delegates"))

    def done(rows):
        each(rows, lambda r: r["kind"] == "run" and r.get("run") in roots and r["outcome"] != "opened", outcome="done")

    assert judge(tmp_path, decisions=done).word is Word.PASS


@pytest.mark.parametrize(("reason", "broken"), [("attempts", {"begun in part"}), ("fan_out", set()), ("tokens", set())])
def test_a_call_that_its_begun_batch_was_refused_fails_unless_the_tree_had_no_room(tmp_path, reason, broken):
    """The decisions say how the third call ended, so that nothing is missing of the batch: it was only not started."""
    run = runs_of("v01", "dribble")[0]

    def mine(row):
        return row.get("run") == run and row.get("step") == "b0.2"

    verdict = judge(
        tmp_path,
        arrivals=lambda rows: [row for row in rows if not mine(row)],
        decisions=lambda rows: each(
            rows, lambda row: mine(row) and row["outcome"] == "served", outcome="budget_exhausted", reason=reason
        ),
    )
    assert failed(verdict) == broken


def test_of_several_runs_over_a_ceiling_the_worst_is_named(tmp_path):
    low, high, last = runs_of("v01", "one_dependency")[:3]

    def more(rows):
        one = {run: next(row for row in rows if row["run"] == run) for run in (low, high, last)}
        extra = {low: 2, high: 60, last: 30}
        return rows + [{**one[run], "step": f"b8.{i}"} for run, n in extra.items() for i in range(n)]

    verdict = judge(tmp_path, arrivals=more)
    findings = {finding.quantity: finding for finding in verdict.findings}
    made, held = findings["calls over a budget"], findings["calls over the ceiling"]
    assert made.note == f"run {high}: 63 calls to customer where its budget is 4 (3 such runs)"
    assert (made.measured, made.samples) == (59, 114)
    assert held.note.startswith(f"run {high}: 63 calls reached the dependencies where its envelope holds ")
    assert held.note.endswith("(2 such runs)")
    assert verdict.witnesses[0] == high


def test_a_refusal_by_the_tree_is_not_one_by_the_envelope(tmp_path):
    run = runs_of("v01", "single")[7]

    def refused(rows):
        each(
            rows,
            lambda r: r.get("run_id") == run and r["action"] == "submit",
            outcome="budget_exhausted",
            reason="depth",
        )

    assert judge(tmp_path, calls=refused).word is Word.PASS


def test_without_arrivals_nothing_is_decided(tmp_path):
    verdict = judge(tmp_path, arrivals=None)
    assert verdict.word is Word.INCONCLUSIVE
    assert "--dependencies-only" in verdict.add


def test_served_without_any_call_fails(tmp_path):
    run = runs_of("v01", "dribble")[0]
    verdict = judge(tmp_path, arrivals=lambda rows: [r for r in rows if (r["run"], r["step"]) != (run, "b0.1")])
    assert failed(verdict) == {"served without a call"}


def test_a_run_that_is_never_told_fails(tmp_path):
    runs = set(runs_of("v01", "dribble"))
    verdict = judge(
        tmp_path,
        calls=lambda rows: each(rows, lambda r: r.get("run_id") in runs and r["action"] == "submit", outcome="served"),
    )
    assert failed(verdict) == {"not told"}
    assert verdict.sentence == "8 runs asked for more than they may and were never told budget_exhausted."


def test_a_task_that_ends_as_done_fails(tmp_path):
    runs = set(runs_of("v01", "parallel"))

    def done(rows):
        each(rows, lambda r: r["kind"] == "run" and r.get("run") in runs and r["outcome"] != "opened", outcome="done")

    verdict = judge(tmp_path, decisions=done)
    assert failed(verdict) == {"ended otherwise"}
    assert "ended done where budget_exhausted is the truth" in verdict.sentence


def test_fifty_customers_are_no_runaway_and_may_not_be_refused_as_one(tmp_path):
    run = runs_of("v01", "single")[7]

    def refused(rows):
        each(rows, lambda r: r.get("run_id") == run and r["action"] == "submit", outcome="budget_exhausted")

    verdict = judge(tmp_path, calls=refused)
    assert (failed(verdict), verdict.witnesses) == ({"refused within the envelope"}, (run,))


@pytest.mark.parametrize(
    ("group", "part"),
    [
        ("parallel", "parallel batches"),
        ("replans", "re-plans"),
        ("retries", "retries"),
        ("delegates", "sub-agents"),
        ("single", "within the envelope"),
    ],
)
def test_a_way_that_was_not_tried_is_inconclusive_and_named(tmp_path, group, part):
    verdict = judge(tmp_path, **without_runs(runs_of("v01", group)))
    assert (verdict.word, open_questions(verdict)) == (Word.INCONCLUSIVE, {part})
    assert verdict.add
