"""What several test files share."""

from __future__ import annotations

import copy
import gc
import os
import signal
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from harness.profile.model import Profile
from harness.pytest_plugin import beside_others

# The same examples on every run, and no clock: a busy machine is no reason to fail. To look further afield:
# pytest --hypothesis-profile explore
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("explore"), derandomize=True)
settings.load_profile("same")

ROOT = Path(__file__).resolve().parents[1]

WORKED_EXAMPLE: dict[str, Any] = {
    "name": "worked-example",
    "duration": "120s",
    "phases": {"calm": ["0s", "30s"], "burst": ["30s", "70s"], "recovery": ["70s", "120s"]},
    "patience": "2s",
    "patience_until": "start",
    "service": {"workers": 8, "service_time": "200ms", "admission": {"policy": "shared_fifo", "queue": 200}},
    "tenants": {
        "A": {"rate": "8/s"},
        "B": {"rate": "8/s"},
        "C": {"rate": "8/s"},
        "D": {
            "rate": ["8/s", {"from": "30s", "to": "70s", "rate": "40/s"}],
            "replans": {"calls": 2, "after": "500ms", "rounds": 3},
        },
    },
    "ordinary": ["A", "B", "C"],
}

FAIR = {"policy": "fair_queues", "queue_per_tenant": 50}
CAP = {"policy": "tenant_cap", "queue": 200, "cap": 4}


def with_values(document: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A copy with values set at dotted paths."""
    document = copy.deepcopy(document)
    for path, value in values.items():
        *parents, last = path.split(".")
        place = document
        for parent in parents:
            place = place[parent]
        place[last] = value
    return document


@pytest.fixture
def worked_example():
    """worked_example(**{dotted.path: value}) -> Profile"""

    def make(values: dict[str, Any] | None = None) -> Profile:
        return Profile.model_validate(with_values(WORKED_EXAMPLE, values or {}))

    return make


@pytest.fixture
def overload(capsys, tmp_path, monkeypatch):
    """overload("watch", "--json") -> exit code, standard output, standard error; in a folder of its own."""
    from harness.cli import main  # not before a test asks for it: most do not

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def command(*args):
        with pytest.raises(SystemExit) as exit_:
            main([str(arg) for arg in args])
        out = capsys.readouterr()
        assert "Traceback" not in out.err
        return exit_.value.code, out.out, out.err

    return command


TIMED, UNTIMED, ANY = 0, 5, 19
"""How much nicer a worker is than it was begun: one whose tests measure time, one that drives what is real but measures
none, any other."""
BEGUN = os.nice(0)


@pytest.fixture(autouse=True)
def _give_way(request, tmp_path_factory):
    """A worker steps back for those whose tests measure time; there is no way forward. What measures latency has no
    live test beside it (tests/live/driving.py)."""
    live = request.node.get_closest_marker("live")
    untimed = request.node.get_closest_marker("untimed") is not None
    if live and getattr(request.config.option, "loadgroup", False):
        assert "@" in request.node.nodeid, "live tests are not grouped: they would measure each other"
    if "PYTEST_XDIST_WORKER" in os.environ:
        nice = ANY if not live else UNTIMED if untimed else TIMED
        os.nice(max(0, BEGUN + nice - os.nice(0)))
    with beside_others(lock_of(tmp_path_factory), alone=False) if untimed else nullcontext():
        yield


def lock_of(tmp_path_factory) -> Path:
    """That of `overload_case` and `overload_run`, for all workers of one run (harness/pytest_plugin.py)."""
    return tmp_path_factory.getbasetemp().parent / "overload.lock"


def pytest_collection_finish():
    """What was imported and collected stays: a collection of garbage need not look through it again."""
    gc.collect()
    gc.freeze()


def pytest_configure():
    """A shell has what it runs in the background ignore Ctrl-C, and every child inherits that: those that are sent one
    here would never end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this very hook
def pytest_collection_modifyitems(items):
    """Under `--dist loadgroup` live tests that measure time run one after another, on one worker; those that measure
    none run one after another on another worker (docs/decisions/0003)."""
    for item in items:
        if item.get_closest_marker("live") or item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.xdist_group("untimed" if item.get_closest_marker("untimed") else "live"))
