"""Fan-out to retries, coalescing and cancellation over real HTTP: each check fails one of its defects.

That the healthy stub passes v01 to v05 live is shown by tests/verification; of the others it is shown here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import checks, trial
from harness.checks.verdict import Word
from harness.matrix import profile_of_check
from harness.profile.loader import load

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


def drive(folder, check, defect):
    """One trial; again if the harness itself was late, for then it says nothing of the stub."""
    for number in (1, 2):
        place = folder / f"{check}-{defect or 'healthy'}-{number}"
        place.mkdir()
        judged = trial.run(load(profile_of_check(check), checks=checks.PARAMETERS), place, trial.STUB, defect)
        verdicts = {verdict.check: verdict for verdict in judged.verdicts}
        if verdicts["trial.on_time"].word is not Word.INVALID:
            break
    return verdicts


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """All trials, two side by side: a defect breaks its rule by far more than that costs."""
    folder = tmp_path_factory.mktemp("defects_live")
    trials = [*FAILS.items(), *((check, None) for check in HEALTHY)]
    with ThreadPoolExecutor(2) as pool:
        made = {key: pool.submit(drive, folder, *key) for key in trials}
        return {key: future.result() for key, future in made.items()}


@pytest.mark.parametrize(("check", "defect"), FAILS.items())
def test_its_defect_fails_it(driven, check, defect):
    verdicts = driven[check, defect]
    assert verdicts[check].word is Word.FAIL, [v.sentence for v in verdicts.values() if v.word is not Word.PASS]
    assert verdicts[check].witnesses


@pytest.mark.parametrize("check", HEALTHY)
def test_the_healthy_stub_passes(driven, check):
    assert [v.sentence for v in driven[check, None].values() if v.word is not Word.PASS] == []


def test_the_layers_of_a_retry_and_its_attempts_are_named(driven):
    sentence = driven["v05.one_retry_owner", "three_layer_retry"]["v05.one_retry_owner"].sentence
    assert ": 27 attempts by 3 layers (controller, http_client, sdk) where at most 3 are allowed" in sentence
