"""Whether a Python driver keeps to harness/target/driver.py: run it against the service, or in a test of your own.

    from harness.target.conformance import broken
    assert broken(driver, url, token) == []

It sends a handful of requests for one tenant: opens two runs, submits a batch of one harmless step to each, reads one
back, cancels the other. Each rule that does not hold is a sentence; nothing is raised, whatever a driver does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.ledger.outcomes import FAILED, QUEUED, SERVED
from harness.target.driver import OPTIONAL, Caller, TargetDriver, Told, problem_of

MOST_READS = 50
BETWEEN_READS_S = 0.1
SLOW_S = 30.0
CLOCKS_NS = 60_000_000_000
"""How far the service's clock may be off before its rows are taken for old ones."""
NOBODY = "no-such-run-" + "0" * 12
WISH: Mapping[str, Any] = {"traffic_class": "autonomous", "task_class": "conformance", "deadline_ms": 30_000}


@dataclass(frozen=True, slots=True)
class Broken:
    """method: of the driver. rule: what it must do, and what it did."""

    method: str
    rule: str


def batch_of_one(dependency: str, name: str = "b0") -> dict[str, Any]:
    """One read of a dependency."""
    step = {"step": f"{name}.0", "dependency": dependency, "operation": "read", "tool": "conformance"}
    return {"batch": name, "round": 0, "wait": True, "steps": [step]}


def broken(
    driver: TargetDriver,
    token: str | None,
    tenant: str = "A",
    dependency: str = "customer",
    sleep: Callable[[float], None] = time.sleep,
) -> list[Broken]:
    """Every rule that this driver breaks. token: of the tenant. dependency: what the step of the batches calls."""
    return _Examined(driver, token, tenant, dependency, sleep).all()


class _Examined:
    def __init__(
        self, driver: TargetDriver, token: str | None, tenant: str, dependency: str, sleep: Callable[[float], None]
    ) -> None:
        self._driver = driver
        self._token = token
        self._tenant = tenant
        self._dependency = dependency
        self._sleep = sleep
        self._calls = 0
        self._found: list[Broken] = []

    def all(self) -> list[Broken]:
        since_ns = time.time_ns()
        first, second = self._opened(), self._opened()
        if first is not None and first == second:
            self._breaks("open_run", "must open a new run each time; it gave the same id twice")
        if first is not None:
            self._works(first)
        if second is not None:
            self._cancels(second)
        self._nobody()
        self._optional(since_ns)
        return self._found

    def _caller(self) -> Caller:
        self._calls += 1
        call = f"0.{self._calls - 1}"
        return Caller(self._tenant, self._token, call, f"{call}.1")

    def _breaks(self, method: str, rule: str) -> None:
        self._found.append(Broken(method, rule))

    def _asked(self, method: str, *arguments: Any) -> Told | None:
        """None: it raised, or answered with what is no answer; that is told."""
        begun = time.monotonic()
        try:
            told = getattr(self._driver, method)(*arguments)
        except Exception as error:
            self._breaks(method, f"must not raise where the service answers; it raised {type(error).__name__}")
            return None
        if time.monotonic() - begun > SLOW_S:
            self._breaks(method, f"must give up on its own; it took {time.monotonic() - begun:.0f} s")
        problem = problem_of(told)
        if problem is not None:
            self._breaks(method, f"must return a Told; it {problem}")
            return None
        answer: Told = told
        if self._token is not None and self._token in f"{answer.reason} {answer.run} {answer.retry_after}":
            self._breaks(method, "must not give the token back in what it tells")
        return answer

    def _opened(self) -> str | None:
        told = self._asked("open_run", self._caller(), dict(WISH))
        if told is None:
            return None
        if told.outcome == QUEUED:
            self._breaks("open_run", "must not end queued: it opens a run, or says why it is refused")
        elif told.outcome == SERVED and not told.run:
            self._breaks("open_run", "must give the run's id with `served`")
        elif told.outcome != SERVED:
            self._breaks("open_run", f"must open a run for the rest to be seen; it was {told.outcome}: {told.reason}")
        return told.run if told.outcome == SERVED else None

    def _works(self, run: str) -> None:
        """A batch comes to an end, which is told the same again."""
        batch = batch_of_one(self._dependency)
        told = self._asked("submit", self._caller(), run, batch)
        if told is None:
            return
        for _ in range(MOST_READS):
            if told.outcome != QUEUED:
                break
            self._sleep(BETWEEN_READS_S)
            again = self._asked("read_back", self._caller(), run, batch)
            if again is None:
                return
            told = again
        if told.outcome == QUEUED:
            self._breaks("read_back", f"must say in the end how a batch ended; it was queued {MOST_READS} times")
            return
        back = self._asked("read_back", self._caller(), run, batch)
        if back is not None and back.outcome not in (told.outcome, FAILED):
            self._breaks("read_back", f"must tell a batch's end as it was told: {told.outcome}, then {back.outcome}")

    def _cancels(self, run: str) -> None:
        told = self._asked("cancel", self._caller(), run)
        if told is None:
            return
        if told.outcome in (QUEUED, FAILED):
            self._breaks("cancel", f"must cancel a run that is open; it was {told.outcome}: {told.reason}")
        after = self._asked("submit", self._caller(), run, batch_of_one(self._dependency, "b1"))
        if after is not None and after.outcome in (SERVED, QUEUED):
            self._breaks("cancel", f"must end the run; a batch that was submitted after it was {after.outcome}")

    def _nobody(self) -> None:
        """A run that is not there is not served, and no reason to raise."""
        told = self._asked("submit", self._caller(), NOBODY, batch_of_one(self._dependency))
        if told is not None and told.outcome in (SERVED, QUEUED):
            self._breaks("submit", f"must not be {told.outcome} for a run that nobody opened")

    def _optional(self, since_ns: int) -> None:
        for method in OPTIONAL:
            if not hasattr(self._driver, method):
                self._breaks(method, f"must be there, or be None: `{method} = None`")
        if getattr(self._driver, "inject", None) is not None:
            try:
                self._driver.inject([])  # type: ignore[misc]
            except Exception as error:
                self._breaks("inject", f"must take all faults away for []; it raised {type(error).__name__}")
        if getattr(self._driver, "evidence", None) is not None:
            self._evidence(since_ns)

    def _evidence(self, since_ns: int) -> None:
        try:
            rows = list(self._driver.evidence(since_ns))  # type: ignore[misc]
        except Exception as error:
            self._breaks("evidence", f"must give its rows; it raised {type(error).__name__}")
            return
        for row in rows:
            if not isinstance(row, Mapping):
                self._breaks("evidence", f"must give mappings; one is {type(row).__name__}")
                return
            at_ns = row.get("time_unix_ns")
            if not isinstance(at_ns, int) or isinstance(at_ns, bool):
                self._breaks("evidence", "must give `time_unix_ns` with each row, a whole number")
                return
            if at_ns < since_ns - CLOCKS_NS:
                self._breaks("evidence", "must leave out rows from before the instant that it is given")
                return
        ours = [row for row in rows if str(row.get("attempt", "")).startswith("0.")]
        if not ours:
            self._breaks("evidence", "must hold the calls just made, with what came in Overload-Attempt as `attempt`")
