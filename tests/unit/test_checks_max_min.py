"""fairness.max_min on ledgers written row by row: windows, weights, and figures that are known."""

from __future__ import annotations

import numpy as np
import pytest

from harness.checks import max_min
from harness.checks.judge import judge_one
from harness.checks.max_min import IDLE, NAME, SHORT, STARVED
from harness.checks.stays import stays_of
from harness.checks.verdict import Word
from harness.ledger.reader import DECISIONS
from tests.unit.ledgers import steady, write_rows, written

MS = 1_000_000
WEIGHTED = {
    "workers": 4, "service_time": "200ms",
    "admission": {"policy": "fair_queues", "queue_per_tenant": 9, "weights": {"A": 3}},
}  # fmt: skip


def waiting(until_ns, **told):
    """One call that waits from the begin on until then."""
    return steady(1, 0, 1, queue_wait_ns=until_ns, **told)


def of(verdict, quantity):
    """Of B, and of the service."""
    return next(f for f in verdict.findings if f.quantity == quantity and f.subject in ("B", "the service"))


@pytest.mark.parametrize(("until_ns", "windows"), [(5000 * MS - 1, 5), (5000 * MS - 2, 4)])
def test_windows_end_with_the_nanosecond_in_which_the_last_call_left(tmp_path, until_ns, windows):
    trial = written(tmp_path / "t", {"A": waiting(until_ns)})
    found = judge_one(trial, NAME, {"window": "1s"})
    assert found.word is Word.INCONCLUSIVE
    told = "Somebody waited all through 4 windows of 1000 ms; 5 are needed to say who is next."
    assert (found.sentence == told) is (windows < 5)


def test_a_window_is_four_service_times_unless_it_is_given(tmp_path):
    trial = written(tmp_path / "t", {"A": waiting(900 * MS)})
    assert "windows of 800 ms;" in judge_one(trial, NAME, {}).sentence
    assert "windows of 300 ms;" in judge_one(trial, NAME, {"window": "300ms"}).sentence


def test_without_a_service_time_there_is_no_window_unless_it_is_given(tmp_path):
    trial = written(tmp_path / "t", {"A": waiting(900 * MS, service_ns=-1)})
    found = judge_one(trial, NAME, {})
    assert (found.word, found.samples, found.add) == (
        Word.INCONCLUSIVE, 0, "give `window`, some service times long"
    )  # fmt: skip
    assert "windows of 300 ms;" in judge_one(trial, NAME, {"window": "300ms"}).sentence


@pytest.mark.parametrize(
    ("target", "profile", "params", "weights"),
    [
        ("stub", {"service": WEIGHTED}, {}, [3, 1]),
        ("url", {"service": WEIGHTED}, {}, [1, 1]),
        ("stub", {}, {}, [1, 1]),
        ("url", {}, {"weights": {"B": 2}}, [1, 2]),
        ("stub", {"service": WEIGHTED}, {"weights": {"A": 5}}, [5, 1]),
    ],
)
def test_weights_are_the_profiles_only_where_its_service_is_what_ran(tmp_path, target, profile, params, weights):
    trial = written(tmp_path / "t", {"A": [], "B": []}, profile, target)
    assert max_min._weights(trial, max_min.profile_of(trial), max_min.Params.model_validate(params)) == weights


def starved(tmp_path):
    """For ten seconds A is served forty calls a second, and B, who sends as many, none of them."""
    served, none = steady(400, 0, 10, queue_wait_ns=0), steady(400, 0, 10, outcome="expired", status=504)
    for row in none:
        row.update(queue_wait_ns=-1, done_ns=10_000 * MS)
    none += waiting(10_000 * MS, outcome="abandoned", status=-1)
    return written(tmp_path / "t", {"A": served, "B": none})


def test_who_is_served_nothing_lacks_all_of_its_share(tmp_path):
    found = judge_one(starved(tmp_path), NAME, {"window": "1s"})
    assert found.word is Word.FAIL
    assert (of(found, SHORT).measured, of(found, STARVED).measured) == (100.0, 100.0)
    idle = of(found, IDLE)
    assert (idle.word, idle.samples, idle.measured) == (Word.INCONCLUSIVE, 0, None)


def test_workers_that_are_all_idle_are_idle_all_of_the_time(tmp_path):
    trial = starved(tmp_path)
    states = [{"t_ns": at, "call": "0.0", "outcome": "queued", "waiting": 4, "running": 0, "workers": 4}
              for at in (0, 9 * 10**9)]  # fmt: skip
    write_rows(trial.folder, states, DECISIONS)
    assert of(judge_one(trial, NAME, {"window": "1s"}), IDLE).measured == 100.0


def test_a_call_leaves_the_queue_after_its_wait_and_where_none_is_told_when_it_is_done(tmp_path):
    """Who was refused left as it came; calls of agent runs, and those that were not sent, came to no shared queue."""
    rows = [
        {"outcome": "served", "queue_wait_ns": 30 * MS},
        {"outcome": "served", "queue_wait_ns": 0},
        {"outcome": "served", "queue_wait_ns": -1},
        {"outcome": "abandoned", "queue_wait_ns": 50 * MS},
        {"outcome": "abandoned", "queue_wait_ns": -1},
        {"outcome": "open", "queue_wait_ns": -1},
        {"outcome": "throttled", "queue_wait_ns": 70 * MS},
        {"outcome": "failed", "queue_wait_ns": -1},
        {"outcome": "held_back", "attempt": 0},
        {"outcome": "dropped", "attempt": 0},
        {"outcome": "served", "queue_wait_ns": 0, "action": "search"},
    ]
    for place, row in enumerate(rows):
        row.update(due_ns=place * 1000 * MS, done_ns=place * 1000 * MS + 200 * MS)
    found = stays_of(written(tmp_path / "t", {"idle": [], "A": rows}))
    assert np.array_equal(found.came_ns, np.arange(8) * 1000 * MS)
    assert ((found.left_ns - found.came_ns) // MS).tolist() == [30, 0, 200, 50, 200, 200, 0, 0]
    assert found.started.tolist() == [True] * 3 + [False] * 5
    assert found.tenant.tolist() == [1] * 8
