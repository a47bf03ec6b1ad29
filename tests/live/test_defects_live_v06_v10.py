"""Expiry to recovery over real HTTP: each check fails one of its defects.

That the healthy stub passes v06 to v10 live is shown by tests/verification; of the others it is shown here.
"""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from harness.matrix import profile_of_check
from tests.live.driving import drive_all, loaded, must_fail, must_pass

pytestmark = pytest.mark.live

FAILS = {
    "v06.expiry": "expiry_checked_on_enqueue",
    "v07.retry_after": "retry_after_early",
    "v08.circuit": "circuit_lets_all_through",
    "v09.ambiguous_write": "write_repeated_blindly",
    "v10.outage_recovery": "backlog_first_in_first_out",
    "capacity.adaptive_bounded": "limit_above_tested",
    "trial.decisions_complete": "ends_recorded_twice",
    "trial.leak_free": "slot_kept_when_cancelled",
}
HEALTHY = ("capacity.adaptive_bounded", "trial.decisions_complete", "trial.leak_free")
PATHS = {profile_of_check(check).stem: profile_of_check(check) for check in FAILS}
TRIALS = [
    *((profile_of_check(check).stem, defect) for check, defect in FAILS.items()),
    *dict.fromkeys((profile_of_check(check).stem, None) for check in HEALTHY),
]


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """All trials: counts and orders are judged, and bounds are far over what running side by side costs."""
    jobs = {(stem, defect): (loaded(PATHS[stem]), defect) for stem, defect in TRIALS}
    return drive_all(jobs, tmp_path_factory.mktemp("defects_live"))


@pytest.mark.parametrize("check", HEALTHY)
def test_the_healthy_stub_passes(driven, check):
    verdicts = driven[profile_of_check(check).stem, None]
    must_pass(verdicts)
    assert verdicts[check].word is Word.PASS


@pytest.mark.parametrize(("check", "defect"), FAILS.items())
def test_its_defect_fails_it(driven, check, defect):
    verdict = must_fail(driven[profile_of_check(check).stem, defect], check)
    assert verdict.witnesses or check == "trial.leak_free"
