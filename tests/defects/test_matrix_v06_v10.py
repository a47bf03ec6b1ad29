"""The kill matrix of expiry to recovery, of adaptive limits, and of what a trial says of itself.

Each check fails on each of its defects, passes the healthy controller and its twins, and decides nothing without
evidence. A defect that other checks fail, too, says so."""

from __future__ import annotations

import pytest

from harness import matrix
from harness.checks import CHECKS
from harness.checks.judge import judge_one
from harness.checks.verdict import Word
from harness.ledger.reader import ARRIVALS, DECISIONS, EFFECTS, read_trial
from harness.matrix import Job, judge_job, profile_of_check, profile_of_defect, trial_in_virtual_time
from harness.profile.loader import load
from stub_service.defects.registry import DEFECTS
from tests.defects.cells import broken_of, told, twins_of

MINE = (
    "v06.expiry",
    "v07.retry_after",
    "v08.circuit",
    "v09.ambiguous_write",
    "v10.outage_recovery",
    "capacity.adaptive_bounded",
    "trial.decisions_complete",
    "trial.leak_free",
)
BROKEN = broken_of(MINE)
TWINS = twins_of(MINE)
SEEDS = (0, 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", BROKEN)
def test_a_defect_is_caught_by_its_check_and_trips_no_other_unsaid(name, seed):
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), name, seed))
    assert told(row) == ((), [])
    assert row.own.word is Word.FAIL
    assert row.own.check in DEFECTS[name].caught_by


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", TWINS)
def test_a_healthy_twin_passes(name, seed):
    row = judge_job(Job(profile_of_defect(DEFECTS[name]), name, seed))
    assert told(row) == ((), [])
    assert {*DEFECTS[name].twin_of} <= {*row.passed}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("path", sorted({profile_of_check(check) for check in MINE}), ids=lambda path: path.stem)
def test_the_healthy_controller_passes(path, seed):
    row = judge_job(Job(path, None, seed))
    assert told(row) == ((), [])


def test_every_check_has_defects_and_a_twin():
    twin_of = {check for name in TWINS for check in DEFECTS[name].twin_of}
    caught = {check for name in BROKEN for check in DEFECTS[name].caught_by}
    assert {*MINE} <= caught
    assert {*MINE} <= twin_of
    assert all(check in CHECKS for name in BROKEN for check in (*DEFECTS[name].caught_by, *DEFECTS[name].also))


