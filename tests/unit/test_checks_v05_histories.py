"""What happened to each step, told by the statuses of its attempts; and when a circuit was open."""

from __future__ import annotations

import pytest

from harness.checks.capacity_frames import Step, frame_of
from harness.checks.v05_histories import Histories, Left, histories_of, is_open, ok, open_windows, retryable
from harness.ledger.stalls import stalls
from tests.unit.capacity_trials import by_hand, runs_of, trial

PLENTY = Left(5, 5, frozenset())


def test_what_a_retry_may_help_and_what_has_succeeded():
    assert {status for status in range(600) if retryable(status)} == {0, 408, 425, 429, 500, 502, 503, 504}
    assert {status for status in range(600) if ok(status)} == set(range(200, 300))
    assert not any(retryable(status) or ok(status) for status in (None, "503", "200"))


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("once", "once"),
        ("twice", "twice"),
        ("for_good", "persistent"),
        ("bad_request", "not_retryable"),
        ("no_key", "keyless"),
    ],
)
def test_each_group_of_runs_is_the_history_that_it_was_made_for(tmp_path, group, kind):
    found = histories_of(frame_of(trial("v05", tmp_path)))
    mine = set(runs_of("v05", group))
    kinds = {
        name: {step.run for step in getattr(found, name)} & mine
        for name in ("once", "twice", "persistent", "not_retryable", "keyless")
    }
    assert kinds == {name: mine if name == kind else set() for name in kinds}


@pytest.mark.parametrize(
    ("statuses", "kind"),
    [
        ((503, 200), "once"), ((503, 503, 200), "twice"), ((503, 503), "persistent"), ((503, 503, 503), "persistent"),
        ((400,), "not_retryable"), ((400, 200), "not_retryable"), ((503, 400), None), ((503, 400, 200), None),
        ((200,), None), ((200, 200), None), ((503,), None), ((503, 503, 503, 200), None),
        ((None, 200), "not_retryable"), ((0, 204), "once"),
    ],
)  # fmt: skip
def test_a_history_is_told_by_its_statuses(tmp_path, statuses, kind):
    run = runs_of("v05", "twice")[0]

    def said(rows):
        kept = [row for row in rows if row["run"] != run]
        mine = [row for row in rows if row["run"] == run]
        attempts = [{**mine[min(i, 2)], "attempt": i + 1, "status": status} for i, status in enumerate(statuses)]
        return [*kept, *({**row, "t_ns": row["t_ns"] + 10**9 * i} for i, row in enumerate(attempts))]

    found = histories_of(frame_of(trial("v05", tmp_path, arrivals=said)))
    kinds = ("once", "twice", "persistent", "not_retryable", "keyless")
    assert [name for name in kinds if run in {step.run for step in getattr(found, name)}] == ([kind] if kind else [])


def test_only_a_read_or_a_write_with_a_key_may_be_repeated(tmp_path):
    found = histories_of(frame_of(trial("v05", tmp_path)))

    def told(**first):
        return found.repeatable(Step("r", "b0.0", (first,)))

    assert [told(operation="read"), told(operation="write", idempotency_key="k")] == [True, True]
    assert [told(operation="write"), told(operation="write", idempotency_key="")] == [False, False]


def test_a_circuit_is_open_from_its_opening_to_what_ends_it(tmp_path):
    events = [
        ("opened", 10),
        ("opened", 12),
        ("half_open", 20),
        ("opened", 25),
        ("closed", 40),
        ("closed", 41),
        ("opened", 50),
    ]

    def circuit(rows):
        kept = [row for row in rows if row["kind"] != "circuit"]
        base = {"kind": "circuit", "dependency": "once", "part": "capacity"}
        return kept + [{**base, "outcome": outcome, "t_ns": at} for outcome, at in events]

    frame = frame_of(trial("v05", tmp_path, decisions=circuit))
    assert open_windows(frame, "closed")["once"] == [(10, 40), (50, 2**62)]
    assert open_windows(frame, "half_open", "closed")["once"] == [(10, 20), (25, 40), (50, 2**62)]


# --- what a run has left


