"""What a process that is killed leaves behind: at every instant of a trial its folder is readable, and no half of a
trial is taken for a whole one. SIGKILL leaves just what the files hold at that instant, so a copy of them is as good as
a kill. benchmarks/soak kills real processes."""

from __future__ import annotations

import shutil
import sys

import pytest

from harness import checks, trial
from harness.checks.verdict import Word
from harness.ledger.reader import CALLS, MANIFEST, LedgerError
from harness.profile.loader import from_document
from tests.conftest import WORKED_EXAMPLE

WRITING = {"write", "replace", "close", "mkdir"}
"""Calls of the interpreter after which files may hold something else."""


def small():
    document = {**WORKED_EXAMPLE, "duration": "4s", "phases": {}, "tenants": {"A": {"rate": "8/s"}}, "ordinary": ["A"]}
    return from_document(document, checks=checks.PARAMETERS)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def instants_of(act, folder):
    """Every content that the folder has while it is acted, in order, each once."""
    found = [files_of(folder)]

    def look(frame, event, called):
        if event == "c_return" and getattr(called, "__name__", "") in WRITING:
            sys.setprofile(None)
            if (now := files_of(folder)) != found[-1]:
                found.append(now)
            sys.setprofile(look)

    sys.setprofile(look)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


def judged(files, folder):
    """What is said of a folder that holds these files: a word, or the error."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        return trial.judge(folder)
    except LedgerError as error:
        return str(error)


def test_a_trial_that_is_killed_at_any_instant_is_invalid_until_it_has_ended_and_then_judged_as_any_other(tmp_path):
    folder = trial.new_folder(tmp_path, "whole")
    instants = instants_of(lambda: trial.run(small(), folder, trial.SIMULATOR), folder)
    said = [(files, judged(files, tmp_path / "killed")) for files in instants]
    began = next(place for place, (files, _) in enumerate(said) if MANIFEST in files)
    ended = next(place for place, (files, _) in enumerate(said) if b'"reason": "completed"' in files.get(MANIFEST, b""))
    assert 0 < began < ended - 3
    assert ended < len(said) - 3, "the reports are written after that"
    for _, found in said[:began]:
        assert "was the trial ever started?" in found or "no such file" in found
    for _, found in said[began:ended]:
        assert found.word is Word.INVALID
        assert "the trial has no end: it was killed, or is still running" in str(found.verdicts)
    assert {found.word for _, found in said[ended:]} == {Word.PASS}


@pytest.mark.parametrize("left", [1, 2, 200, -1])
def test_a_last_line_that_is_cut_is_told_whatever_the_manifest_says(tmp_path, left):
    folder = trial.new_folder(tmp_path, "whole")
    trial.run(small(), folder, trial.SIMULATOR)
    files = files_of(folder)
    files[CALLS] = files[CALLS][:-1] if left < 0 else files[CALLS][:left]
    found = judged(files, tmp_path / "cut")
    assert found.word is Word.INVALID
    assert "is cut short" in str(found.verdicts)


def test_a_stub_that_is_killed_while_it_starts_leaves_an_invalid_trial_with_the_reason(tmp_path, monkeypatch):
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -9 $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    folder = trial.new_folder(tmp_path, "trial")
    found = trial.run(small(), folder, trial.STUB)
    assert found.word is Word.INVALID
    assert found.trial.manifest["ended"]["reason"] == "broken: the stub was ended by signal 9"
    assert sorted(found.files) == ["html", "json"]


class Interrupted:
    """A live driver during one of whose steps Ctrl-C is pressed."""

    def __init__(self, at):
        self.at = at

    def __call__(self, folder, workers):
        (folder / CALLS).touch()
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def ready(self, on_waiting):
        self.press("ready")

    def begin(self, epoch_ns):
        self.press("begin")

    def press(self, step):
        if step == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", ["ready", "begin"])
def test_ctrl_c_before_the_first_call_is_told_as_an_interruption_and_not_as_an_error(tmp_path, monkeypatch, at):
    monkeypatch.setattr(trial, "LiveProcess", Interrupted(at))
    with pytest.raises(KeyboardInterrupt):
        trial._drive(small(), tmp_path, {"kind": "url", "url": "http://127.0.0.1:1"}, None, print)
    left = trial.judge(tmp_path)
    assert (left.word, left.interrupted) == (Word.INVALID, True)
