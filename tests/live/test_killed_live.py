"""Processes that are killed before anything was sent: that, too, is in the record, and no input is to blame."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from benchmarks.processes import WORKER, by_kind, gone_within, tree_of
from harness.target.driver_process import LiveProcess, Workers
from tests.live.awkward import OK, always, manifest_of, serving

pytestmark = pytest.mark.live


def first_worker(driver):
    """As soon as it is there: it has not joined, for that takes a second."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for one in by_kind(tree_of(driver.pid)).get(WORKER, []):
            return one
        time.sleep(0.01)
    raise AssertionError("no worker was started")


def test_a_worker_that_is_killed_before_it_joins_is_lost_and_nobody_waits_for_it(tmp_path):
    with serving(always(OK)) as server:
        document = manifest_of({"duration": "60s", "tenants": {"A": {"rate": "40/s"}}}, server.url)
        (tmp_path / "manifest.json").write_text(json.dumps(document))
        begun = time.monotonic()
        with LiveProcess(tmp_path, workers=Workers(here=1, join_within_s=600)) as driver:
            os.kill(first_worker(driver).pid, signal.SIGKILL)
            tree = tree_of(driver.pid)
            driver.ready()
            driver.begin(time.monotonic_ns() + 100_000_000)
            *_, done = driver.events()
    assert server.seen == []
    assert time.monotonic() - begun < 300
    assert (done["reason"], done["calls"]) == ("lost worker worker-1", 0)
    ((lost),) = done["workers"]["lost"]
    assert (lost["name"], lost["why"]) == ("worker-1", "its process was killed by signal 9")
    assert gone_within(tree, 20) == []
