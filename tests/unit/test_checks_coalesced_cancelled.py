"""capacity.coalesced and capacity.cancelled, and what every check of the capacity layer says of withheld evidence."""

from __future__ import annotations

import pytest

from harness.checks import cancelled, coalesced
from harness.checks.judge import UnknownCheck, judge_all, known
from harness.checks.verdict import Word
from tests.unit.capacity_trials import each, failed, healthy, judged, open_questions, runs_of, trial, without_runs
from tests.unit.ledgers import rows_of

MS = 1_000_000


def share(tmp_path, **edits):
    return judged("coalesced", coalesced.NAME, tmp_path, **edits)


def cancel(tmp_path, **edits):
    return judged("cancelled", cancelled.NAME, tmp_path, **edits)


def test_healthy_sharing_passes(tmp_path):
    verdict = share(tmp_path)
    assert (verdict.word, verdict.sentence) == (
        Word.PASS,
        "84 equal reads shared a call of their own tenant, none reached its dependency twice at once, and every write "
        "went out alone.",
    )


def test_a_read_that_goes_out_beside_an_equal_one_fails(tmp_path):
    def twice(rows):
        read = next(r for r in rows if r["operation"] == "read")
        return [*rows, {**read, "t_ns": read["t_ns"] + 5 * MS, "ended_ns": read["ended_ns"] + 5 * MS}]

    assert failed(share(tmp_path, arrivals=twice)) == {"sent twice at once"}


def test_equal_reads_one_after_another_are_two_calls(tmp_path):
    """The twin: nothing is kept after the leader has ended, and that is right."""

    def later(rows):
        read = next(r for r in rows if r["operation"] == "read")
        return [*rows, {**read, "t_ns": read["ended_ns"], "ended_ns": read["ended_ns"] + 40 * MS}]

    assert share(tmp_path, arrivals=later).word is Word.PASS


def test_a_coalesced_mutation_fails(tmp_path):
    run = runs_of("coalesced", "wave_1")[1]

    def merged(rows):
        each(rows, lambda r: r.get("run") == run and r.get("operation") == "write" and r["outcome"] == "served",
             outcome="coalesced", coalesced_with="r1/b1.0")  # fmt: skip

    verdict = share(
        tmp_path,
        decisions=merged,
        arrivals=lambda rows: [r for r in rows if not (r["run"] == run and r["operation"] == "write")],
    )
    assert "coalesced" in failed(verdict)
    assert "1 writes were coalesced with another" in verdict.sentence


def test_a_mutation_that_is_told_as_served_and_was_never_sent_fails(tmp_path):
    run = runs_of("coalesced", "wave_1")[1]
    verdict = share(
        tmp_path, arrivals=lambda rows: [r for r in rows if not (r["run"] == run and r["operation"] == "write")]
    )
    assert "told as done, never sent" in failed(verdict)


def test_another_tenants_result_fails_as_told_and_as_hidden(tmp_path):
    def own(row):
        return not (row["operation"] == "read" and row["tenant"] == "south")

    def told(rows):
        leader = next(r["run"] for r in rows if r.get("outcome") == "served" and r.get("tenant") == "north")
        each(rows, lambda r: r["kind"] == "step" and r["tenant"] == "south" and r["operation"] == "read"
             and r["outcome"] in ("served", "coalesced"),
             outcome="coalesced", coalesced_with=f"{leader}/b0.0")  # fmt: skip

    without = [lambda rows: [r for r in rows if own(r)]]
    shown = share(tmp_path / "told", decisions=told, arrivals=without[0])
    assert "of a foreign call" in failed(shown)
    assert "(north for south)" in shown.sentence

    def hidden(rows):
        for row in rows:
            row.pop("coalesced_with", None)

    assert "without a call" in failed(share(tmp_path / "hidden", decisions=hidden, arrivals=without[0]))


def test_a_result_that_was_kept_from_a_call_that_had_ended_fails(tmp_path):
    run = runs_of("coalesced", "wave_1")[1]

    def stale(rows):
        each(rows, lambda r: r.get("run") == run and r.get("step") == "b0.0", t_ns=lambda r: r["t_ns"] + 150 * MS)

    assert failed(share(tmp_path, decisions=stale)) == {"without a call"}


def test_sharing_that_was_not_put_to_the_test_is_inconclusive(tmp_path):
    waves = [f"wave_{i}" for i in range(2, 7)]
    verdict = share(tmp_path, **without_runs(runs_of("coalesced", *waves)))
    assert verdict.word is Word.INCONCLUSIVE
    assert {"shared a call", "asked the same at once"} <= open_questions(verdict)


