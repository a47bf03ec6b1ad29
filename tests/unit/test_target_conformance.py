"""The conformance test of drivers: a right one keeps every rule, a wrong one is caught by the rule that it breaks."""

from __future__ import annotations

import time

import pytest

from harness.target.conformance import broken
from harness.target.driver import Told

TOKEN = "s3cret"


class Right:
    """In memory: a batch is queued first, and served when it is read back for the second time."""

    def __init__(self):
        self.runs = {}
        self.rows = []

    def _log(self, caller, outcome):
        self.rows.append({"time_unix_ns": time.time_ns(), "attempt": caller.attempt, "outcome": outcome})

    def open_run(self, caller, wish):
        run = f"r{len(self.runs)}"
        self.runs[run] = {}
        self._log(caller, "served")
        return Told("served", run=run, status=201)

    def submit(self, caller, run, batch):
        if self.runs.get(run) is None:
            return Told("failed", "no_such_run", status=404)
        self.runs[run][batch["batch"]] = 0
        self._log(caller, "queued")
        return Told("queued", status=202)

    def read_back(self, caller, run, batch):
        self.runs[run][batch["batch"]] += 1
        return Told("served" if self.runs[run][batch["batch"]] >= 2 else "queued", status=200, queue_wait_ms=3)

    def cancel(self, caller, run):
        self.runs[run] = None
        return Told("cancelled", status=200)

    def inject(self, faults):
        assert list(faults) == []

    def evidence(self, since_unix_ns):
        return [row for row in self.rows if row["time_unix_ns"] >= since_unix_ns]


def raises(*_):
    raise KeyError(TOKEN)


def changing(outcomes):
    left = list(outcomes)
    return lambda *_: Told(left.pop(0) if len(left) > 1 else left[0])


def rows(*made):
    return lambda since_ns: made


NOW = 1 << 62
WRONG = {
    "one run for all": ({"open_run": lambda *_: Told("served", run="r")}, "open_run", "the same id twice"),
    "a run without an id": ({"open_run": lambda *_: Told("served")}, "open_run", "must give the run's id"),
    "opened later": ({"open_run": lambda *_: Told("queued")}, "open_run", "must not end queued"),
    "never opened": ({"open_run": lambda *_: Told("throttled", "full")}, "open_run", "it was throttled: full"),
    "raises": ({"open_run": raises}, "open_run", "it raised KeyError"),
    "answers a dict": ({"submit": lambda *_: {"outcome": "served"}}, "submit", "must return a Told; it answered dict"),
    "an outcome of its own": ({"submit": lambda *_: Told("ok")}, "submit", "it answered the outcome 'ok'"),
    "a wait that is a text": ({"submit": lambda *_: Told("served", queue_wait_ms="3")}, "submit", "no number"),
    "always queued": ({"read_back": lambda *_: Told("queued")}, "read_back", "it was queued 50 times"),
    "another end each time": ({"read_back": changing(["served", "expired"])}, "read_back", "served, then expired"),
    "gives the token back": ({"read_back": lambda c, *_: Told("served", c.token)}, "read_back", "the token back"),
    "a cancel that does nothing": ({"cancel": lambda *_: Told("cancelled")}, "cancel", "submitted after it was queued"),
    "a cancel that fails": ({"cancel": lambda *_: Told("failed", "405")}, "cancel", "it was failed: 405"),
    "serves what nobody opened": ({"submit": lambda *_: Told("served")}, "submit", "for a run that nobody opened"),
    "faults that stay": ({"inject": raises}, "inject", "it raised KeyError"),
    "a log that raises": ({"evidence": raises}, "evidence", "it raised KeyError"),
    "a log of texts": ({"evidence": rows("x")}, "evidence", "one is str"),
    "a log without times": ({"evidence": rows({"attempt": "0.0.1"})}, "evidence", "`time_unix_ns` with each row"),
    "the whole log": ({"evidence": rows({"time_unix_ns": 1, "attempt": "0.0.1"})}, "evidence", "from before"),
    "a log of others": ({"evidence": rows({"time_unix_ns": NOW, "attempt": "x"})}, "evidence", "calls just made"),
}


def sentences(driver):
    return [(one.method, one.rule) for one in broken(driver, TOKEN, sleep=lambda s: None)]


def test_a_right_driver_keeps_every_rule():
    assert sentences(Right()) == []


def test_a_driver_without_faults_and_without_a_log_is_a_right_one():
    driver = Right()
    driver.inject = driver.evidence = None
    assert sentences(driver) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_driver_is_caught(name):
    methods, method, said = WRONG[name]
    driver = Right()
    for replaced, by in methods.items():
        setattr(driver, replaced, by)
    found = sentences(driver)
    assert [rule for where, rule in found if where == method and said in rule], found
    assert not any(TOKEN in rule for _, rule in found)
