"""Live trials that may not be blamed on a busy machine: one that was late is driven again, as harness/verify.py does.

A trial in which the harness itself was late (`trial.on_time` is INVALID) says nothing of the stub, neither way. It is
driven again, alone; if it is late again and again, the test is skipped, and says so. Nothing else is ever tried again.
Alone means that no other live test runs meanwhile, on whatever worker.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from harness import checks, trial
from harness.checks.verdict import Verdict, Word
from harness.profile.loader import Loaded, load
from harness.pytest_plugin import beside_others
from harness.trial import Judged
from harness.verify import ON_TIME, SIDE_BY_SIDE

MOST_TRIES = 3
lock: Path | None = None
"""Shared by live tests that measure no time, held by what must be alone; set by conftest.py."""
Key = TypeVar("Key", bound=Hashable)
Verdicts = dict[str, Verdict]


def loaded(path: Path) -> Loaded:
    return load(path, checks=checks.PARAMETERS)


def drive(made: Loaded, folder: Path, defect: str | None = None) -> Judged:
    """Alone, against the bundled stub, again while it was late. folder: where the folders of the tries are made."""
    return on_time(lambda: alone(made, folder, defect))


def alone(made: Loaded, folder: Path, defect: str | None) -> Judged:
    assert lock is not None
    with beside_others(lock, alone=True):
        return once(made, folder, defect)


def once(made: Loaded, folder: Path, defect: str | None = None) -> Judged:
    return trial.run(made, trial.new_folder(folder, made.profile.name), trial.STUB, defect)


def on_time(drive_once: Callable[[], Judged]) -> Judged:
    """The first that was on time, or the last of all."""
    judged = drive_once()
    for _ in range(MOST_TRIES - 1):
        if not was_late(judged.verdicts):
            break
        judged = drive_once()
    return judged


def judge_all(jobs: Mapping[Key, tuple[Loaded, str | None]], folder: Path) -> dict[Key, Judged]:
    """All of them, two side by side, the longest first; those that were late again, each by itself."""
    longest_first = sorted(jobs, key=lambda key: -jobs[key][0].profile.duration)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        first = {key: pool.submit(once, jobs[key][0], folder, jobs[key][1]) for key in longest_first}
        found = {key: future.result() for key, future in first.items()}
    for key, (made, defect) in jobs.items():
        for _ in range(MOST_TRIES - 1):
            if was_late(found[key].verdicts):
                found[key] = alone(made, folder, defect)
    return found


def drive_all(jobs: Mapping[Key, tuple[Loaded, str | None]], folder: Path) -> dict[Key, Verdicts]:
    """What was said of each, by check."""
    return {key: by_check(judged) for key, judged in judge_all(jobs, folder).items()}


def by_check(judged: Judged) -> Verdicts:
    return {verdict.check: verdict for verdict in judged.verdicts}


def was_late(verdicts: list[Verdict]) -> bool:
    return any(verdict.check == ON_TIME and verdict.word is Word.INVALID for verdict in verdicts)


def skip_if_late(verdicts: list[Verdict]) -> None:
    """Ends a test that has nothing to look at."""
    if was_late(verdicts):
        late = next(verdict for verdict in verdicts if verdict.check == ON_TIME)
        pytest.skip(f"the machine was too busy, {MOST_TRIES} times: {late.sentence}")


def must_pass(verdicts: Verdicts) -> None:
    """A healthy trial: everything that was judged."""
    skip_if_late(list(verdicts.values()))
    assert [v.sentence for v in verdicts.values() if v.word is not Word.PASS] == []


def must_fail(verdicts: Verdicts, check: str) -> Verdict:
    """A trial with a defect of this check."""
    if verdicts[check].word is not Word.FAIL:
        skip_if_late(list(verdicts.values()))
    assert verdicts[check].word is Word.FAIL, [v.sentence for v in verdicts.values() if v.word is not Word.PASS]
    return verdicts[check]
