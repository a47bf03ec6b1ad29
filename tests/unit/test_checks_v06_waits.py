"""v06.expiry step by step: who was waiting at its deadline, what it had used up, what it was promised."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from harness.checks.judge import judge_one
from harness.checks.step_rows import frame_of
from harness.checks.v06_expiry import NAME, Params, late_starts, waited_past_deadline
from harness.checks.verdict import Word
from tests.unit.capacity_trials import by_hand

MS = 1_000_000
DEADLINE_MS = 1000
LATE_NS = 25 * MS
ANY = {"least": 0, "put_back": 0, "served_after_wait": 0}


def opened(run="r1", deadline_ms=DEADLINE_MS, at_ms=0, **more):
    told = {} if deadline_ms is None else {"deadline_ns": deadline_ms * MS}
    return {"kind": "run", "outcome": "opened", "run": run, "t_ns": at_ms * MS, "tenant": "agents", **told, **more}


def step(outcome, at_ms, run="r1", kind="step", **more):
    return {"kind": kind, "outcome": outcome, "run": run, "step": "b0.0", "t_ns": at_ms * MS, **more}


def put_back(at_ms, outcome="scheduled"):
    return step(outcome, at_ms, kind="retry")


def arrival(at_ms, run="r1", **more):
    return {"run": run, "step": "b0.0", "dependency": "billing", "operation": "read", "status": 200,
            "t_ns": at_ms * MS, "ended_ns": at_ms * MS + MS, **more}  # fmt: skip


def trial(folder, decisions, arrivals=(), spans=(), runs=()):
    """spans: in ms, when the stub stood still. runs: groups of the profile, each with a batch."""
    groups = [{"name": "any", "rate": "1/s", "batches": [[{"dependency": "billing"}]], **group} for group in runs]
    profile = {"tenants": {"agents": {"runs": groups}}} if groups else None
    still = [(begin * MS, end * MS) for begin, end in spans]
    return by_hand(folder, decisions, list(arrivals), profile, still)


def found(folder, *rows, params=ANY, **more):
    """Quantity -> (how many broke it, out of how many)."""
    verdict = judge_one(trial(folder, *rows, **more), NAME, params)
    return {finding.quantity: (finding.measured, finding.samples) for finding in verdict.findings}


@pytest.mark.parametrize(
    ("decisions", "arrived_ms", "spans", "waited"),
    [
        ([step("queued", 999)], [], [], True),
        ([step("queued", 1000)], [], [], False),  # it had not begun to wait
        ([step("accepted", 100)], [], [], False),
        ([put_back(999)], [100], [], True),
        ([put_back(500, "exhausted")], [100], [], False),
        ([step("queued", 100), step("expired", 999)], [], [], False),
        ([step("queued", 100), step("expired", 1000)], [], [], True),
        # It had started; or was put back since, and then waited again, and perhaps started again.
        ([step("queued", 100)], [500], [], False),
        ([step("queued", 100)], [100], [], False),
        ([step("queued", 100), put_back(600)], [500], [], True),
        ([step("queued", 100), put_back(600)], [500, 600], [], False),
        ([step("queued", 100), put_back(600), put_back(1001)], [500, 700], [], False),
        # What arrives a little after the deadline had been sent before, and time in which the stub stood still is none.
        ([step("queued", 100)], [1025], [], False),
        ([step("queued", 100)], [1026], [], True),
        ([step("queued", 100)], [1026], [(1001, 1002)], False),
        ([step("queued", 100)], [1027], [(1001, 1002)], True),
    ],
)  # fmt: skip
def test_who_was_waiting_at_its_deadline(tmp_path, decisions, arrived_ms, spans, waited):
    frame = frame_of(trial(tmp_path, [opened(), *decisions], [arrival(at) for at in arrived_ms], spans))
    assert waited_past_deadline(frame, frame.steps["r1/b0.0"], LATE_NS) is waited


def test_a_step_without_a_deadline_never_expires(tmp_path):
    rows = [opened(deadline_ms=None), step("queued", 100)], [arrival(90_000)]
    frame = frame_of(trial(tmp_path, *rows))
    assert not waited_past_deadline(frame, frame.steps["r1/b0.0"], LATE_NS)
    assert late_starts(frame, LATE_NS) == []


def test_one_step_without_a_deadline_hides_no_late_start_of_the_next(tmp_path):
    decisions = [opened("r1", None), opened("r2"), step("queued", 1, "r1"), step("queued", 1, "r2")]
    frame = frame_of(trial(tmp_path, decisions, [arrival(1200, "r1"), arrival(1200, "r2")]))
    assert late_starts(frame, LATE_NS) == [("r2/b0.0", "200 ms after it")]


def test_a_late_start_is_counted_in_time_in_which_the_stub_ran_and_told_in_all_of_it(tmp_path):
    rows = [opened(), step("queued", 1)]
    stalled = trial(tmp_path / "stalled", rows, [arrival(1126)], [(1000, 1101)])
    assert late_starts(frame_of(stalled), LATE_NS) == []
    assert late_starts(frame_of(trial(tmp_path / "ran", rows, [arrival(1126)], [(1000, 1100)])), LATE_NS) == [
        ("r1/b0.0", "126 ms after it")
    ]


RECORDED, KEPT = "expired and were recorded as something else", "kept what expired work had reserved"
LOST, LONGER = "disappeared when their deadline passed", "were given more time than they asked for"


@pytest.mark.parametrize(
    ("decisions", "arrived_ms", "otherwise", "lost"),
    [
        ([step("expired", 1000)], [], (0, 1), (0, 1)),
        ([step("throttled", 1000)], [], (1, 1), (0, 1)),
        ([], [], (0, 1), (1, 1)),
        ([step("served", 1100)], [1050], (0, 1), (0, 1)),  # a late start, and told as one
    ],
)
def test_what_waited_past_its_deadline_is_recorded_as_expired(tmp_path, decisions, arrived_ms, otherwise, lost):
    rows = [opened(), step("queued", 100), *decisions]
    told = found(tmp_path, rows, [arrival(at) for at in arrived_ms])
    assert (told[RECORDED], told[LOST]) == (otherwise, lost)


def test_what_it_was_recorded_as_is_told(tmp_path):
    made = trial(tmp_path, [opened(), step("queued", 100), step("throttled", 1000, reason="full")])
    assert "(first r1/b0.0: as throttled, reason full)" in judge_one(made, NAME, ANY).sentence


@pytest.mark.parametrize(
    ("rows", "arrivals", "kept"),
    [
        # (attempts left at the opening, at the end), what was made of them
        ((10, 8), [arrival(200), arrival(300)], (0, 1)),
        ((10, 8), [arrival(200)], (1, 1)),
        ((10, 10), [], (0, 1)),
        ((10, 9), [], (1, 1)),
        ((10, 9), [arrival(200, operation="readback")], (0, 1)),
        ((10, 8), [arrival(200), arrival(300, operation="readback")], (0, 1)),
        ((10, 7), [arrival(200), arrival(300, operation="readback")], (1, 1)),
        ((None, 7), [], (0, 0)), ((10, None), [], (0, 0)),
    ],
)  # fmt: skip
def test_what_is_gone_of_a_run_was_made_use_of(tmp_path, rows, arrivals, kept):
    first, last = rows
    run = [opened(remaining_attempts=first), step("queued", 100), put_back(900), step("expired", 1000)]
    run.append({**step("ended", 1100, kind="run"), "step": None, "remaining_attempts": last})
    assert found(tmp_path, run, arrivals)[KEPT] == kept


def test_an_attempt_that_was_admitted_and_never_arrived_was_made(tmp_path):
    """One was admitted and arrived, another was admitted and is nowhere: two are gone."""
    run = [
        opened(remaining_attempts=10),
        step("queued", 1),
        step("admitted", 100),
        step("admitted", 300),
        put_back(900),
    ]
    run.append(step("expired", 1000, remaining_attempts=8))
    assert found(tmp_path, run, [arrival(100)])[KEPT] == (0, 1)
    run[-1]["remaining_attempts"] = 7
    assert found(tmp_path, run, [arrival(100)])[KEPT] == (1, 1)


@pytest.mark.parametrize("shared", ["parent", "child"])
def test_runs_that_share_an_envelope_are_not_counted_apart(tmp_path, shared):
    parent = {"parent_run": "r0"} if shared == "child" else {}
    run = [opened(remaining_attempts=10, **parent), step("queued", 1), step("expired", 1000, remaining_attempts=5)]
    run += [opened("r2", parent_run="r1")] if shared == "parent" else []
    alone = [opened("r9", remaining_attempts=10), step("queued", 1, "r9")]
    alone.append(step("expired", 1000, "r9", remaining_attempts=5))
    assert found(tmp_path, [*run, *alone])[KEPT] == (1, 1)


def test_of_several_runs_that_keep_something_the_first_by_name_is_told(tmp_path):
    rows = []
    for run in ("r7", "r3", "r9", "r1", "r8", "r2", "r6", "r4", "r5"):
        rows += [opened(run, remaining_attempts=9), step("queued", 1, run)]
        rows.append(step("expired", 1000, run, remaining_attempts=5))
    verdict = judge_one(trial(tmp_path, rows), NAME, ANY)
    assert "9 runs kept what expired work had reserved (first r1: 4 attempts are gone and 0 were made)" in (
        verdict.sentence
    )


@pytest.mark.parametrize("end_ms", [500, 1000])
def test_what_a_run_keeps_whose_work_did_not_expire_is_not_this_rules(tmp_path, end_ms):
    run = [opened(remaining_attempts=10), step("queued", 1), step("throttled", end_ms, remaining_attempts=5)]
    assert found(tmp_path, run)[KEPT] == (0, 0)


def test_a_run_that_was_not_told_what_it_has_keeps_nothing(tmp_path):
    told = [step("queued", 1, remaining_attempts=9), step("expired", 1000, remaining_attempts=5)]
    assert found(tmp_path, [opened(), *told])[KEPT] == (0, 0)


# --- what a run was promised


SECOND, TWO = {"envelope": {"deadline": "1s"}}, {"envelope": {"deadline": "2s"}}
CHILD = {"children": [{"batches": [[{"dependency": "billing"}]], **TWO}]}


@pytest.mark.parametrize(
    ("runs", "deadline_ms", "longer"),
    [
        ([SECOND], 1125, (0, 1)), ([SECOND], 1126, (1, 1)),  # opened at 100 ms
        ([SECOND, {"name": "other"} | TWO], 2125, (0, 1)), ([SECOND, {"name": "other"} | TWO], 2126, (1, 1)),
        ([SECOND | CHILD], 2125, (0, 1)), ([SECOND | CHILD], 2126, (1, 1)),
        ([SECOND, {"name": "other"}], 9000, (0, 0)),  # one of them asks for nothing, so nobody knows which this is
        ([SECOND], None, (0, 0)), ([{}], 9000, (0, 0)),
    ],
)  # fmt: skip
def test_a_run_gets_the_time_that_it_asks_for(tmp_path, runs, deadline_ms, longer):
    assert found(tmp_path, [opened(deadline_ms=deadline_ms, at_ms=100)], runs=runs)[LONGER] == longer


def test_where_no_deadline_is_asked_for_none_is_too_long(tmp_path):
    verdict = judge_one(trial(tmp_path, [opened()]), NAME, ANY)
    assert next(finding.word for finding in verdict.findings if finding.quantity == LONGER) is Word.PASS


def test_a_run_that_cannot_be_judged_hides_no_other(tmp_path):
    rows = [opened("r1", None), opened("r2", 9000), {**opened("r3", 9000), "tenant": "elsewhere"}, opened("r4", 9000)]
    assert found(tmp_path, rows, runs=[SECOND])[LONGER] == (2, 2)


# --- how much there was to see


@pytest.mark.parametrize(
    ("outcome", "queued", "arrived_ms", "seen"),
    [
        ("expired", True, [], {"queued": 1, "put back": 0, "served": 0}),
        ("expired", True, [50], {"queued": 1, "put back": 1, "served": 0}),
        ("served", True, [150], {"queued": 0, "put back": 0, "served": 1}),
        ("served", False, [150], {"queued": 0, "put back": 0, "served": 0}),
    ],
)
def test_what_the_deadline_caught_is_counted_apart(tmp_path, outcome, queued, arrived_ms, seen):
    rows = [opened(), *([step("queued", 100)] if queued else []), step(outcome, 1000 if outcome == "expired" else 160)]
    counted = found(tmp_path, rows, [arrival(at) for at in arrived_ms])
    words = {"queued": "deadline passed while queued", "put back": "deadline passed while put back for a retry",
             "served": "waited and were served"}  # fmt: skip
    assert {short: counted[long][0] for short, long in words.items()} == seen


@pytest.mark.parametrize(("asked", "word"), [({}, Word.PASS), ({"least": 2}, Word.INCONCLUSIVE)])
def test_a_single_step_that_expires_is_enough_only_where_the_profile_says_so(tmp_path, asked, word):
    run = [opened(remaining_attempts=10), step("queued", 1), step("expired", 1000, remaining_attempts=10)]
    assert judge_one(trial(tmp_path, run), NAME, ANY | {"least": 1} | asked).word is word


def test_what_is_asked_for_where_a_profile_says_nothing():
    assert Params().model_dump() == {"late": 25 * MS, "least": 10, "put_back": 2, "served_after_wait": 5}


@pytest.mark.parametrize("least", [-1, 1_000_001, "10", 10.0])
def test_how_many_are_asked_for_is_a_bounded_number(least):
    assert Params(least=0).least == 0
    assert Params(least=1_000_000).least == 1_000_000
    with pytest.raises(ValidationError):
        Params(least=least)
