"""What checks ask of a trial first: windows, original calls, the service time and where it is known from."""

from __future__ import annotations

import pytest

from harness.checks.context import (
    asked_of_service,
    bundled,
    due_in,
    profile_of,
    service_time,
    time_scale,
    witnesses,
)  # fmt: skip
from harness.profile.model import Window
from tests.conftest import FAIR
from tests.unit.ledgers import manifest_edited, steady, written

MS = 1_000_000
CAPACITY = {
    "ceiling": 9,
    "retry": {"base": "60ms", "most": "240ms"},
    "recovery": {"from_rate": "10/s", "to_rate": "100/s", "ramp": "1s"},
    "dependencies": {
        name: {
            "workers": 4, "service_time": f"{ms}ms", "reads": {"limit": 4, "queue": 9, "timeout": "1s"},
            "writes": {"limit": 4, "queue": 9, "timeout": "1s"},
            "circuit": {"window": "1s", "min_calls": 9, "slow": "1s", "open_for": "1s", "lease": "1s"},
        }
        for name, ms in (("quick", 30), ("slow", 90))
    },
}  # fmt: skip
SERVICE = {"workers": 4, "service_time": "250ms", "admission": FAIR}


def trial_of(tmp_path, rows, **options):
    tmp_path.mkdir(exist_ok=True)
    return written(tmp_path / "trial", {"A": rows}, **options)


def time_of(trial, among=None):
    found = service_time(trial, profile_of(trial), among)
    return None if found.mean_ns is None else found.mean_ns / MS, found.source


@pytest.mark.parametrize(
    ("target", "ours"),
    [({"kind": "stub"}, True), ({"kind": "simulator"}, True), ({"kind": "url"}, False), ({"kind": "file"}, False),
     ({}, True), (None, True)],
)  # fmt: skip
def test_the_profiles_service_is_what_ran_unless_the_target_is_another(tmp_path, target, ours):
    trial = manifest_edited(trial_of(tmp_path, steady(5, 0, 9)), lambda manifest: manifest.update(target=target))
    assert bundled(trial) is ours


def test_a_target_file_says_how_long_its_service_takes(tmp_path):
    trial = trial_of(tmp_path, steady(5, 0, 9), profile={"service": SERVICE})
    for target, known in (
        ({"kind": "file", "service_time_ns": 70 * MS}, (70.0, "target file")),
        ({"kind": "file", "service_time_ns": 1}, (1 / MS, "target file")),
        ({"kind": "stub", "service_time_ns": 70 * MS}, (70.0, "target file")),
        ({"kind": "stub", "service_time_ns": 0}, (250.0, "profile")),
        ({"kind": "stub", "service_time_ns": -5}, (250.0, "profile")),
        ({"kind": "stub", "service_time_ns": "70"}, (250.0, "profile")),
        (None, (250.0, "profile")),
    ):
        assert time_of(manifest_edited(trial, lambda manifest, target=target: manifest.update(target=target))) == known


def test_of_a_target_of_its_own_the_profile_knows_nothing(tmp_path):
    """`steady` tells 200 ms in Server-Timing."""
    shared = trial_of(tmp_path / "shared", steady(5, 0, 9), profile={"service": SERVICE})
    assert time_of(shared) == (200.0, "Server-Timing")
    layer = trial_of(tmp_path / "layer", steady(5, 0, 9), profile={"capacity": CAPACITY})
    assert time_of(layer) == (200.0, "Server-Timing")


def test_of_a_capacity_layer_it_is_the_mean_of_its_dependencies(tmp_path):
    both = trial_of(tmp_path, steady(5, 0, 9), profile={"capacity": CAPACITY}, target="stub")
    assert time_of(both) == (60, "profile")


def test_a_profile_that_says_nothing_of_a_service_leaves_it_to_the_answers(tmp_path):
    assert time_of(trial_of(tmp_path, steady(5, 0, 9), target="stub")) == (200.0, "Server-Timing")