def test_healthy_cancellation_passes(tmp_path):
    verdict = cancel(tmp_path)
    assert (verdict.word, verdict.sentence) == (
        Word.PASS,
        "68 runs were cancelled with 82 steps waiting and 82 in flight: none of the waiting began, and nothing "
        "followed from the others.",
    )


@pytest.mark.parametrize("group", ["fan_out", "queued", "goes_on", "delegating"])
def test_a_step_that_begins_after_the_cancellation_fails(tmp_path, group):
    run = runs_of("cancelled", group)[-1]

    def begins(rows):
        row = next(r for r in rows if r["run"] == run) if group != "queued" else dict(rows[0], run=run)
        return [*rows, {**row, "step": "b7.0", "t_ns": 2_900 * MS, "ended_ns": 2_950 * MS}]

    verdict = cancel(tmp_path, arrivals=begins)
    assert (failed(verdict), verdict.witnesses) == ({"begun after cancellation"}, (f"{run}/b7.0",))


@pytest.mark.parametrize(("after_ms", "word"), [(30, Word.PASS), (31, Word.FAIL)])
def test_a_call_may_be_on_its_way_when_its_run_is_cancelled(tmp_path, after_ms, word):
    run = runs_of("cancelled", "fan_out")[-1]
    decided = rows_of(healthy("cancelled"), "decisions.jsonl")
    at = next(r["t_ns"] for r in decided if r["kind"] == "run" and r.get("run") == run and r["outcome"] == "cancelled")

    def begins(rows):
        row = next(r for r in rows if r["run"] == run)
        return [*rows, {**row, "step": "b7.0", "t_ns": at + after_ms * MS, "ended_ns": at + 40 * MS}]

    assert cancel(tmp_path, arrivals=begins).word is word


def test_what_the_caller_was_told_is_enough_to_know_when(tmp_path):
    """A layer that records no end of the run: the answer to the caller's own request is one."""
    run = runs_of("cancelled", "fan_out")[-1]

    def begins(rows):
        row = next(r for r in rows if r["run"] == run)
        return [*rows, {**row, "step": "b7.0", "t_ns": 2_900 * MS, "ended_ns": 2_950 * MS}]

    def untold(rows):
        return [r for r in rows if not (r["kind"] == "run" and r["outcome"] == "cancelled")]

    assert cancel(tmp_path / "well", decisions=untold).word is Word.PASS
    assert failed(cancel(tmp_path / "not", decisions=untold, arrivals=begins)) == {"begun after cancellation"}


def test_a_run_whose_cancellation_was_refused_goes_on(tmp_path):
    run = runs_of("cancelled", "fan_out")[-1]

    def begins(rows):
        row = next(r for r in rows if r["run"] == run)
        return [*rows, {**row, "step": "b7.0", "t_ns": 2_900 * MS, "ended_ns": 2_950 * MS}]

    def untold(rows):
        return [r for r in rows if not (r["kind"] == "run" and r["outcome"] == "cancelled" and r["run"] == run)]

    def refused(rows):
        each(rows, lambda r: r.get("run_id") == run and r["action"] == "cancel", outcome="failed")

    assert failed(cancel(tmp_path, decisions=untold, calls=refused, arrivals=begins)) == set()


@pytest.mark.parametrize(
    ("outcome", "broken"), [("budget_exhausted", False), ("cancelled", False), ("throttled", True), ("failed", True)]
)
def test_a_batch_after_the_cancellation_is_refused_for_good(tmp_path, outcome, broken):
    runs = set(runs_of("cancelled", "goes_on"))

    def told(rows):
        each(rows, lambda r: r.get("run_id") in runs and r["action"] == "submit" and r["outcome"] == "cancelled",
             outcome=outcome)  # fmt: skip

    assert ("taken after cancellation" in failed(cancel(tmp_path, calls=told))) is broken


@pytest.mark.parametrize(("group", "part"), [("failing", "failed after it"), ("goes_on", "asked for after it")])
def test_what_was_not_there_when_runs_were_cancelled_is_named(tmp_path, group, part):
    verdict = cancel(tmp_path, **without_runs(runs_of("cancelled", group)))
    assert part in open_questions(verdict)
    assert verdict.word is Word.INCONCLUSIVE


def test_a_retry_after_the_cancellation_fails(tmp_path):
    run = runs_of("cancelled", "failing")[0]

    def again(rows):
        row = next(r for r in rows if r["run"] == run)
        return [*rows, {**row, "attempt": 2, "t_ns": row["ended_ns"] + 50 * MS, "ended_ns": row["ended_ns"] + 60 * MS}]

    assert failed(cancel(tmp_path, arrivals=again)) == {"retried after cancellation"}


