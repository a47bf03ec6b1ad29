"""v10.outage_recovery: each defect's signature in the rows, thin and withheld evidence."""

from __future__ import annotations

import pytest

from benchmarks.judge.lengths import longer
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.matrix import profile_of_check, trial_in_virtual_time
from harness.profile.loader import load
from stub_service.capacity.recovery import Ramp
from tests.unit.ledgers import manifest_edited
from tests.unit.verification_trials import (
    ARRIVALS,
    DECISIONS,
    arrivals,
    decisions,
    healthy,
    more,
    read,
    verdict,
    without,
)

CHECK = "v10.outage_recovery"
MS = 1_000_000


@pytest.fixture
def trial(tmp_path):
    return healthy("v10", tmp_path)


def closed_at(trial):
    return next(r["t_ns"] for r in read(trial, DECISIONS) if r["kind"] == "circuit" and r["outcome"] == "closed")


def backlog(trial):
    """Steps that were queued before the closing and started after it, in the order in which they were queued."""
    closed = closed_at(trial)
    queued = {}
    for row in read(trial, DECISIONS):
        if row["kind"] == "step" and row["outcome"] == "queued" and row["t_ns"] < closed:
            queued.setdefault((row["run"], row["step"]), row["t_ns"])
    starts = {(a["run"], a["step"]): a["t_ns"] for a in read(trial, ARRIVALS) if a["t_ns"] > closed}
    return sorted((key for key in queued if key in starts), key=lambda key: queued[key]), starts


def started_at(trial, instants):
    """Arrivals of these steps at other instants."""

    def move(a):
        at = instants.get((a["run"], a["step"]))
        return a if at is None else a | {"t_ns": at, "started_ns": at, "ended_ns": at + 50 * MS}

    return arrivals(trial, move)


def test_the_healthy_controller_passes(trial):
    found = verdict(trial, CHECK)
    assert found.word is Word.PASS, found.sentence
    assert found.sentence.startswith("14 stale steps expired and none of them started; 25 others drained by class")


def test_first_in_first_out_fails(trial):
    steps, starts = backlog(trial)
    found = verdict(started_at(trial, dict(zip(steps, sorted(starts[s] for s in steps), strict=True))), CHECK)
    assert found.word is Word.FAIL
    assert "started before more urgent work" in found.sentence


def test_all_started_at_once_fails(trial):
    steps, _ = backlog(trial)
    found = verdict(started_at(trial, dict.fromkeys(steps, closed_at(trial) + 10 * MS)), CHECK)
    assert found.word is Word.FAIL
    assert "calls more than the tested 60/s allow had been started by" in found.sentence


def test_stale_work_that_starts_fails(trial):
    stale = next(r for r in read(trial, DECISIONS) if r["kind"] == "step" and r["outcome"] == "expired")
    at = closed_at(trial) + 100 * MS
    row = {"t_ns": at, "started_ns": at, "ended_ns": at + 50 * MS, "status": 200, "attempt": 1}
    row |= {k: stale[k] for k in ("dependency", "operation", "run", "step", "deadline_ns")}
    found = verdict(more(trial, ARRIVALS, [row]), CHECK)
    assert found.word is Word.FAIL
    assert "started after their deadline" in found.sentence


def test_stale_work_that_is_not_told_expired_fails(trial):
    found = verdict(decisions(trial, lambda r: r | {"outcome": "failed"} if r["outcome"] == "expired" else r), CHECK)
    assert "went stale and did not end `expired`" in found.sentence


def test_an_unbounded_queue_fails(trial):
    """Steps that were turned away by a full queue are queued instead."""
    full = [r for r in read(trial, DECISIONS) if r["kind"] == "step" and r.get("reason") in ("queue_full", "displaced")]
    keys = {(r["run"], r["step"]) for r in full}
    end = closed_at(trial) + 500 * MS

    def kept(r):
        mine = (r.get("run"), r.get("step")) in keys and r["outcome"] == "throttled"
        return r | {"t_ns": end, "outcome": "served", "reason": None} if mine else r

    queued = [r | {"outcome": "queued", "reason": None} for r in full]
    found = verdict(more(decisions(trial, kept), DECISIONS, queued), CHECK)
    assert found.word is Word.FAIL
    assert "reads waited at once where the queue holds 48" in found.sentence


