"""How far a comparison with a baseline can be trusted: equal services never FAIL, and worse ones are seen by size."""

from __future__ import annotations

from itertools import combinations

import pytest

from harness import checks, trial
from harness.baseline.compare import compare
from harness.baseline.model import Baseline
from harness.baseline.take import environment_of, situation_of
from harness.checks.verdict import Word
from harness.profile.loader import load
from tests.conftest import ROOT

pytestmark = pytest.mark.slow
SEEDS = range(1, 21)


def taken(folder, seed: int, *sets: str) -> Baseline:
    """Random arrivals and service times, in front of a fair queue for each tenant."""
    path = ROOT / "profiles" / "poisson_lognormal.yaml"
    sets = (f"seed={seed}", *sets)
    loaded = load(path, variant="fair_queues", sets=sets, checks=checks.PARAMETERS)
    where = trial.new_folder(folder, "trial")
    trial.simulate(loaded, where)
    judged = trial.judge(where, write=False)
    situation = situation_of(judged.trial, judged.verdicts)
    return Baseline(environment=environment_of(judged.trial), situations={"x": situation})


@pytest.fixture(scope="module")
def healthy(tmp_path_factory) -> list[Baseline]:
    folder = tmp_path_factory.mktemp("healthy")
    return [taken(folder, seed) for seed in SEEDS]


def test_equal_services_are_no_regression(healthy):
    words = [compare(one, two).word for one, two in combinations(healthy, 2)]
    print(f"{len(words)} comparisons of equal services: { ({word.value: words.count(word) for word in set(words)}) }")
    assert words.count(Word.FAIL) <= len(words) / 100
    assert words.count(Word.PASS) >= 0.95 * len(words)


def test_a_service_that_is_worse_by_a_margin_never_passes(healthy, tmp_path):
    """40 workers do; with 24 ordinary tenants wait for longer than the margin allows."""
    worse = [taken(tmp_path, 100 + seed, "service.workers=24") for seed in SEEDS[:8]]
    words = [compare(one, two, across_environments=True).word for one, two in zip(healthy, worse, strict=False)]
    assert set(words) == {Word.FAIL}
