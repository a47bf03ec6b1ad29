"""What the measuring of the judge rests on: dilutions that are what they say, a record that outlives its writers."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random

import pytest

import harness.workload.defects  # noqa: F401  registers those of callers
from benchmarks.judge import cells
from benchmarks.judge.cells import DILUTED, Cell
from benchmarks.judge.trials import run
from benchmarks.soak.kills import kill_once
from benchmarks.soak.long_trial import soak
from benchmarks.soak.scenes import KINDS
from harness.machine import usable_cores
from harness.matrix import profile_of_defect
from stub_service.defects import strengths
from stub_service.defects.registry import DEFECTS

pytestmark = pytest.mark.slow

NEVER = 10**12
TIMES = 2


def word(cell):
    return run(cell).word(cells.own_check(cell), cells.may_fail(cell))


def test_every_dilution_of_one_is_the_defect_and_none_at_all_is_the_healthy_service():
    made = {
        (name, one_in): Cell(DILUTED, profile_of_defect(DEFECTS[name]).stem, f"{name}~{one_in}", 1.0, 3)
        for name in strengths.known()
        for one_in in (1, NEVER)
    }
    with ProcessPoolExecutor(min(2, usable_cores()), get_context("spawn")) as pool:
        words = dict(zip(made, pool.map(word, made.values()), strict=True))
    assert {name for (name, one_in), found in words.items() if one_in == 1 and found != "FAIL"} == set()
    assert {name for (name, one_in), found in words.items() if one_in == NEVER and found == "FAIL"} == set()


@pytest.mark.live
@pytest.mark.parametrize("number", range(TIMES))
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_is_killed_the_record_is_whole_and_nobody_is_left(kind, number, tmp_path):
    assert kill_once(kind, Random(f"{kind} {number}"), tmp_path).wrong == ()


@pytest.mark.live
def test_a_minute_of_soak_loses_nothing(tmp_path):
    """Whether memory is flat cannot be told in a minute: INCONCLUSIVE is as good here as PASS."""
    assert soak(1.0, 100, tmp_path) in (0, 3)
