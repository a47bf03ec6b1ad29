"""Shares, identity, shuffle shards, recovery and shadows over HTTP: the healthy stub passes, a defect of each fails."""

from __future__ import annotations

import pytest

from harness.matrix import profile_of_check, profile_of_defect
from stub_service.defects.registry import DEFECTS
from tests.live.driving import drive_all, loaded, must_fail, must_pass

pytestmark = pytest.mark.live

FAILS = {
    "fairness.max_min": "weights_ignored",
    "fairness.identity_from_credential": "tenant_header_believed",
    "fairness.shuffle_isolation": "hand_of_one",
    "fairness.recovers": "replans_keep_overload_alive",
    "fairness.shadow_agrees": "shadow_is_another_policy",
}


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    healthy = {(check, None): (loaded(profile_of_check(check)), None) for check in FAILS}
    broken = {(check, name): (loaded(profile_of_defect(DEFECTS[name])), name) for check, name in FAILS.items()}
    return drive_all(healthy | broken, tmp_path_factory.mktemp("fairness_live"))


@pytest.mark.parametrize("check", FAILS)
def test_the_healthy_stub_passes(driven, check):
    must_pass(driven[check, None])


@pytest.mark.parametrize(("check", "defect"), FAILS.items())
def test_its_defect_fails_it(driven, check, defect):
    assert must_fail(driven[check, defect], check).witnesses
