"""Time in which the stub stood still runs against nobody, and excuses nothing else."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.verdict import Word
from harness.ledger.reader import LedgerError, read_trial
from harness.ledger.stalls import STALLS, stalls, stalls_of, stalls_on_the_way
from stub_service.lag import SPARE_PART, STALL_NS, TICK_NS, LoopLag, busy_clock
from tests.unit.ledgers import edited as rows_edited
from tests.unit.ledgers import rows_of, simulated, write_rows
from tests.unit.verification_trials import ARRIVALS, CALLS, DECISIONS, edited, healthy, more, verdict

MS = 1_000_000
SPANS = st.lists(st.tuples(st.integers(-50, 200), st.integers(-50, 200)), max_size=8)


def brute(spans, from_ns, to_ns):
    return sum(any(begin <= ns < end for begin, end in spans) for ns in range(from_ns, to_ns))


@given(SPANS, st.integers(-60, 210), st.integers(0, 100))
def test_stalled_time_is_that_of_the_spans_together(spans, from_ns, length):
    found = stalls(spans)
    assert found.stalled_ns(from_ns, from_ns + length) == brute(spans, from_ns, from_ns + length)
    assert found.between(from_ns, from_ns + length) == length - brute(spans, from_ns, from_ns + length)
    assert found.between(from_ns + length, from_ns) == -found.between(from_ns, from_ns + length)


@given(SPANS, st.lists(st.integers(-60, 210), min_size=1))
def test_an_array_is_taken_as_its_elements(spans, instants):
    found = stalls(spans)
    assert found.lived_all(np.array(instants, dtype=np.int64)).tolist() == [found.lived(ns) for ns in instants]


def test_what_a_stall_delayed_may_have_been_due_when_it_began():
    found = stalls([(100, 160), (300, 310)])
    assert [found.earliest(ns, 20) for ns in (99, 100, 159, 165, 180, 181, 305)] == [99, 100, 100, 100, 100, 181, 300]


def test_what_followed_something_may_have_been_held_up_until_a_stall_ended():
    found = stalls([(100, 160), (300, 310)])
    assert [found.latest(ns, 20) for ns in (79, 80, 100, 159, 160, 200, 290, 400)] == [
        79,
        160,
        160,
        160,
        160,
        200,
        310,
        400,
    ]
    assert found.longest(170, 290, 20) == 310 - 100
    assert found.longest(200, 250, 20) == 50


class FakeTimers:
    """Holds the one timer that was set."""

    def at(self, due_ns, kind, callback, subject):
        self.set = (due_ns, callback)

    def fire(self, late_ns):
        due_ns, tick = self.set
        tick(None, due_ns, due_ns + late_ns)


def test_the_loop_tells_of_late_ticks_since_the_last_one_that_came():
    told, timers = [], FakeTimers()
    lag = LoopLag(timers, 0, lambda *span: told.append(span))
    timers.fire(50 * MS)  # before any trial
    lag.restart()
    assert told == []
    timers.fire(STALL_NS)
    begin_ns = timers.set[0] - TICK_NS + STALL_NS
    timers.fire(STALL_NS + 1)
    assert told == [(begin_ns, begin_ns + TICK_NS + 1)]


def test_the_loop_tells_of_ticks_between_which_it_was_never_idle():
    told, timers, busy, spare_ns = [], FakeTimers(), [0], TICK_NS // SPARE_PART
    lag = LoopLag(timers, 0, lambda *span: told.append(span), lambda: busy[0])
    lag.restart()
    for work_ns in (TICK_NS - spare_ns, TICK_NS - spare_ns + 1, 0):
        busy[0] += work_ns
        timers.fire(0)
    assert told == [(TICK_NS, 2 * TICK_NS)]


def test_how_long_the_loop_was_busy_never_decreases_and_grows_with_work():
    busy_ns = busy_clock()
    before, begin_ns = busy_ns(), time.thread_time_ns()
    while time.thread_time_ns() - begin_ns < 30 * MS:
        pass
    assert busy_ns() - before >= 20 * MS


def test_a_target_without_them_and_virtual_time_have_none(tmp_path):
    trial = healthy("cancelled", tmp_path)
    assert not (trial.folder / STALLS).exists()
    assert stalls_of(trial).lived(5) == 5


def test_callers_stand_still_while_a_call_is_due_and_not_sent(tmp_path):
    trial = healthy("cancelled", tmp_path)
    assert stalls_on_the_way(trial).stalled_ns(0, 10**10) == 0
    first = min(rows_of(trial.folder, CALLS), key=lambda row: row["due_ns"])
    late = edited(trial, CALLS, lambda row: row | {"sent_ns": row["due_ns"] + 7 * MS} if row == first else row)
    assert stalls_on_the_way(late).stalled_ns(0, 10**10) == 7 * MS


@pytest.mark.parametrize("row", [{}, {"from_ns": 1}, {"from_ns": 1, "to_ns": "2"}, {"from_ns": 0, "to_ns": 2**62}])
def test_a_row_that_is_none_is_told(tmp_path, row):
    trial = healthy("cancelled", tmp_path)
    write_rows(trial.folder, [row], STALLS)
    with pytest.raises(LedgerError, match="from_ns and to_ns"):
        stalls_of(read_trial(trial.folder))


def stalled(trial, *spans):
    """The trial as if the stub had stood still in these spans [ms]."""
    rows = [{"from_ns": int(begin * MS), "to_ns": int(end * MS)} for begin, end in spans]
    write_rows(trial.folder, rows, STALLS)
    return read_trial(trial.folder)


@pytest.mark.parametrize(
    ("spans", "word"),
    [
        ([], Word.PASS),
        ([(0, 1100)], Word.PASS),
        ([(0, 3000)], Word.INVALID),
        ([(t, t + 9) for t in range(0, 3000, 10)], Word.INVALID),
    ],
)
def test_a_trial_stalled_more_than_half_is_invalid(tmp_path, spans, word):
    assert verdict(stalled(healthy("cancelled", tmp_path), *spans), "trial.on_time").word is word


def cancelled_then_begun(tmp_path, late_ms):
    """A healthy trial in which one more step arrives so long after its run was cancelled; and when that was [ms]."""
    trial = healthy("cancelled", tmp_path)
    cancelled = next(
        row for row in rows_of(trial.folder, DECISIONS) if row["kind"] == "run" and row["outcome"] == "cancelled"
    )
    row = next(row for row in rows_of(trial.folder, ARRIVALS) if row["run"] == cancelled["run"])
    begin_ns = cancelled["t_ns"] + late_ms * MS
    extra = {"t_ns": begin_ns, "started_ns": begin_ns, "ended_ns": begin_ns + 100 * MS, "step": "b0.99"}
    return more(trial, ARRIVALS, [row | extra]), cancelled["t_ns"] / MS


@pytest.mark.parametrize(
    ("late_ms", "stall_ms", "fails"),
    [
        (25, (0, 0), False),
        (80, (0, 0), True),
        (80, (0, 70), False),
        (80, (-30, 60), False),
        (80, (0, 40), True),  # 40 ms of it the stub was well
        (80, (-200, 0), True),  # before the cancellation
        (80, (80, 300), True),  # after the arrival
    ],
)
def test_only_time_that_was_not_stalled_counts(tmp_path, late_ms, stall_ms, fails):
    trial, at_ms = cancelled_then_begun(tmp_path, late_ms)
    found = verdict(stalled(trial, (at_ms + stall_ms[0], at_ms + stall_ms[1])), "capacity.cancelled")
    begun = [f for f in found.findings if f.quantity == "begun after cancellation"]
    assert (begun[0].word is Word.FAIL) is fails


def test_what_arrives_on_its_way_just_after_its_deadline_was_started_in_time(tmp_path):
    """And so it need not be recorded as expired; nor if it was a stall that held it up on the way."""
    trial = healthy("v06", tmp_path)
    waited = {
        (d["run"], d["step"]) for d in rows_of(trial.folder, DECISIONS) if d["outcome"] == "queued" and d.get("step")
    }
    served = [a for a in rows_of(trial.folder, ARRIVALS) if a["status"] == 200 and (a["run"], a["step"]) in waited]
    chosen = max(served, key=lambda arrival: arrival["t_ns"])
    deadline_ns, begun_ns = chosen["deadline_ns"], chosen["t_ns"]

    def moved(by_ms, *spans):
        at_ns = deadline_ns + by_ms * MS
        took = {"t_ns": at_ns, "started_ns": at_ns, "ended_ns": at_ns + chosen["ended_ns"] - begun_ns}
        later = edited(trial, ARRIVALS, lambda row: row | took if key_of(row) == key_of(chosen) else row)
        later = edited(later, DECISIONS, lambda row: row | {"t_ns": took["ended_ns"]} if ends(row) else row)
        return verdict(stalled(later, *spans), "v06.expiry").word

    def ends(row):
        return key_of(row) == key_of(chosen) and row["outcome"] == "served" and row["kind"] == "step"

    at_ms = deadline_ns / MS
    assert moved(10) is Word.PASS
    assert moved(90) is Word.FAIL
    assert moved(90, (at_ms - 20, at_ms + 85)) is Word.PASS
    assert moved(90, (at_ms - 20, at_ms + 30)) is Word.FAIL


def key_of(row):
    return row.get("run"), row.get("step")


def test_a_caller_that_stood_still_sent_no_burst(tmp_path):
    """Two hundred milliseconds of calls leave at once: the budget granted each of them when it was due."""
    tenant = {"rate": "100/s", "budget": {"rate": "50/s", "burst": 2}}
    trial = simulated(tmp_path / "t", {"duration": "4s", "phases": {}, "tenants": {"D": tenant}, "ordinary": []})

    def held_up(rows):
        for row in rows:
            if 10**9 <= row["due_ns"] < 10**9 + 400 * MS and row.get("sent_ns", -1) >= 0:
                row["sent_ns"] = max(row["sent_ns"], 10**9 + 400 * MS)
                row["done_ns"] = max(row["done_ns"], row["sent_ns"])

    made = rows_edited(trial, held_up)
    assert verdict(made, "agent.budget_at_source").word is Word.PASS

    def early(rows):
        """Without a budget: every call is sent."""
        for row in rows:
            row["sent_ns"] = row.get("sent_ns", row["due_ns"])
            row.update(outcome="served", attempt=1)
            row.pop("reason", None)

    assert verdict(rows_edited(trial, early), "agent.budget_at_source").word is Word.FAIL
