"""The soak: growth told from noise, a sound profile of any length, and what is wrong with what a kill has left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import orjson
import pytest

from benchmarks.processes import LIVE, OTHER, PARENT, STUB, WORKER, Process, by_kind
from benchmarks.soak.left import Left, duration_s, left_in, not_whole, wrong_in
from benchmarks.soak.long_trial import growth
from benchmarks.soak.profile import document
from harness import trial
from harness.profile.loader import from_document
from harness.profile.model import Profile
from tests.conftest import WORKED_EXAMPLE


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


def left(**over):
    return replace(Left(Path("reports/t"), True, False, 4, "the trial has no end", ()), **over)


@pytest.mark.parametrize(
    ("found", "concerned", "too_early", "wrong"),
    [
        (left(), True, True, None),
        (left(begun=False, code=2), True, True, None),
        (left(whole=True, code=1), True, False, None),
        (left(whole=True, code=0), False, True, None),
        (left(code=0), True, False, "exit code 0 where it is INVALID"),
        (left(begun=False, code=0), True, False, "exit code 0"),
        (left(whole=True, code=0), True, True, "says that it ran to its end"),
        (left(), False, False, "is another trial than the one that was hit"),
        (left(wrong=("calls.jsonl: line 2 of 3 is cut or garbled",)), True, False, "line 2 of 3"),
    ],
)
def test_what_a_kill_may_leave_and_what_not(found, concerned, too_early, wrong):
    said = list(wrong_in(found, concerned, too_early))
    assert not said if wrong is None else wrong in " ".join(said)


def test_folders_that_a_kill_has_left_are_judged_by_their_files(tmp_path):
    """Two trials and a stand-in: ended, without an end, and broken so that it cannot be read."""
    document = {**WORKED_EXAMPLE, "duration": "2s", "phases": {}, "tenants": {"A": {"rate": "8/s"}}, "ordinary": ["A"]}
    whole = tmp_path / "a-whole"
    whole.mkdir()
    trial.run(from_document(document), whole, trial.SIMULATOR)
    manifest = orjson.loads((whole / "manifest.json").read_bytes())
    for name, rows in (("b-killed", b""), ("c-broken", b'{"cut\n{}\n')):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "calls.jsonl").write_bytes(rows)
        (folder / "manifest.json").write_bytes(orjson.dumps({**manifest, "ended": None}))
    found = left_in(tmp_path)
    assert [(one.folder.name, one.begun, one.whole, one.code) for one in found] == [
        ("a-whole", True, True, 0),
        ("b-killed", True, False, 4),
        ("c-broken", True, False, 2),
    ]
    assert "the trial has no end" in found[1].told
    assert found[2].wrong[0] == "calls.jsonl: line 1 of 2 is cut or garbled"
    assert found[2].wrong[1].startswith("nothing is said of its having no end")
    assert duration_s(whole) == 2.0


def test_processes_are_told_apart_by_what_they_run():
    ran = {
        PARENT: (1, "-m harness run p"),
        STUB: (10, "-m stub_service --port 0"),
        LIVE: (10, "-m harness.live --trial d"),
        WORKER: (12, "-m harness.live --worker"),
        OTHER: (10, "-m harness simulate p"),
    }
    tree = [Process(10 + n, of, 0, f"python {text}") for n, (of, text) in enumerate(ran.values())]
    assert by_kind(tree) == {kind: [one] for kind, one in zip(ran, tree, strict=True)}