def test_interactive_work_behind_the_backlog_fails(trial):
    closed = closed_at(trial)
    desk = {
        (a["run"], a["step"]): a["t_ns"] + 600 * MS
        for a in read(trial, ARRIVALS)
        if a["traffic_class"] == "interactive" and closed < a["t_ns"] < closed + 700 * MS
    }
    found = verdict(started_at(trial, desk), CHECK)
    assert found.word is Word.FAIL
    assert "of interactive work were held up by the backlog" in found.sentence


def test_a_second_wave_that_reopens_the_circuit_fails(trial):
    again = {"t_ns": 4_400 * MS, "kind": "circuit", "outcome": "opened", "dependency": "billing", "part": "capacity"}
    found = verdict(more(trial, DECISIONS, [again]), CHECK)
    assert found.word is Word.FAIL
    assert "met a circuit that opened again" in found.sentence


def test_an_outage_that_never_ends_fails(trial):
    closed = closed_at(trial)

    def refused(r):
        if r["kind"] == "circuit" and r["outcome"] == "closed":
            return None
        mine = r["kind"] == "step" and r["outcome"] == "served" and r["t_ns"] > closed
        return r | {"outcome": "dependency_unavailable", "reason": "circuit_open"} if mine else r

    found = verdict(decisions(trial, refused), CHECK)
    assert found.word is Word.FAIL
    assert "met a circuit that never closed again after the outage" in found.sentence


def test_without_a_second_wave_it_is_inconclusive(trial):
    late = {r["run"] for r in read(trial, DECISIONS) if r.get("task_class") == "second_wave"}
    thin = decisions(trial, lambda r: None if r.get("run") in late else r)
    found = verdict(arrivals(thin, lambda a: None if a["run"] in late else a), CHECK)
    assert found.word is Word.INCONCLUSIVE
    assert "more work once the circuit has closed" in found.add


def test_without_an_outage_it_is_inconclusive(trial):
    calm = decisions(trial, lambda r: None if r["kind"] == "circuit" else r)
    found = verdict(calm, CHECK)
    assert found.word is Word.INCONCLUSIVE
    assert "no circuit opened and closed again" in found.sentence


@pytest.mark.parametrize("file", [ARRIVALS, DECISIONS])
def test_withheld_evidence_is_inconclusive(trial, file):
    assert verdict(without(trial, file), CHECK).word is Word.INCONCLUSIVE


# --- each rule by itself, from both sides of its bound


def finding(verdict, quantity):
    return next(each for each in verdict.findings if each.quantity == quantity)


@pytest.mark.parametrize(("at_once", "measured", "word"), [(7, 7.8, Word.PASS), (8, 8.8, Word.FAIL)])
def test_eight_starts_more_than_the_tested_capacity_are_borne(trial, at_once, measured, word):
    steps, _ = backlog(trial)
    moved = started_at(trial, dict.fromkeys(steps[:at_once], closed_at(trial) + 10 * MS))
    found = finding(verdict(moved, CHECK), "starts beyond the tested capacity")
    assert (found.measured, found.word, found.samples) == (measured, word, 34)


def test_starts_at_another_dependency_are_none_of_the_drains(trial):
    at = closed_at(trial) + 100 * MS
    row = next(a for a in read(trial, ARRIVALS) if a["t_ns"] > at)
    others = [
        row | {"dependency": "elsewhere", "run": f"x{i}", "t_ns": at, "started_ns": at, "ended_ns": at + MS}
        for i in range(30)
    ]
    found = finding(verdict(more(trial, ARRIVALS, others), CHECK), "starts beyond the tested capacity")
    assert (found.word, found.samples) == (Word.PASS, 35)


@pytest.mark.parametrize(("reports", "word"), [(1, Word.PASS), (2, Word.FAIL)])
def test_one_start_in_twenty_may_overtake_more_urgent_work(trial, reports, word):
    runs = {r["run"] for r in read(trial, DECISIONS) if r.get("task_class") == "reports"}
    mine = [key for key in backlog(trial)[0] if key[0] in runs][:reports]
    found = verdict(started_at(trial, dict.fromkeys(mine, closed_at(trial) + 5 * MS)), CHECK)
    assert finding(found, "started before more urgent work").word is word
    if word is Word.FAIL:
        assert set(found.witnesses) == {"/".join(key) for key in mine}


