"""Both wakers on gevent's own loop, in a process of their own: importing gevent's hub is for children only."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.live

SCRIPT = """
import json, sys, time
import gevent, gevent.event
from harness.live import pacing

def broke(error):
    raise SystemExit(repr(error))

scheduler = pacing.Scheduler(gevent.get_hub().loop, broke, getattr(pacing, sys.argv[1]))
begin = time.monotonic_ns() + 5_000_000
late, done = [], gevent.event.Event()

def wake(when, now):
    late.append(time.monotonic_ns() - when)
    if len(late) == 51:
        done.set()

for i in range(50):
    scheduler.at(begin + i * 4_000_000 + 123_456, wake)
scheduler.at(time.monotonic_ns() - 1_000_000, wake)  # one that has passed already
done.wait(20)
scheduler.close()
print(json.dumps(late))
"""


@pytest.mark.parametrize("waker", ["TimerfdWaker", "SpinWaker"])
def test_wakes_never_early_and_mostly_on_time(waker):
    if waker == "TimerfdWaker" and not sys.platform.startswith("linux"):
        pytest.skip("timerfd is Linux's")

    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, waker], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    late = sorted(json.loads(ended.stdout))
    assert len(late) == 51
    assert late[0] >= 0, "woken early"
    assert late[25] < 1_000_000, "no better than a loop that sleeps in whole milliseconds"
