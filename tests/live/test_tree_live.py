"""Delegation trees and floods over real HTTP: each check passes the healthy stub, and fails one of its defects."""

from __future__ import annotations

import pytest

from harness.matrix import profile_of_check
from tests.live.driving import drive_all, loaded, must_fail, must_pass

pytestmark = pytest.mark.live

FAILS = {
    "tree.bounded": "tree_fresh_for_the_child",
    "tree.delegate_priced": "tree_all_cost_one",
    "tree.inward_guard": "tree_agent_budget_of_each_run",
    "flood.cheap": "flood_one_bucket",
    "flood.expensive": "flood_counted_as_one",
}


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """All trials, two side by side: what is judged are counts and ratios."""
    folder = tmp_path_factory.mktemp("tree_live")
    trials = [*FAILS.items(), *((check, None) for check in FAILS)]
    return drive_all({(check, defect): (loaded(profile_of_check(check)), defect) for check, defect in trials}, folder)


@pytest.mark.parametrize("check", FAILS)
def test_the_healthy_stub_passes(driven, check):
    must_pass(driven[check, None])


@pytest.mark.parametrize(("check", "defect"), FAILS.items())
def test_its_defect_fails_it(driven, check, defect):
    assert must_fail(driven[check, defect], check).witnesses
