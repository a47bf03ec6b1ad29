"""Calls of agent runs by way of a target's own Python driver: each in a greenlet, so that none holds another up.

What a driver raises, or answers wrongly, ends its call `failed`, with a reason. Hanging a call up kills its greenlet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import Any

import gevent

from harness.ledger.call import Call
from harness.ledger.outcomes import FAILED, SERVED
from harness.target.driver import Caller, TargetDriver, Told, problem_of, reason_of
from harness.target.runs import CANCEL, OPEN_RUN
from harness.target.tokens import Redactor

WRONG_ANSWER = "driver_answered_wrongly"
MOST_TEXT = 100

Ended = Callable[[Call, str, int], None]
"""(call, outcome, now_ns absolute)"""


class _Running:
    """What `hang_up` needs of whatever carries a call."""

    __slots__ = ("greenlet",)

    def __init__(self, greenlet: Any) -> None:
        self.greenlet = greenlet

    def detach(self) -> None:
        self.greenlet.kill(block=False)


class DriverCalls:
    """Of one tenant."""

    __slots__ = ("_driver", "_ended", "_redactor", "_tenant", "_token")

    def __init__(self, driver: TargetDriver, tenant: str, token: str | None, redactor: Redactor, ended: Ended) -> None:
        self._driver = driver
        self._tenant = tenant
        self._token = token
        self._redactor = redactor
        self._ended = ended

    def send(self, call: Call, asked: Mapping[str, Any]) -> None:
        """Begins at once; it ends through `ended`. A call that was queued before is read back."""
        call.driver = _Running(gevent.spawn(self._run, call, asked))

    def _run(self, call: Call, asked: Mapping[str, Any]) -> None:
        try:
            told: Told | None = self._asked(call, asked)
            problem = problem_of(told)
        except Exception as error:
            told, problem = None, reason_of(error)
        else:
            problem = WRONG_ANSWER if problem is not None else None
        call.driver = None
        self._ended(call, self._understood(call, told if problem is None else None, problem), monotonic_ns())

    def _asked(self, call: Call, asked: Mapping[str, Any]) -> Told:
        caller = Caller(self._tenant, self._token, call.id, f"{call.id}.{call.attempt}", call.round)
        run, driver = call.run_id or "", self._driver
        if call.action == OPEN_RUN:
            return driver.open_run(caller, asked)
        if call.action == CANCEL:
            return driver.cancel(caller, run)
        return driver.read_back(caller, run, asked) if call.polls else driver.submit(caller, run, asked)

    def _understood(self, call: Call, told: Told | None, problem: str | None) -> str:
        if told is None:
            call.reason = problem
            return FAILED
        call.status = told.status
        call.reason, call.retry_after = self._kept(told.reason), self._kept(told.retry_after)
        if 0 <= told.queue_wait_ms < 1e10:
            call.queue_wait_ns = int(told.queue_wait_ms * 1e6 + 0.5)
        if call.action == OPEN_RUN and told.outcome == SERVED:
            run = told.run or ""
            call.answer = {"run": run} if run == self._redactor.masked(run, len(run)) else {}
        return told.outcome

    def _kept(self, text: str | None) -> str | None:
        if text is None:
            return None
        return "".join(char if " " <= char <= "~" else "?" for char in self._redactor.masked(text, MOST_TEXT))
