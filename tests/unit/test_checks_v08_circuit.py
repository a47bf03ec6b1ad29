"""v08.circuit: each defect's signature in the rows, thin and withheld evidence."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
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

CHECK = "v08.circuit"
MS = 1_000_000


@pytest.fixture
def trial(tmp_path):
    return healthy("v08", tmp_path)


def transitions(trial, dependency):
    return [r for r in read(trial, DECISIONS) if r["kind"] == "circuit" and r["dependency"] == dependency]


def the(trial, dependency, outcome, place=0):
    return [r for r in transitions(trial, dependency) if r["outcome"] == outcome][place]["t_ns"]


def call(dependency, at, run="r1", took=30 * MS, status=200):
    return {"t_ns": at, "started_ns": at, "ended_ns": at + took, "dependency": dependency, "operation": "read",
            "status": status, "run": run, "step": "b0.0", "attempt": 1}  # fmt: skip


def test_the_healthy_controller_passes(trial):
    found = verdict(trial, CHECK)
    assert found.word is Word.PASS, found.sentence
    assert found.sentence.startswith("Circuits opened on failures and on latency; ")


@pytest.mark.parametrize(("dependency", "how"), [("billing", "failed"), ("notification", "slow")])
def test_a_circuit_that_never_opens_fails(trial, dependency, how):
    """No transition at all, and the calls that were kept away go on arriving."""
    began, ended = the(trial, dependency, "opened"), the(trial, dependency, "closed")
    bad = {"failed": {"took": MS, "status": 503}, "slow": {"took": 300 * MS}}[how]
    flood = [call(dependency, at, f"x{at}", **bad) for at in range(began, ended, 20 * MS)]
    trial = decisions(trial, lambda r: None if r["kind"] == "circuit" and r["dependency"] == dependency else r)
    found = verdict(more(trial, ARRIVALS, flood), CHECK)
    assert found.word is Word.FAIL
    assert "stayed closed though the rule to open was met" in found.sentence
    assert f"{dependency}: calls {how} from" in found.sentence


def test_arrivals_while_open_fail(trial):
    at = the(trial, "billing", "opened") + 200 * MS
    found = verdict(more(trial, ARRIVALS, [call("billing", at, "r7")]), CHECK)
    assert (found.word, found.witnesses) == (Word.FAIL, ("r7/b0.0",))
    assert "200 ms after billing opened" in found.sentence


def test_a_call_on_the_way_when_it_opened_passes(trial):
    at = the(trial, "billing", "opened") + 5 * MS
    assert verdict(more(trial, ARRIVALS, [call("billing", at)]), CHECK).word is Word.PASS


def test_every_waiter_let_through_fails(trial):
    at = the(trial, "notification", "half_open")
    crowd = [call("notification", at + MS, f"r{i}", took=300 * MS) for i in range(5)]
    found = verdict(more(trial, ARRIVALS, crowd), CHECK)
    assert found.word is Word.FAIL
    assert "calls in flight" in found.sentence
    assert "2 allowed" in found.sentence


def test_closing_after_one_success_fails(trial):
    half = the(trial, "billing", "half_open", -1)
    first = min(a["ended_ns"] for a in read(trial, ARRIVALS) if a["dependency"] == "billing" and a["t_ns"] >= half)
    closed = the(trial, "billing", "closed")
    found = verdict(
        decisions(
            trial, lambda r: r | {"t_ns": first + MS // 10} if r["t_ns"] == closed and r["kind"] == "circuit" else r
        ),
        CHECK,
    )
    assert found.word is Word.FAIL
    assert "where 3 are asked for" in found.sentence


def test_a_circuit_that_never_half_opens_fails(trial):
    first = the(trial, "billing", "opened")
    later = decisions(
        trial, lambda r: None if r["kind"] == "circuit" and r["dependency"] == "billing" and r["t_ns"] > first else r
    )
    found = verdict(arrivals(later, lambda a: None if a["dependency"] == "billing" and a["t_ns"] > first else a), CHECK)
    assert found.word is Word.FAIL
    assert "did not probe when the cool-down ended" in found.sentence


def test_probing_before_the_cool_down_ends_fails(trial):
    half = the(trial, "billing", "half_open")
    early = decisions(
        trial, lambda r: r | {"t_ns": half - 200 * MS} if r["kind"] == "circuit" and r["t_ns"] == half else r
    )
    assert "too early" in verdict(early, CHECK).sentence


def test_a_failed_probe_that_does_not_reopen_fails(trial):
    again = the(trial, "notification", "opened", 1)
    half = the(trial, "notification", "half_open", 1)
    lost = decisions(trial, lambda r: None if r["kind"] == "circuit" and r["t_ns"] in (again, half) else r)
    found = verdict(lost, CHECK)
    assert found.word is Word.FAIL
    assert "did not reopen after a failed probe" in found.sentence


def test_one_circuit_for_all_fails_on_the_healthy_dependency(trial):
    """Steps of customer, whose own calls are all well, are refused while billing's circuit is open."""
    began, ended = the(trial, "billing", "opened"), the(trial, "billing", "half_open")
    mine = {
        (r["run"], r["step"])
        for r in read(trial, DECISIONS)
        if r["kind"] == "step" and r["dependency"] == "customer" and began < r["t_ns"] < ended
    }
    kept = arrivals(trial, lambda a: None if (a["run"], a["step"]) in mine else a)
    refused = decisions(
        kept,
        lambda r: (
            r | {"outcome": "dependency_unavailable", "reason": "circuit_open"}
            if (r.get("run"), r.get("step")) in mine and r["outcome"] == "served"
            else r
        ),
    )
    found = verdict(refused, CHECK)
    assert found.word is Word.FAIL
    assert "were refused though the circuit of their dependency was closed" in found.sentence
    assert "of a healthy dependency suffered" in found.sentence


def test_opening_without_a_cause_fails(trial):
    opened = {"t_ns": 500 * MS, "kind": "circuit", "outcome": "opened", "dependency": "customer", "part": "capacity"}
    half = opened | {"t_ns": 900 * MS, "outcome": "half_open"}
    found = verdict(more(trial, DECISIONS, [opened, half]), CHECK)
    assert found.word is Word.FAIL
    assert "opened though their own calls were well" in found.sentence


def test_a_trial_without_the_slow_dependency_is_inconclusive(trial):
    quick = arrivals(trial, lambda a: None if a["dependency"] == "notification" else a)
    quick = decisions(quick, lambda r: None if r.get("dependency") == "notification" else r)
    found = verdict(quick, CHECK)
    assert found.word is Word.INCONCLUSIVE
    assert "a fault that makes a dependency slow" in found.add


@pytest.mark.parametrize("file", [ARRIVALS, DECISIONS])
def test_withheld_evidence_is_inconclusive(trial, file):
    assert verdict(without(trial, file), CHECK).word is Word.INCONCLUSIVE
