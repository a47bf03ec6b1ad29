"""What happened to each step, told by the statuses of its attempts; and when a circuit was open."""

from __future__ import annotations

import pytest

from harness.checks.capacity_frames import Step, frame_of
from harness.checks.v05_histories import histories_of, ok, open_windows, retryable
from tests.unit.capacity_trials import runs_of, trial


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