def row(status=503, at=0, ended=10, **more):
    return {"dependency": "billing", "operation": "read", "status": status, "t_ns": at, "ended_ns": ended, **more}


def histories(*steps, **left):
    """left: of each run that has not plenty."""
    return Histories(list(steps), [], [], [], [], [], {**dict.fromkeys((s.run for s in steps), PLENTY), **left})


@pytest.mark.parametrize(
    ("left", "room"),
    [
        (Left(1, 1, frozenset()), True), (Left(0, 1, frozenset()), False), (Left(1, 0, frozenset()), False),
        (Left(1, 1, frozenset(["billing"])), False), (Left(1, 1, frozenset(["customer"])), True),
    ],
)  # fmt: skip
def test_a_retry_needs_a_token_an_attempt_and_a_call_of_its_dependency(left, room):
    step = Step("r1", "b0.0", (row(), row(dependency="customer")))
    assert histories(step, r1=left).has_room(step) is room


@pytest.mark.parametrize(
    ("first", "last", "out"),
    [
        (503, 503, True), (200, 503, True), (503, 200, False), (503, 400, False),
    ],
)  # fmt: skip
def test_a_run_is_out_of_tokens_or_attempts_if_its_last_failure_could_have_been_repeated(first, last, out):
    step = Step("r1", "b0.0", (row(first), row(last)))
    for name, left in (("retry_tokens", Left(0, 1, frozenset())), ("attempts", Left(1, 0, frozenset()))):
        assert histories(step, r1=left).out_of(name) == (["r1"] if out else [])
    for left in (PLENTY, Left(0, 0, frozenset()), Left(1, 1, frozenset())):
        assert histories(step, r1=left).out_of("retry_tokens") == histories(step, r1=left).out_of("attempts") == []


def test_a_write_without_a_key_does_not_tell_that_its_run_is_out_of_tokens():
    steps = [Step(run, "b0.0", (row(operation="write", **key),)) for run, key in
             (("r2", {"idempotency_key": "k"}), ("r3", {}), ("r1", {"idempotency_key": "k"}))]  # fmt: skip
    none_left = dict.fromkeys(("r1", "r2", "r3"), Left(0, 1, frozenset()))
    assert histories(*steps, **none_left).out_of("retry_tokens") == ["r1", "r2"]


def left_of(folder, arrivals, envelope, decisions=(), capacity=None):
    """After these arrivals, each (run, step, dependency); what the profile's runs were given."""
    group = {"name": "any", "rate": "1/s", "batches": [[{"dependency": "billing"}]], "envelope": envelope}
    opened = {"kind": "run", "outcome": "opened", "tenant": "agents", "task_class": "any", "t_ns": 0}
    told = [{**opened, "run": "r1"}, {**opened, "run": "r2", "parent_run": "r1"}, *decisions]
    rows = [row(at=i, run=run, step=step, dependency=name) for i, (run, step, name) in enumerate(arrivals)]
    made = by_hand(folder, told, rows, {"tenants": {"agents": {"runs": [group]}}})
    return histories_of(frame_of(made)).left


def scheduled(run):
    return {"kind": "retry", "outcome": "scheduled", "run": run, "step": "b0.0", "t_ns": 5}


