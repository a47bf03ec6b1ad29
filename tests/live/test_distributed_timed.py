"""A trial that two processes drive: the calls and the verdicts are those of one. (That needs both to be on time.)"""

from __future__ import annotations

from collections import Counter

import pytest

from harness import trial
from harness.checks.verdict import Word
from harness.target.driver_process import Workers
from tests.live.test_distributed import SHARED_OUT, TWO
from tests.live.test_trials import loaded, words

pytestmark = pytest.mark.live


def originals(one):
    calls = one.calls
    return sorted(
        zip(calls.tenant[calls.parent < 0], calls.seq[calls.parent < 0], calls.due_ns[calls.parent < 0], strict=True)
    )


def driven(made, folder, workers, **over):
    """Once more where only the harness was late: the machine was busy, and such a trial says nothing."""
    judged = trial.run(made, folder, trial.STUB, workers=workers, **over)
    if words(judged)["trial.on_time"] is Word.INVALID:
        judged = trial.run(made, trial.new_folder(folder.parent, "again"), trial.STUB, workers=workers, **over)
    return judged


def test_two_workers_make_the_calls_of_one_process_and_the_verdicts_are_the_same(tmp_path):
    made = loaded(**SHARED_OUT)
    alone = driven(made, trial.new_folder(tmp_path, "alone"), Workers())
    both = driven(made, trial.new_folder(tmp_path, "both"), TWO)
    assert originals(both.trial) == originals(alone.trial)
    assert words(both) == words(alone), (both.verdicts, alone.verdicts)
    assert words(both)["trial.conserved"] == Word.PASS, both.verdicts
    manifest = both.trial.manifest
    assert manifest["ended"]["workers"] == {"expected": 2, "turned_away": 0, "late": [], "lost": []}
    first, second = manifest["workers"]
    assert first["parts"] | second["parts"] == {"big": second["parts"]["big"]}
    assert {first["parts"]["big"], second["parts"]["big"]} == {"0 of 2", "1 of 2"}
    shared = Counter(first["tenants"] + second["tenants"])
    assert shared == {"big": 2, "poisson": 1, "agent": 1, "budgeted": 1}
    assert (first["clock_offset_ns"], first["clock_error_ns"]) == (0, 0)
    assert first["calls"] + second["calls"] == len(both.trial.calls)
