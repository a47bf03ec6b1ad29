"""The soak: growth told from noise, a sound profile of any length, and what is wrong with what a kill has left."""

from __future__ import annotations

from random import Random

from benchmarks.soak.left import not_whole
from benchmarks.soak.long_trial import growth
from benchmarks.soak.profile import document
from harness.profile.model import Profile


def noisy(grows, n=3600):
    rng = Random(1)
    return [80 + grows * at / n + rng.gauss(0, 0.5) for at in range(n)]


def test_memory_that_grows_is_told_from_memory_that_moves():
    assert growth("stub", noisy(0.0)).word == "PASS"
    assert growth("stub", noisy(40.0)).word == "FAIL"
    assert growth("stub", noisy(0.0, 20)) is None


def test_growth_in_the_warm_up_is_not_counted_and_a_short_trial_fails_nobody():
    assert growth("stub", [*range(600), *[600.0] * 3000]).word == "PASS"
    assert growth("stub", noisy(40.0, 300)).word == "INCONCLUSIVE"
    assert growth("stub", noisy(0.0, 300)).word == "PASS"


def test_a_soak_of_any_length_is_a_sound_profile():
    for seconds, faults in ((4, 1), (130, 11), (3600, 300)):
        assert len(Profile.model_validate(document(seconds)).faults) == faults


def test_a_file_is_whole_but_for_a_last_line_that_was_cut(tmp_path):
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\n{"a"')
    assert not_whole(path) == ""
    path.write_bytes(b'{"a":1}\n{"a"\n{"a":3}\n')
    assert not_whole(path) == "line 2 of 3 is cut or garbled"