@pytest.mark.parametrize(
    ("arrivals", "decisions", "left"),
    [
        ("", [], (3, 4)), ("a", [], (3, 3)), ("aa", [], (2, 2)), ("ab", [], (3, 2)), ("aabb", [], (1, 0)),
        ("aaaaaa", [], (0, 0)),
        # What was scheduled is spent, arrived or not; each only once.
        ("a", [scheduled("r1")], (2, 3)), ("aa", [scheduled("r1")], (2, 2)), ("aa", [scheduled("r1")] * 2, (1, 2)),
        ("a", [scheduled("r2")], (2, 3)), ("a", [scheduled("r1") | {"outcome": "exhausted"}], (3, 3)),
        ("a", [scheduled("r1") | {"kind": "step"}], (3, 3)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("run", ["r1", "r2"])
def test_a_run_and_its_sub_agents_share_what_is_left(tmp_path, run, arrivals, decisions, left):
    """Of three tokens and four attempts; a, b: a step each."""
    told = left_of(
        tmp_path, [(run, step, "billing") for step in arrivals], {"retry_tokens": 3, "attempts": 4}, decisions
    )
    assert set(told) == {"r1", "r2"}
    assert told["r1"] == told["r2"] == Left(*left, frozenset())


@pytest.mark.parametrize("made", [0, 1])
def test_what_is_not_known_is_taken_as_nothing_left(tmp_path, made):
    assert left_of(tmp_path, [("r1", "a", "billing")] * made, {})["r1"] == Left(0, 0, frozenset())


@pytest.mark.parametrize(("calls", "spent"), [(0, []), (1, []), (2, ["billing"]), (3, ["billing"])])
def test_a_dependencys_budget_is_spent_with_its_last_call(tmp_path, calls, spent):
    arrivals = [("r1", f"b0.{i}", "billing") for i in range(calls)] + [("r1", "b1.0", "customer")] * 5
    assert left_of(tmp_path, arrivals, {"budgets": {"billing": 2}})["r1"].spent == frozenset(spent)


@pytest.mark.parametrize(
    ("status", "more", "keyless"),
    [
        (503, {"operation": "write"}, 1), (503, {"operation": "write", "idempotency_key": ""}, 1),
        (503, {"operation": "write", "idempotency_key": "k"}, 0), (503, {}, 0), (200, {"operation": "write"}, 0),
        (400, {"operation": "write"}, 0),
    ],
)  # fmt: skip
def test_a_write_without_a_key_that_failed_in_a_way_that_a_retry_might_help_is_keyless(tmp_path, status, more, keyless):
    rows = [row(status, run="r1", step="b0.0", **more), row(200, at=20, ended=30, run="r1", step="b0.0", **more)]
    assert histories_of(frame_of(by_hand(tmp_path, [], rows))).counts()["keyless"] == keyless


# --- delays, and circuits, where the stub stood still


@pytest.mark.parametrize(
    ("spans", "delays"),
    [
        (None, [100]), ([], [100]), ([(20, 45)], [100]), ([(20, 46)], []), ([(0, 10)], [100]), ([(110, 500)], [100]),
        ([(0, 35)], [100]), ([(0, 36)], []),
    ],
)  # fmt: skip
def test_a_delay_of_which_more_than_a_quarter_was_stalled_is_left_out(spans, delays):
    """From the end of the first attempt, at 10, to the second, at 110."""
    found = histories(Step("r1", "b0.0", (row(), row(at=110, ended=900), row(at=2000))))
    told = found.first_delays() if spans is None else found.first_delays(stalls(spans))
    assert told == ({"billing": delays} if delays else {})


def test_first_delays_are_those_of_each_dependency_that_no_retry_after_told():
    steps = [
        Step("r1", "b0.0", (row(), row(at=30))),
        Step("r1", "b0.1", (row(), row(at=50, retry_after="1"))),
        Step("r1", "b0.2", (row(retry_after="1"), row(at=70))),
        Step("r1", "b0.3", (row(),)),
        Step("r1", "b0.4", (row(dependency="customer"), row(at=90))),
    ]
    assert histories(*steps).first_delays() == {"billing": [20, 40], "customer": [80]}


@pytest.mark.parametrize(
    ("at", "slack", "spans", "inside"),
    [
        (60, 50, [], False), (61, 50, [], True), (99, 50, [], True), (100, 50, [], False), (161, 50, [], False),
        (251, 50, [], True), (61, 50, [(20, 21)], False), (62, 50, [(20, 21)], True),
    ],
)  # fmt: skip
def test_a_call_is_into_an_open_circuit_if_that_had_been_open_for_longer_than_its_way(
    tmp_path, at, slack, spans, inside
):
    """Open in [10, 100), and again in [200, 300)."""
    frame = frame_of(by_hand(tmp_path, [], [], spans=spans))
    assert is_open(frame, {"billing": [(10, 100), (200, 300)]}, "billing", at, slack) is inside
    assert not is_open(frame, {"customer": [(10, 100)]}, "billing", at, slack)
