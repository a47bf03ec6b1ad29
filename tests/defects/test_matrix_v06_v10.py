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
BROKEN = [name for name, defect in DEFECTS.items() if set(defect.caught_by[:1]) & set(MINE)]
TWINS = [name for name, defect in DEFECTS.items() if set(defect.twin_of[:1]) & set(MINE)]
SEEDS = (0, 1, 2)


def told(row):
    return row.missed, [(verdict.check, verdict.word.value, verdict.sentence) for verdict in row.alarms]


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


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("path", sorted({profile_of_check(check) for check in MINE}), ids=lambda path: path.stem)
def test_the_healthy_controller_passes(path, seed):
    row = judge_job(Job(path, None, seed))
    assert told(row) == ((), [])


def test_every_check_has_defects_and_a_twin():
    twin_of = {check for name in TWINS for check in DEFECTS[name].twin_of}
    caught = {check for name in BROKEN for check in DEFECTS[name].caught_by}
    assert {*MINE} <= caught
    assert {*MINE} - {"trial.leak_free"} <= twin_of
    assert all(check in CHECKS for name in BROKEN for check in (*DEFECTS[name].caught_by, *DEFECTS[name].also))


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