def between(from_ns, to_ns):
    return Window.model_validate([f"{from_ns}ns", f"{to_ns}ns"])


UNKNOWN = (None, "neither the profile nor Server-Timing tells it")


def telling(rows, places, **told):
    for place, row in enumerate(rows):
        row.pop("service_ns")
        if place in places:
            row.update(told)
    return rows


def test_a_few_calls_that_tell_it_do_not_speak_for_the_others(tmp_path):
    for n, known in ((2, UNKNOWN), (3, (50.0, "Server-Timing"))):
        rows = telling(steady(4, 0, 9), range(n), service_ns=50 * MS)
        assert time_of(trial_of(tmp_path / str(n), rows)) == known
    rows = telling(steady(6, 0, 9), range(6), service_ns=50 * MS)
    for row in rows[:3]:
        row["outcome"] = "failed"  # what did not end well tells nothing
    assert time_of(trial_of(tmp_path / "failed", rows)) == (50.0, "Server-Timing")
    for row in rows:
        row["outcome"] = "failed"
    assert time_of(trial_of(tmp_path / "none", rows)) == UNKNOWN


def test_no_call_was_worked_on_for_longer_than_it_took(tmp_path):
    rows = steady(4, 1, 9)
    for row in rows:
        row.update(sent_ns=row["due_ns"] + 10 * MS, done_ns=row["due_ns"] + 40 * MS)
    assert time_of(trial_of(tmp_path, rows)) == (30.0, "Server-Timing")


def test_a_service_time_of_nothing_is_told_too(tmp_path):
    assert time_of(trial_of(tmp_path, telling(steady(4, 0, 9), range(4), service_ns=0))) == (0.0, "Server-Timing")


def test_the_service_time_is_that_of_the_calls_among_which_it_is_asked(tmp_path):
    rows = steady(4, 0, 40) + steady(8, 40, 80, service_ns=900 * MS)
    trial = trial_of(tmp_path, rows)
    assert time_of(trial, due_in(trial, between(0, 40 * 10**9))) == (200.0, "Server-Timing")


def test_a_window_holds_its_beginning_and_not_its_end(tmp_path):
    trial = trial_of(tmp_path, [{"due_ns": at, "outcome": "served"} for at in (9, 10, 19, 20)])
    assert due_in(trial, between(10, 20)).tolist() == [False, True, True, False]


def test_what_was_asked_of_the_service_is_original_work_that_was_not_held_back(tmp_path):
    rows = [
        {"due_ns": 0, "outcome": "served"},
        {"due_ns": 1, "outcome": "throttled", "round": 1, "parent": "0.0"},
        {"due_ns": 2, "outcome": "held_back", "attempt": 0},
        {"due_ns": 3, "outcome": "dropped", "attempt": 0},
        {"due_ns": 4, "outcome": "held_back", "attempt": 0, "round": 2, "parent": "0.0"},
    ]
    assert asked_of_service(trial_of(tmp_path, rows)).tolist() == [True, False, False, True, False]


def test_witnesses_are_the_first_of_the_mask_by_when_they_were_due(tmp_path):
    trial = trial_of(tmp_path, steady(30, 0, 9))
    late = trial.calls.due_ns >= 3 * 10**9
    assert witnesses(trial, late, 3) == ("0.10", "0.11", "0.12")
    assert len(witnesses(trial, late)) == 20
    assert witnesses(trial, late & ~late) == ()


def test_durations_are_those_of_the_trials_own_scale(tmp_path):
    trial = trial_of(tmp_path, steady(5, 0, 9), profile={"service": SERVICE})
    assert (time_scale(trial), profile_of(trial).duration) == (1.0, 100 * 10**9)
    quick = manifest_edited(trial, lambda manifest: manifest.update(time_scale=0.5))
    assert (time_scale(quick), profile_of(quick).duration) == (0.5, 50 * 10**9)
    untold = manifest_edited(trial, lambda manifest: manifest.pop("time_scale"))
    assert time_scale(untold) == 1.0
