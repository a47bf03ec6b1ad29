"""Fan-out to retries, coalescing and cancellation over real HTTP: each check fails one of its defects.

That the healthy stub passes v01 to v05 live is shown by tests/verification; of the others it is shown here.
"""

from __future__ import annotations

import pytest

from harness.matrix import profile_of_check
from tests.live.driving import drive_all, loaded, must_fail, must_pass

pytestmark = pytest.mark.live

FAILS = {
    "v01.fan_out_ceiling": "check_then_act_budget",
    "v02.foreground_first": "reserve_never_taken_back",
    "v03.tenant_share": "tenant_from_header",
    "v04.bulkheads": "slot_of_timeout_kept",
    "v05.one_retry_owner": "three_layer_retry",
    "capacity.coalesced": "coalesced_across_tenants",
    "capacity.cancelled": "fan_out_after_cancel",
}
HEALTHY = ("capacity.coalesced", "capacity.cancelled")


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """All trials: a defect breaks its rule by far more than running side by side costs."""
    trials = [*FAILS.items(), *((check, None) for check in HEALTHY)]
    jobs = {(check, defect): (loaded(profile_of_check(check)), defect) for check, defect in trials}
    return drive_all(jobs, tmp_path_factory.mktemp("defects_live"))


@pytest.mark.parametrize(("check", "defect"), FAILS.items())
def test_its_defect_fails_it(driven, check, defect):
    assert must_fail(driven[check, defect], check).witnesses


@pytest.mark.parametrize("check", HEALTHY)
def test_the_healthy_stub_passes(driven, check):
    must_pass(driven[check, None])


def test_the_layers_of_a_retry_and_its_attempts_are_named(driven):
    verdict = must_fail(driven["v05.one_retry_owner", "three_layer_retry"], "v05.one_retry_owner")
    assert ": 27 attempts by 3 layers (controller, http_client, sdk) where at most 3 are allowed" in verdict.sentence
