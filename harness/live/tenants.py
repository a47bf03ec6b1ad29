"""One tenant of a live trial: its caller model on the shared schedule, its connections, its end of every call.

Open loop: a call is sent when it is due, however slow the target is. Each call ends in exactly one terminal outcome and
is reported once, to the trial. Instants of a call count from the epoch; the schedule's are absolute.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import orjson

from harness.ledger.call import Call
from harness.ledger.outcomes import ABANDONED, DROPPED, FAILED, OPEN, QUEUED
from harness.live.answer_parser import AnswerParser
from harness.live.answers import judge, judge_run_call
from harness.live.connections import Network, Pool
from harness.live.driver_calls import DriverCalls
from harness.live.pacing import Timeouts
from harness.live.progress import Tally
from harness.live.requests import Requests, Unsendable
from harness.live.target_requests import TargetRequests
from harness.target.rails import IN_FLIGHT
from harness.workload.callers import NEVER
from harness.workload.source import CallSource

if TYPE_CHECKING:
    from harness.live.trial import LiveTrial

STILL_QUEUED = "still_queued"
"""Reason of a batch that was asked for as often as may be, and had not ended."""


class LiveTenant:
    """patience: calls that hang up once it is over; None: the service is told of it, or it is endless. tally: what its
    calls count in; others may count in the same."""

    __slots__ = (
        "_asks_deadline", "_by_driver", "_planned_ns", "_pool", "_reported", "_requests", "_stopped", "_trial",
        "caller", "in_flight", "name", "patience", "tally",
    )  # fmt: skip

    def __init__(
        self,
        trial: LiveTrial,
        caller: CallSource,
        network: Network,
        requests: Requests | TargetRequests,
        patience: Timeouts[Call] | None,
        asks_deadline: bool,
        tally: Tally,
    ) -> None:
        self._by_driver: DriverCalls | None = None
        self._trial = trial
        self.caller = caller
        self.name = caller.tenant
        self._pool = Pool(network)
        self._requests = requests
        self.patience = patience
        self._asks_deadline = asks_deadline
        self._planned_ns = NEVER
        self._stopped = False
        self._reported = False
        # By sequence: what is left at the end is reported in the order in which it was sent.
        self.in_flight: dict[int, Call] = {}
        self.tally = tally

    @property
    def finished(self) -> bool:
        """Nothing is planned, and nothing is in flight that could lead to more."""
        return not self.in_flight and (self._stopped or self.caller.next_ns == NEVER)

    def use_driver(self, driver: DriverCalls) -> None:
        """Calls of agent runs go by way of the target's own driver."""
        self._by_driver = driver

    def begin(self) -> None:
        """The epoch is known."""
        self._plan()
        self._see_whether_finished()

    def stop(self) -> None:
        """Sends nothing more. What is in flight may still end by itself."""
        self._stopped = True
        self._see_whether_finished()

    def leave_open(self, reason: str) -> None:
        """Whatever is in flight ends `open`, its connection closed."""
        self._stopped = True
        for call in list(self.in_flight.values()):
            self.hang_up(call, OPEN, reason)
        self._see_whether_finished()

    def _see_whether_finished(self) -> None:
        if not self.in_flight and not self._reported and self.finished:
            self._reported = True
            self._trial.tenant_finished(self)

    def _plan(self) -> None:
        due = self.caller.next_ns
        if due < self._planned_ns:
            self._planned_ns = due
            self._trial.scheduler.at(self._trial.epoch_ns + due, self._wake)

    def _wake(self, when_ns: int, now_ns: int) -> None:
        trial = self._trial
        try:
            if self._stopped or when_ns - trial.epoch_ns != self._planned_ns:
                return  # planned anew, earlier, in the meantime
            self._planned_ns = NEVER
            # One at a time: a recording that turns out to be broken must not take those before it along.
            caller, by_ns = self.caller, now_ns - trial.epoch_ns
            while not self._stopped:
                if caller.next_ns > by_ns:
                    break
                self._start(caller.take())
            self._plan()
            self._see_whether_finished()
        except Exception as error:
            trial.broke(error)
            self.stop()

    def _start(self, call: Call) -> None:
        if call.attempt == 1:
            self.tally.due += 1
            if call.round:
                self.tally.replans += 1
        if call.outcome is not None:
            self.tally.held_back += 1
            if call.attempt > 1:
                self.tally.in_flight -= 1
            self._trial.record(call)
            return
        trial = self._trial
        self.in_flight[call.seq] = call
        trial.in_flight += 1
        if call.attempt == 1:
            self.tally.in_flight += 1
        now = monotonic_ns()
        call.sent_ns = now - trial.epoch_ns
        if trial.in_flight > trial.max_in_flight:
            self._end(call, DROPPED, IN_FLIGHT, now)
            return
        try:
            self._send(call, now)
        except Unsendable as error:
            self._end(call, DROPPED, str(error), now)
        except Exception as error:
            self._trial.broke(error)
            # With a connection, bytes may have left: then it is not one that was never sent.
            self.hang_up(call, DROPPED if call.driver is None else FAILED, "driver_error")
            return
        self._trial.lateness.add(call.sent_ns - (call.due_ns if call.attempt == 1 else call.again_ns))
        if self.patience is not None and call.outcome is None:
            self.patience.add(call, now)

    def _send(self, call: Call, now_ns: int) -> None:
        if self._by_driver is not None and call.action is not None:
            self._by_driver.send(call, _asked(call))
        else:
            self._pool.send(call, self._requests.of(call), now_ns)

    def answered(self, call: Call, answer: AnswerParser, now_ns: int) -> None:
        """An answer has come. Nothing else may use its connection until this returns."""
        try:
            body = answer.body
            said = b"".join(body) if body is not None else None
            described = self._trial.described
            if described is not None:
                judged, status, headers = described.answers, answer.status, answer.headers
                if call.action is None:
                    outcome = judged.judge(call, status, headers, said, self._asks_deadline)
                else:
                    outcome = judged.judge_run(call, status, headers, said, _asked(call))
                    if outcome == QUEUED:
                        self._ask_later(call, now_ns)
                        return
            elif call.action is not None:
                outcome = judge_run_call(call, answer.status, said, answer.retry_after)
            else:
                timing, retry_after = answer.server_timing, answer.retry_after
                outcome = judge(call, answer.status, said, timing, retry_after, self._asks_deadline)
        except Exception as error:
            self._trial.broke(error)
            self._end(call, FAILED, "driver_error", now_ns)
            return
        self._end(call, outcome, call.reason, now_ns, answer.body_bytes)

    def told(self, call: Call, outcome: str, now_ns: int) -> None:
        """The target's driver has come back."""
        if call.outcome is not None:
            return
        try:
            if outcome == QUEUED:
                self._ask_later(call, now_ns)
            else:
                self._end(call, outcome, call.reason, now_ns)
        except Exception as error:
            self._trial.broke(error)
            self.stop()

    def _ask_later(self, call: Call, now_ns: int) -> None:
        """The service has queued the batch: how it stands is asked later, which is no new call."""
        every_ns, most = self._trial.poll
        if call.polls >= most:
            self._end(call, FAILED, STILL_QUEUED, now_ns)
        else:
            self._trial.scheduler.at(now_ns + every_ns, lambda when_ns, now_ns: self._ask_again(call, now_ns))

    def _ask_again(self, call: Call, now_ns: int) -> None:
        if call.outcome is not None:
            return
        call.polls += 1
        try:
            if self._by_driver is not None:
                self._by_driver.send(call, _asked(call))
            else:
                assert isinstance(self._requests, TargetRequests)
                self._pool.send(call, self._requests.poll_of(call), now_ns)
        except Unsendable as error:
            self._end(call, FAILED, str(error), now_ns)
        except Exception as error:
            self._trial.broke(error)
            self.hang_up(call, FAILED, "driver_error")

    def out_of_patience(self, call: Call) -> None:
        self.hang_up(call, ABANDONED, "patience")

    def hang_up(self, call: Call, outcome: str, reason: str) -> None:
        connection: Any = call.driver
        if connection is not None:
            connection.detach()
        self._end(call, outcome, reason, monotonic_ns())

    def ended(self, call: Call, outcome: str, reason: str, now_ns: int) -> None:
        """It ended without an answer."""
        self._end(call, outcome, reason, now_ns)

    def _end(self, call: Call, outcome: str, reason: str | None, now_ns: int, size: int = 0) -> None:
        if self.in_flight.pop(call.seq, None) is None:
            return
        self._trial.in_flight -= 1
        call.outcome, call.reason, call.done_ns = outcome, reason, now_ns - self._trial.epoch_ns
        if not self._stopped:
            self.caller.on_outcome(call)
            self._plan()
        if not call.retried:
            self.tally.in_flight -= 1
            self.tally.end(outcome, call.queue_wait_ns)
        self._trial.record(call, size)
        self._see_whether_finished()


def _asked(call: Call) -> Mapping[str, Any]:
    """What a call of an agent run asks for."""
    asked: dict[str, Any] = orjson.loads(call.body) if call.body else {}
    return asked
