"""v08.circuit: each defect's signature in the rows, thin and withheld evidence."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from harness.ledger.stalls import STALLS
from tests.unit.ledgers import manifest_edited, write_rows
from tests.unit.verification_trials import (
    ARRIVALS,
    CALLS,
    DECISIONS,
    arrivals,
    decisions,
    edited,
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


# --- each rule by itself, from both sides of its bound


@pytest.mark.parametrize(("after_ms", "word"), [(20, Word.PASS), (21, Word.FAIL)])
def test_a_call_is_on_the_way_for_twenty_milliseconds(trial, after_ms, word):
    at = the(trial, "billing", "opened") + after_ms * MS
    assert verdict(more(trial, ARRIVALS, [call("billing", at)]), CHECK).word is word


def cheap(trial, share, ms):
    """Of the calls that were refused, a share was answered only after so long."""
    refused = [row["call"] for row in read(trial, CALLS) if row["outcome"] == "dependency_unavailable"]
    slow = set(refused[: round(share * len(refused))])
    return edited(trial, CALLS, lambda row: row | {"done_ns": row["sent_ns"] + ms * MS} if row["call"] in slow else row)


@pytest.mark.parametrize(
    ("share", "ms", "word"), [(1, 100, Word.PASS), (1, 101, Word.FAIL), (0.05, 900, Word.PASS), (0.3, 900, Word.FAIL)]
)
def test_refusals_are_quick_but_for_one_in_ten(trial, share, ms, word):
    found = verdict(cheap(trial, share, ms), CHECK)
    assert found.word is word
    assert ("were refused slowly" in found.sentence) is (word is Word.FAIL)


def test_closing_straight_from_open_fails(trial):
    last = the(trial, "billing", "half_open", -1)
    straight = decisions(
        trial,
        lambda r: None if r["kind"] == "circuit" and r["dependency"] == "billing" and r["t_ns"] == last else r,
    )
    found = verdict(straight, CHECK)
    assert found.word is Word.FAIL
    assert "straight from open" in found.sentence


def test_a_circuit_that_stays_half_open_though_its_probes_are_well_fails(trial):
    closed = the(trial, "billing", "closed")
    never = decisions(trial, lambda r: None if r["kind"] == "circuit" and r["t_ns"] == closed else r)
    found = verdict(never, CHECK)
    assert found.word is Word.FAIL
    assert "billing: not at all, after" in "; ".join(finding.note for finding in found.findings)


@pytest.mark.parametrize(("after_ms", "broken"), [(20, False), (21, True)])
def test_no_further_call_follows_a_probe_that_ended_badly(trial, after_ms, broken):
    half, again = the(trial, "notification", "half_open"), the(trial, "notification", "opened", 1)
    probes = [a for a in read(trial, ARRIVALS) if a["dependency"] == "notification" and half <= a["t_ns"] < again]
    bad = min(a["ended_ns"] for a in probes)
    later = decisions(
        trial,
        lambda r: r | {"t_ns": again + 100 * MS} if r["kind"] == "circuit" and r["t_ns"] == again else r,
    )
    found = verdict(more(later, ARRIVALS, [call("notification", bad + after_ms * MS, "r7")]), CHECK)
    assert ("after a probe had ended badly" in found.sentence) is broken


@pytest.mark.parametrize("outcome", ["failed", "throttled", None])
def test_a_healthy_dependency_whose_steps_fail_while_another_is_out_has_suffered(trial, outcome):
    began, ended = the(trial, "billing", "opened"), the(trial, "billing", "half_open")
    mine = next(
        (r["run"], r["step"])
        for r in read(trial, DECISIONS)
        if r["kind"] == "step"
        and r["dependency"] == "customer"
        and r["outcome"] == "served"
        and began < r["t_ns"] < ended
    )

    def change(row):
        if (row.get("run"), row.get("step")) != mine or row["outcome"] != "served":
            return row
        return row | {"outcome": outcome} if outcome else None

    found = verdict(decisions(trial, change), CHECK)
    assert (found.word, found.witnesses) == (Word.FAIL, ("/".join(mine),))
    assert "of a healthy dependency suffered" in found.sentence


def test_a_trial_that_ends_before_the_circuit_closes_says_what_is_missing(trial):
    closed = {dependency: the(trial, dependency, "closed") for dependency in ("billing", "notification")}
    first = {}
    for row in read(trial, DECISIONS):
        if row["kind"] == "step" and row["dependency"] in closed:
            first.setdefault((row["run"], row["step"]), row)
    gone = {key for key, row in first.items() if row["t_ns"] >= closed[row["dependency"]]}
    short = decisions(trial, lambda r: None if (r.get("run"), r.get("step")) in gone else r)
    short = arrivals(short, lambda a: None if (a["run"], a["step"]) in gone else a)
    found = verdict(short, CHECK)
    assert found.word is Word.INCONCLUSIVE
    assert "more time after the fault" in found.add


def test_without_a_capacity_layer_in_the_profile_nothing_is_decided(trial):
    plain = {"name": "plain", "duration": "10s", "checks": [CHECK]}
    plain["tenants"] = {name: {"rate": "1/s"} for name in trial.manifest["profile"]["tenants"]}
    found = verdict(manifest_edited(trial, lambda manifest: manifest.update(profile=plain)), CHECK)
    assert (found.word, found.add) == (Word.INCONCLUSIVE, "`capacity:` in the profile")


@pytest.mark.parametrize(("stalled", "word"), [(True, Word.PASS), (False, Word.FAIL)])
def test_a_probe_that_came_in_after_a_stall_held_its_lease_since_before_it(trial, stalled, word):
    """Two that were sent before, and lapse while the dependency still works on them, with two that follow."""
    half = the(trial, "notification", "half_open", -1)
    lease_ns = 800 * MS
    late = [call("notification", half + 300 * MS, f"x{n}", took=lease_ns) for n in range(2)]
    next_ = [call("notification", half + lease_ns + 10 * MS, f"y{n}", took=lease_ns) for n in range(2)]
    kept = [row for row in read(trial, ARRIVALS) if row["dependency"] != "notification" or row["t_ns"] < half]
    mine = edited(trial, ARRIVALS, lambda row: row if row in kept else None)
    mine = decisions(mine, lambda r: None if r.get("kind") == "circuit" and r["t_ns"] > half else r)
    if stalled:
        write_rows(mine.folder, [{"from_ns": half + MS, "to_ns": half + 299 * MS}], STALLS)
    told = verdict(more(mine, ARRIVALS, [*late, *next_]), CHECK).sentence
    assert ("went along with the probes" not in told) is (word is Word.PASS)