def asked_in_the_drain(trial):
    """The first interactive step after the closing, and when it was first heard of."""
    closed = closed_at(trial)
    return next(
        ((r["run"], r["step"]), r["t_ns"])
        for r in read(trial, DECISIONS)
        if r["kind"] == "step" and r["traffic_class"] == "interactive" and r["t_ns"] > closed
        and r["outcome"] in ("queued", "admitted")
    )  # fmt: skip


@pytest.mark.parametrize(("wait_ms", "word"), [(200, Word.PASS), (201, Word.FAIL)])
def test_people_wait_two_tenths_of_a_second_at_most(trial, wait_ms, word):
    key, asked = asked_in_the_drain(trial)
    found = verdict(started_at(trial, {key: asked + wait_ms * MS}), CHECK)
    assert finding(found, "of interactive work were held up by the backlog").word is word


def test_people_who_are_turned_away_in_the_drain_were_held_up(trial):
    key, _ = asked_in_the_drain(trial)
    refused = decisions(
        trial,
        lambda r: (
            r | {"outcome": "throttled"} if (r.get("run"), r.get("step")) == key and r["outcome"] == "served" else r
        ),
    )
    found = verdict(refused, CHECK)
    assert (found.word, found.witnesses) == (Word.FAIL, ("/".join(key),))
    assert "ended throttled" in found.sentence


@pytest.mark.parametrize(
    ("group", "left", "add"),
    [
        ("too_many", 0, "more load during the outage than the queue holds"),
        ("desk", 0, "interactive steps while the backlog drains"),
        ("stale", 9, "waiting work whose deadline passes during the outage"),
        ("digests", 0, "more work that waits through the outage"),
        ("second_wave", 19, "more work once the circuit has closed"),
    ],
)
def test_evidence_that_is_missing_is_named(trial, group, left, add):
    steps = {
        (r["run"], r["step"]): 1 for r in read(trial, DECISIONS) if r["kind"] == "step" and r["task_class"] == group
    }
    gone = set([*steps][left:])
    less = decisions(trial, lambda r: None if (r.get("run"), r.get("step")) in gone else r)
    found = verdict(arrivals(less, lambda a: None if (a["run"], a["step"]) in gone else a), CHECK)
    assert found.word is Word.INCONCLUSIVE, found.sentence
    assert add in found.add


def test_an_opening_that_another_fault_explains_is_no_second_wave(trial):
    again = {"t_ns": 4_400 * MS, "kind": "circuit", "outcome": "opened", "dependency": "billing", "part": "capacity"}
    faulty = {"dependency": "billing", "kind": "hang", "from": "4300ms", "to": "4500ms"}
    told = manifest_edited(
        more(trial, DECISIONS, [again]), lambda manifest: manifest["profile"]["faults"].append(faulty)
    )
    assert finding(verdict(told, CHECK), "of the second wave met a circuit that opened again").word is not Word.FAIL


# --- several outages


def twice(folder):
    document = longer(load(profile_of_check(CHECK)).document, 2)
    return judge_one(trial_in_virtual_time(folder, document), CHECK, {})


def test_each_of_two_outages_is_judged_by_its_own_calls(tmp_path):
    """What the second does to interactive work is not laid to the recovery from the first."""
    found = twice(tmp_path)
    assert found.word is Word.PASS, found.sentence
    assert found.sentence.startswith("28 stale steps expired and none of them started; 50 others drained by class")


def test_a_recovery_that_goes_wrong_after_the_second_outage_only_fails(tmp_path, monkeypatch):
    healthy_begin = Ramp.begin

    def begin(ramp, now_ns):
        if now_ns < 7_000 * MS:
            healthy_begin(ramp, now_ns)
        else:
            ramp.since_ns = -1

    monkeypatch.setattr(Ramp, "begin", begin)
    found = twice(tmp_path)
    assert found.word is Word.FAIL
    assert "calls more than the tested 60/s allow had been started by 9." in found.sentence
