"""What has ended is free at once: the stub lets a full garbage collection run hardly ever, so a cycle is as good as a
leak. A soak of an hour showed seven MiB of them."""

from __future__ import annotations

import asyncio
import gc
from contextlib import contextmanager

import pytest

from benchmarks.judge.cells import loaded
from harness.matrix import trial_in_virtual_time
from stub_service.admission.service import SharedService
from stub_service.capacity.runs import LiveStep
from stub_service.capacity.signals import signal_of
from stub_service.config import AdmissionConfig, ServiceTimeConfig, SharedServiceConfig
from stub_service.live import Accepted, Asked, LiveService
from stub_service.metrics import Metrics
from stub_service.timers import Timers

MS = 1_000_000


@contextmanager
def without_collector():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def left(kind):
    return sum(type(one) is kind for one in gc.get_objects())


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("signal", ["go", None])
def test_a_wait_leaves_nothing_however_it_ends(signal, early):
    """early: how often the loop's timer comes before the deadline."""
    clock = iter([0, *[5] * early, *[10] * 9])

    async def waits():
        loop = asyncio.get_running_loop()
        gc.collect()
        future = loop.create_future()
        if signal:
            loop.call_soon(future.set_result, signal)
        said = await signal_of(future, 10, lambda: next(clock), "too_late")
        del future
        return said, gc.collect()

    with without_collector():
        assert asyncio.run(waits()) == (signal or "too_late", 0)


@pytest.mark.parametrize("profile", ["v06", "v07"])
def test_no_step_outlives_its_end(profile, tmp_path):
    with without_collector():
        trial_in_virtual_time(tmp_path, loaded(profile).document)
        assert left(LiveStep) == 0


def test_no_call_outlives_its_end():
    """One is served, one hangs up, one waits for too long, one is turned away, one is there when the stub stops."""

    async def calls():
        loop = asyncio.get_running_loop()
        timers, rows = Timers(loop), []
        config = SharedServiceConfig(
            ((0, 1),), ServiceTimeConfig(mean_ns=20 * MS), AdmissionConfig("shared_fifo", queue=3)
        )
        live = LiveService(SharedService(config), timers, Metrics(), rows.append, loop)
        asked = Asked(None, None, None, None, 1.0)
        taken = [live.arrive("A", asked._replace(deadline_ns=deadline)) for deadline in (None, None, 1 * MS, None)]
        taken.append(live.arrive("A", asked))
        live.hang_up(taken[1])
        told = [await taken[0].answer, await taken[2].answer, taken[4]]
        live.stop()
        timers.close()
        assert [one.status for one in told] == [200, 504, 429]
        outcomes = [row["outcome"] for row in rows if row["outcome"] not in ("queued", "started")]
        assert sorted(outcomes) == ["cancelled", "expired", "failed", "served", "throttled"]
        del taken, told
        return left(Accepted)

    with without_collector():
        assert asyncio.run(calls()) == 0
