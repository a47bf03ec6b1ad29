"""The healthy stub, stopped and continued at random moments as a busy machine would: no check may say FAIL.

Such a trial may well be INVALID, because the harness was late; but a check's own word, too, is PASS or INCONCLUSIVE:
what only delays is not what it is there for. Its defects, under the same pauses, it still finds.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from harness import trial, verify
from harness.checks.verdict import Word
from harness.ledger.stalls import stalls_of
from harness.matrix import profile_of_check
from harness.target.stub import StubProcess
from tests.live.driving import loaded, once

pytestmark = pytest.mark.live

PAUSE_S = 0.06
PAUSES = 5
PATHS = {case.name: case.path for case in verify.CASES}
COUNTED = ("v01", "v05", "v06", "v07", "v08", "v09", "v10", "coalesced", "cancelled", "adaptive", "decisions")
"""Situations whose checks count, and hold instants against bounds; the others compare latency."""
SENSITIVE_S = {"cancelled": (0.1, 0.5, 0.9, 1.3, 1.7, 2.1)}
"""When what a few milliseconds decide on begins; the others are paused anywhere."""
DEFECTS = {
    "v06.expiry": "expiry_checked_on_enqueue",
    "v08.circuit": "circuit_lets_all_through",
    "v10.outage_recovery": "backlog_first_in_first_out",
    "capacity.cancelled": "fan_out_after_cancel",
    "capacity.coalesced": "coalesced_across_tenants",
}


class PausedStub(StubProcess):
    """Is paused from its epoch on. moments: when [s since the epoch], told by the thread that drives the trial."""

    moments = threading.local()

    def set_epoch(self, monotonic_ns):
        super().set_epoch(monotonic_ns)
        self.pauses = threading.Thread(target=self.pause, args=(monotonic_ns / 1e9, self.moments.now), daemon=True)
        self.pauses.start()

    def pause(self, epoch_s, moments):
        for moment in moments:
            time.sleep(max(0.0, epoch_s + moment - time.monotonic()))
            try:
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(PAUSE_S)
            finally:
                os.kill(self.pid, signal.SIGCONT)

    def stop(self):
        if hasattr(self, "pauses"):
            self.pauses.join()
        super().stop()


def moments(name, duration_ns):
    rng = Random(name)
    begins = SENSITIVE_S.get(name)
    if begins is not None:
        return [begin + rng.uniform(0.0, 0.05) for begin in begins]
    return sorted(rng.uniform(0.0, duration_ns / 1e9) for _ in range(PAUSES))


def drive(path, folder, defect=None):
    made = loaded(path)
    PausedStub.moments.now = moments(path.stem, made.profile.duration)
    return once(made, folder, defect)


def drive_all(jobs, folder):
    """Two side by side."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(verify.SIDE_BY_SIDE) as pool:
        patch.setattr(trial, "StubProcess", PausedStub)
        made = {key: pool.submit(drive, path, folder, defect) for key, (path, defect) in jobs.items()}
        return {key: future.result() for key, future in made.items()}


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """(situation, None) or (check, defect) -> what was judged."""
    jobs = {(name, None): (PATHS[name], None) for name in COUNTED}
    jobs |= {(check, defect): (profile_of_check(check), defect) for check, defect in DEFECTS.items()}
    return drive_all(jobs, tmp_path_factory.mktemp("paused"))


@pytest.mark.parametrize("name", COUNTED)
def test_a_pause_makes_no_check_fail_the_healthy_stub(driven, name):
    judged = driven[name, None]
    assert [(v.check, v.sentence) for v in judged.verdicts if v.word is Word.FAIL] == []


@pytest.mark.parametrize("name", COUNTED)
def test_its_pauses_are_written_down(driven, name):
    stalls = stalls_of(driven[name, None].trial)
    long = (stalls.to_ns - stalls.from_ns >= PAUSE_S * 0.9e9).sum()
    assert long >= 2  # pauses may run into one another, or come when the trial is over


@pytest.mark.parametrize(("check", "defect"), DEFECTS.items())
def test_a_defect_is_found_all_the_same(driven, check, defect):
    verdicts = {verdict.check: verdict for verdict in driven[check, defect].verdicts}
    assert verdicts[check].word is Word.FAIL, verdicts[check].sentence


@pytest.mark.slow
def test_latency_that_pauses_moved_fails_no_trial(tmp_path):
    """Where latency is compared, a pause may move it: the trial's word is then that it is not to be trusted."""
    names = [name for name in PATHS if name not in COUNTED]
    judged = drive_all({name: (PATHS[name], None) for name in names}, tmp_path)
    assert [name for name in names if judged[name].word is Word.FAIL] == []