FOR = {
    "limit_below_reserve": ["showed a limit under 3", "saw steps wait with fewer than 3 reads in flight"],
    "limit_above_tested": ["showed a limit over 8", "reads in flight at once"],
    "retries_unrecorded": ["were repeated and never scheduled"],
    "followers_unrecorded": ["have another number of ends than of steps"],
    "refusals_unrecorded": ["were not decided exactly once"],
    "ends_recorded_twice": ["have more than one terminal decision"],
    "limits_unrecorded": ["have a terminal decision that lacks a field"],
    "slot_kept_when_cancelled": ["slots", "ceiling"],
    "permit_kept_when_expired": ["permits"],
    "place_kept_when_expired": ["waiting"],
    "shared_call_never_ends": ["followers"],
    "expiry_checked_on_enqueue": ["started after their deadline"],
    "expiry_with_grace": ["started after their deadline"],
    "expiry_not_recorded": ["disappeared when their deadline passed"],
    "expiry_as_error": ["expired and were recorded as something else"],
    "expiry_as_throttled": ["expired and were recorded as something else"],
    "deadline_lost_when_put_back": ["started after their deadline"],
    "expired_keeps_reservation": ["kept what expired work had reserved"],
    "retry_after_ignored": ["were retried early", "were retried though the retry cannot end in time"],
    "retry_after_early": ["were retried early"],
    "retry_after_clipped": ["were retried though the retry cannot end in time"],
    "retry_after_slept_for": ["were slept for instead of answered"],
    "retry_after_date_as_zero": ["were retried early"],
    "retry_after_zero_hot_loop": ["were retried in a hot loop"],
    "circuit_lets_all_through": ["went along with the probes"],
    "circuit_closes_on_one": ["did not close by the recovery rule"],
    "circuit_never_half_opens": ["did not probe when the cool-down ended"],
    "circuit_for_all": ["opened though their own calls were well", "of a healthy dependency suffered"],
    "circuit_forgives_probes": ["did not reopen after a failed probe"],
    "circuit_blind_to_latency": ["stayed closed though the rule to open was met"],
    "circuit_blind_to_failures": ["stayed closed though the rule to open was met"],
    "write_repeated_blindly": ["were committed more than once", "were repeated without looking first"],
    "write_new_key_each_time": ["were committed more than once", "changed their idempotency key between attempts"],
    "write_reported_failed": ["were committed and recorded as something else"],
    "write_reported_served": ["were recorded as served and never committed"],
    "write_look_costs_token": ["cost a retry token"],
    "backlog_unbounded": ["reads waiting at once"],
    "backlog_first_in_first_out": ["started before more urgent work"],
    "backlog_all_at_once": ["starts beyond the tested capacity"],
    "backlog_stale_started": ["started after their deadline"],
    "tree_crash_never_settled": ["branches"],
    "backlog_before_interactive": ["of interactive work were held up by the backlog"],
}
"""Defect -> what its check must say of it: a FAIL for another reason would be luck."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_defect_is_caught_for_what_it_is(name):
    verdict = judge_job(Job(profile_of_defect(DEFECTS[name]), name, 0)).own
    broken = {text for f in verdict.findings if f.word is Word.FAIL for text in (f.quantity, f.subject)}
    assert {*FOR[name]} <= broken


def test_a_witness_is_named_and_so_is_what_was_wrong():
    row = judge_job(Job(profile_of_check("v07.retry_after"), "retry_after_slept_for", 0))
    assert row.own.witnesses
    assert "slept for instead of answered" in row.own.sentence


# --- evidence withheld, or thin


@pytest.fixture
def healthy(tmp_path):
    def make(check, without=()):
        trial_in_virtual_time(tmp_path, load(profile_of_check(check)).document)
        for file in without:
            (tmp_path / file).unlink()
        return read_trial(tmp_path)

    return make


NEEDS = [
    *((check, file) for check in MINE if check != "trial.leak_free" for file in (DECISIONS, ARRIVALS)),
    ("v09.ambiguous_write", EFFECTS),
]


@pytest.mark.parametrize(("check", "file"), NEEDS)
def test_without_its_evidence_a_check_decides_nothing(healthy, check, file):
    verdict = judge_one(healthy(check, without=[file]), check, {})
    assert verdict.word is Word.INCONCLUSIVE
    assert verdict.add


def test_without_leftovers_nobody_says_that_nothing_leaked(healthy):
    trial = healthy("trial.leak_free")
    trial.manifest["ended"]["leftovers"] = None
    verdict = judge_one(trial, "trial.leak_free", {})
    assert (verdict.word, bool(verdict.add)) == (Word.INCONCLUSIVE, True)


@pytest.mark.parametrize("check", [check for check in MINE if check not in ("trial.leak_free", "v10.outage_recovery")])
def test_a_trial_in_which_nothing_goes_wrong_proves_nothing(tmp_path, check):
    document = load(profile_of_check(check)).document
    document["faults"] = []
    for tenant in document["tenants"].values():
        tenant["runs"] = tenant["runs"][:1]
    verdict = judge_one(trial_in_virtual_time(tmp_path, document), check, {})
    assert (verdict.word, bool(verdict.add)) == (Word.INCONCLUSIVE, True)


# --- the matrix itself


def test_what_is_missed_and_what_is_a_false_alarm_is_told():
    job = Job(profile_of_check("v08.circuit"), "circuit_never_half_opens", 0)
    cell = matrix.judge_in_virtual_time(load(job.path).document, job.defect, list(CHECKS))
    right = matrix.row_of(job, cell, ["v08.circuit"])
    assert right.right
    assert right.also == ("v10.outage_recovery",)
    as_if_healthy = matrix.row_of(Job(job.path, None, 0), cell, ["v08.circuit"])
    assert {verdict.check for verdict in as_if_healthy.alarms} == {"v08.circuit", "v10.outage_recovery"}
    as_if_other = matrix.row_of(Job(job.path, "expiry_as_error", 0), cell, [])
    assert as_if_other.missed == ("v06.expiry",)


def test_trials_of_a_number_repeat_and_differ_from_those_of_another():
    document = load(profile_of_check("v08.circuit")).document
    assert matrix.numbered(document, 0) is document
    assert matrix.numbered(document, 3) == matrix.numbered(document, 3) != matrix.numbered(document, 4)
