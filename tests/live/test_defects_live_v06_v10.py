"""Expiry to recovery over real HTTP: each check passes the healthy stub and fails it with one of its defects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import checks, trial
from harness.checks.verdict import Word
from harness.matrix import profile_of_check
from harness.profile.loader import load

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
TRIALS = dict.fromkeys(
    (profile_of_check(check).stem, defect) for check, name in FAILS.items() for defect in (None, name)
)
PATHS = {profile_of_check(check).stem: profile_of_check(check) for check in FAILS}


def drive(folder, stem, defect):
    """One trial; again if the harness itself was late, for then it says nothing of the stub."""
    for number in (1, 2):
        loaded = load(PATHS[stem], checks=checks.PARAMETERS)
        place = folder / f"{stem}-{defect or 'healthy'}-{number}"
        place.mkdir()
        judged = trial.run(loaded, place, trial.STUB, defect)
        words = {verdict.check: verdict for verdict in judged.verdicts}
        if words["trial.on_time"].word is not Word.INVALID:
            break
    return words


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """All trials, two side by side: counts and orders are judged, and bounds are far over what that costs."""
    folder = tmp_path_factory.mktemp("defects_live")
    with ThreadPoolExecutor(2) as pool:
        made = {key: pool.submit(drive, folder, *key) for key in TRIALS}
        return {key: future.result() for key, future in made.items()}


@pytest.mark.parametrize("check", FAILS)
def test_the_healthy_stub_passes(driven, check):
    verdicts = driven[profile_of_check(check).stem, None]
    assert [v.sentence for v in verdicts.values() if v.word is not Word.PASS] == []
    assert verdicts[check].word is Word.PASS


@pytest.mark.parametrize(("check", "defect"), FAILS.items())
def test_its_defect_fails_it(driven, check, defect):
    verdicts = driven[profile_of_check(check).stem, defect]
    verdict = verdicts[check]
    assert verdict.word is Word.FAIL, [v.sentence for v in verdicts.values() if v.word is not Word.PASS]
    assert verdict.witnesses or check == "trial.leak_free"