def test_a_read_back_after_the_cancellation_is_no_follow_up(tmp_path):
    run = runs_of("cancelled", "goes_on")[0]

    def looks(rows):
        row = next(r for r in rows if r["run"] == run)
        late = {"t_ns": row["ended_ns"] + 50 * MS, "ended_ns": row["ended_ns"] + 60 * MS}
        return [*rows, {**row, **late, "operation": "readback", "readback": True}]

    assert cancel(tmp_path, arrivals=looks).word is Word.PASS


def test_queued_steps_that_vanish_or_are_told_otherwise_fail(tmp_path):
    runs = set(runs_of("cancelled", "queued"))

    def otherwise(rows):
        each(rows, lambda r: r["kind"] == "step" and r.get("run") in runs and r["outcome"] == "cancelled",
             outcome="expired")  # fmt: skip

    assert failed(cancel(tmp_path, decisions=otherwise)) == {"not ended as cancelled"}


@pytest.mark.parametrize("times", [0, 2])
def test_a_late_result_is_looked_at_exactly_once(tmp_path, times):
    def looked(rows):
        return [row for row in rows for _ in range(times if row["kind"] == "late" else 1)]

    verdict = cancel(tmp_path, decisions=looked)
    assert failed(verdict) == {"not looked at"}


def test_a_batch_that_is_taken_after_the_cancellation_fails(tmp_path):
    runs = set(runs_of("cancelled", "goes_on"))

    def taken(rows):
        each(rows, lambda r: r.get("run_id") in runs and r["action"] == "submit" and r["outcome"] == "cancelled",
             outcome="served")  # fmt: skip

    assert failed(cancel(tmp_path, calls=taken)) == {"taken after cancellation"}


def test_cancellations_that_come_too_late_show_nothing(tmp_path):
    gone = runs_of("cancelled", "fan_out", "failing", "between", "queued", "delegating", "goes_on")
    verdict = cancel(tmp_path, **without_runs(gone))
    assert verdict.word is Word.INCONCLUSIVE
    assert {"waiting when cancelled", "running when cancelled"} <= open_questions(verdict)


CHECKED = {
    "v01": "v01.fan_out_ceiling",
    "v02": "v02.foreground_first",
    "v03": "v03.tenant_share",
    "v04": "v04.bulkheads",
    "v05": "v05.one_retry_owner",
    "coalesced": coalesced.NAME,
    "cancelled": cancelled.NAME,
}


@pytest.mark.parametrize(("profile", "check"), CHECKED.items())
def test_without_arrivals_nothing_is_judged(tmp_path, profile, check):
    verdict = judged(profile, check, tmp_path, arrivals=None)
    assert (verdict.word, verdict.samples) == (Word.INCONCLUSIVE, 0)
    assert "arrivals" in verdict.sentence
    assert verdict.add


@pytest.mark.parametrize(("profile", "check"), CHECKED.items())
def test_without_decisions_nothing_passes(tmp_path, profile, check):
    verdict = judged(profile, check, tmp_path, decisions=None)
    assert verdict.word is not Word.PASS
    assert verdict.word is not Word.INVALID


@pytest.mark.parametrize(("profile", "check"), CHECKED.items())
def test_empty_files_are_no_evidence(tmp_path, profile, check):
    nothing = {"arrivals": lambda rows: [], "decisions": lambda rows: [], "calls": lambda rows: []}
    verdict = judged(profile, check, tmp_path, **nothing)
    assert verdict.word is Word.INCONCLUSIVE


@pytest.mark.parametrize(("profile", "check"), CHECKED.items())
def test_rows_without_their_optional_keys_break_nothing(tmp_path, profile, check):
    """As from a capacity layer that tells less: anything but a broken check."""
    kept = {"t_ns", "started_ns", "ended_ns", "dependency", "operation", "status", "kind", "outcome"}

    def bare(rows):
        return [{key: value for key, value in row.items() if key in kept} for row in rows]

    assert judged(profile, check, tmp_path, arrivals=bare, decisions=bare).word is not Word.INVALID


def test_a_family_of_checks_is_asked_for_by_its_first_word(tmp_path):
    assert known("v05") == ["v05.one_retry_owner"]
    assert set(known("capacity")) >= {coalesced.NAME, cancelled.NAME}
    verdicts = judge_all(trial("v05", tmp_path), ["v05", "trial.on_time", "v05.one_retry_owner"])
    assert [verdict.check for verdict in verdicts] == ["v05.one_retry_owner", "trial.on_time"]
    with pytest.raises(UnknownCheck, match="there is no check 'v55'"):
        known("v55")
