"""A live trial: tenants, their one schedule, and the ledger that every end of a call is written to.

Knows gevent's loop, but neither Locust (users.py) nor the process around it (__main__.py). Nothing is lost: an error of
the driver itself ends the call that it hit, with the reason `driver_error`, and is told in how the trial ended.
"""

from __future__ import annotations

import resource
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic_ns, process_time_ns
from typing import Any, Protocol

import gevent
from gevent.event import Event

from harness.errors import BadInput
from harness.ledger.call import Call
from harness.ledger.outcomes import NEVER_SENT
from harness.ledger.rows import call_row
from harness.ledger.writer import JsonLines
from harness.live.answer_parser import AnswerParser, KeepingParser
from harness.live.connections import Network
from harness.live.described import NO_CEILING, DescribedTarget
from harness.live.driver_calls import DriverCalls
from harness.live.lateness import Lateness
from harness.live.pacing import Scheduler, Timeouts
from harness.live.progress import Tally
from harness.live.requests import Requests, Target
from harness.live.target_requests import TargetRequests
from harness.live.tenants import LiveTenant
from harness.profile.demand import busiest
from harness.profile.model import Profile
from harness.target.driver import made
from harness.target.model import Poll
from harness.target.rails import AbortRule
from harness.workload.dealing import Part
from harness.workload.plan import RecordedSource, callers, no_recordings
from harness.workload.runs import RunCaller
from harness.workload.source import CallSource
from stub_service.exposition import LATE_BUCKETS_NS, MOST_LABELLED

FLUSH_NS = 250_000_000
SWEEP_NS = 1_000_000_000
MAX_CONNECTIONS = 20_000
"""Also the bound on calls in flight: ports of one loopback address run out at about 28,000."""
SPARE_DESCRIPTORS = 100
ROW_BATCH = 64

COMPLETED, INTERRUPTED, PARENT_GONE, ERROR = "completed", "interrupted", "parent_gone", "error"
ABORTED = "aborted"
"""By the abort rule of a target file: the target suffers."""
WORSE = (COMPLETED, INTERRUPTED, ABORTED, PARENT_GONE, ERROR)


class Rows(Protocol):
    """Where finished lines of the ledger go: a file, or the master of a trial that several drive."""

    def add(self, line: bytes) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


OnCall = Callable[[Call, int], None]
"""(call, bytes of the answer's body): told of each call that was to be sent, once, when it has ended."""


def connection_limit() -> int:
    """Raises the soft limit on descriptors to the hard one; says how many of them may be connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_DESCRIPTORS
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    available = most if soft == resource.RLIM_INFINITY else min(soft, wanted)
    return max(1, available - SPARE_DESCRIPTORS)


class LiveTrial:
    """`begin` once; `finished` is set when every tenant is. rows: None keeps no ledger. parts: the tenants, or parts of
    them, that this process drives (harness/workload/dealing.py); None: all of all. described: what a target file says,
    with its tokens and its rails."""

    def __init__(
        self,
        profile: Profile,
        target: Target,
        tokens: Mapping[str, str],
        rows: Path | Rows | None,
        recorded: RecordedSource = no_recordings,
        on_call: OnCall | None = None,
        parts: Mapping[str, Part] | None = None,
        caller_defect: str | None = None,
        described: DescribedTarget | None = None,
    ) -> None:
        self.described = described
        self.in_flight = 0
        self.max_in_flight = described.max_in_flight if described is not None else NO_CEILING
        self.on_abort: Callable[[], None] | None = None
        self._abort_rule = described.abort_rule(profile) if described is not None else None
        runs = described.file.runs if described is not None else None
        poll = runs.poll if runs is not None and runs.poll is not None else Poll()
        self.poll = poll.every, poll.most
        self.profile = profile
        self._tallies: dict[str, Tally] = {}
        self._rest = Tally()
        self.epoch_ns = 0
        self.reason = COMPLETED
        self.error: str | None = None
        self.lateness = Lateness()
        self.recorded_calls = 0
        self.finished = Event()
        self.on_finished: Callable[[LiveTenant], None] | None = None
        self._cpu_ns = process_time_ns()
        self.begun = False
        self._ending = False
        self._on_call = on_call
        loop = gevent.get_hub().loop
        self.scheduler = Scheduler(loop, self.broke)
        self._network = Network(
            loop, self.scheduler, target, connection_limit(), self._answered, self._ended, self.broke,
            *_reading(described),
        )  # fmt: skip
        sources = callers(profile, recorded, parts)
        if caller_defect is not None:
            from harness.workload import defects

            defects.lay(caller_defect, sources, profile)
        self.tenants = self._make_tenants(target, tokens, sources)
        self._use_driver()
        self._by_index = {tenant.caller.index: tenant for tenant in self.tenants}
        self._unfinished = len(self.tenants)
        self._rows: Rows | None = JsonLines(rows, ROW_BATCH) if isinstance(rows, Path) else rows

    def _make_tenants(
        self, target: Target, tokens: Mapping[str, str], sources: Sequence[CallSource]
    ) -> list[LiveTenant]:
        until_start = self.profile.patience_until == "start"
        waits: dict[int, Timeouts[Call]] = {}
        shown = frozenset(busiest(self.profile, MOST_LABELLED))
        tenants = []
        for caller in sources:
            # A run's own limit is the deadline of its envelope.
            runs = self.profile.tenants[caller.tenant].runs
            patience = None if runs else self.profile.patience_of(caller.tenant)
            told = patience if until_start else None
            if patience is not None and not until_start and patience not in waits:
                waits[patience] = Timeouts(self.scheduler, patience, _is_over, self._out_of_patience)
            requests = self._requests_of(caller, target, tokens, told)
            hangs_up = None if until_start or patience is None else waits[patience]
            tally = self._tallies.setdefault(caller.tenant, Tally()) if caller.tenant in shown else self._rest
            tenants.append(LiveTenant(self, caller, self._network, requests, hangs_up, told is not None, tally))
        return tenants

    def _requests_of(
        self, caller: CallSource, target: Target, tokens: Mapping[str, str], told: int | None
    ) -> Requests | TargetRequests:
        name, described = caller.tenant, self.described
        claims = self.profile.tenants[name].claims
        if described is None:
            return Requests(name, caller.index, target, tokens.get(name), told, claims)
        if isinstance(caller, RunCaller):
            caller.finishes = described.finishes
        file, token = described.file, described.tokens.get(name)
        return TargetRequests(name, caller.index, target, file, described.draws, token, told, claims)

    def _use_driver(self) -> None:
        """Agent runs of a target with a Python driver."""
        described = self.described
        if described is None or described.driver is None:
            return
        driver, redactor = made(described.driver, described.context), described.answers.redactor
        for tenant in self.tenants:
            token = described.tokens.get(tenant.name)
            tenant.use_driver(DriverCalls(driver, tenant.name, token, redactor, tenant.told))

    def begin(self, epoch_monotonic_ns: int) -> None:
        """The trial's zero, on CLOCK_MONOTONIC. Calls due before this very moment leave at once, and late."""
        if self.begun or self._ending:
            return
        self.begun = True
        self.epoch_ns = epoch_monotonic_ns
        self._cpu_ns = process_time_ns()
        self.scheduler.at(epoch_monotonic_ns + self.profile.duration + self.profile.drain, self._drained)
        self.scheduler.every(FLUSH_NS, self.flush)
        self.scheduler.every(SWEEP_NS, self._network.close_stale)
        for tenant in self.tenants:
            tenant.begin()
        if not self.tenants:
            self.finished.set()

    def interrupt(self) -> None:
        """No new call; what is in flight has the drain limit to end. A second time: at once."""
        if self._ending or not self.begun:
            self.halt(INTERRUPTED)
            return
        self._ending = True
        self._end_with(INTERRUPTED)
        self.scheduler.at(monotonic_ns() + self.profile.drain, self._drained)
        for tenant in self.tenants:
            tenant.stop()

    @property
    def ending(self) -> bool:
        """No new call is sent any more."""
        return self._ending

    def abort(self, why: str) -> None:
        """The target suffers: as `interrupt`, and `done` says why."""
        if self._ending:
            return
        self.error = why
        self.interrupt()
        self._end_with(ABORTED)
        if self.on_abort is not None:
            self.on_abort()

    def halt(self, reason: str) -> None:
        """Ends everything now: unfinished calls are `open`."""
        self._ending = True
        self._end_with(reason)
        for tenant in self.tenants:
            tenant.leave_open(reason)
        if not self.tenants:
            self.finished.set()

    def broke(self, error: BaseException) -> None:
        """An error of the driver itself. Only where it happened is told: a message could hold anything."""
        self._end_with(ERROR)
        if isinstance(error, BadInput):
            self.error = self.error or str(error)
        if self.error is None:
            frames = traceback.extract_tb(error.__traceback__)[-3:]
            where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
            self.error = f"{type(error).__name__} at {where}"

    def record(self, call: Call, size: int = 0) -> None:
        """The one place that every call passes when it has ended."""
        self.recorded_calls += 1
        if self._rows is not None:
            self._write(self._rows.add, call_row(call))
        if self._abort_rule is not None and call.sent_ns >= 0 and call.outcome not in NEVER_SENT:
            self._see_whether_it_suffers(self._abort_rule, call)
        if self._on_call is not None and call.sent_ns >= 0:
            try:
                self._on_call(call, size)
            except Exception as error:  # a listener of Locust's may raise to stop its user: there is none here
                self.broke(error)

    def _see_whether_it_suffers(self, rule: AbortRule, call: Call) -> None:
        latency_ns = call.done_ns - call.sent_ns if call.status > 0 else -1
        why = rule.ended(call.done_ns, call.tenant_index, call.outcome or "", call.status, latency_ns)
        if why is not None:
            self.abort(why)

    def flush(self) -> None:
        if self._rows is not None:
            self._write(self._rows.flush)

    def _write(self, act: Callable[..., None], *arguments: bytes) -> None:
        try:
            act(*arguments)
        except OSError as error:
            self._rows = None
            self.error = f"the ledger cannot be written: {error.strerror}"
            self.halt(ERROR)

    def close(self) -> None:
        self.flush()
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        for pool in self._network.pools:
            pool.close_idle(len(pool.idle))
        self.scheduler.close()

    def tenant_finished(self, tenant: LiveTenant) -> None:
        self._unfinished -= 1
        if self.on_finished is not None:
            self.on_finished(tenant)
        if not self._unfinished:
            self.finished.set()

    def now_ns(self) -> int:
        return max(0, monotonic_ns() - self.epoch_ns) if self.begun else 0

    def progress(self) -> dict[str, Any]:
        """What has happened so far, per tenant; of very many, those that the plan has busiest, the rest together."""
        event: dict[str, Any] = {
            "event": "progress",
            "now_ns": self.now_ns(),
            "tenants": {name: tally.counts() for name, tally in self._tallies.items()},
            "late_p99_ns": self.lateness.quantile(0.99),
            "late_ns": self.lateness.sum_ns,
            "late_counts": self.lateness.counts(LATE_BUCKETS_NS),
        }
        if len(self._tallies) < len(self.tenants):
            event["rest"] = self._rest.counts()
        return event

    def done(self) -> dict[str, Any]:
        event = {
            "event": "done",
            "reason": self.reason,
            "at_ns": self.now_ns(),
            "calls": self.recorded_calls,
            "cpu_ns": process_time_ns() - self._cpu_ns,
        }
        return event | {"error": self.error} if self.error else event

    def _end_with(self, reason: str) -> None:
        if WORSE.index(reason) > WORSE.index(self.reason):
            self.reason = reason

    def _drained(self, _: int, __: int) -> None:
        self._ending = True
        for tenant in self.tenants:
            tenant.leave_open("drain_limit")

    def _answered(self, call: Call, answer: AnswerParser, now_ns: int) -> None:
        self._by_index[call.tenant_index].answered(call, answer, now_ns)
        if now_ns >= self.scheduler.next_ns:
            self.scheduler.run()

    def _ended(self, call: Call, outcome: str, reason: str, now_ns: int) -> None:
        self._by_index[call.tenant_index].ended(call, outcome, reason, now_ns)

    def _out_of_patience(self, call: Call) -> None:
        self._by_index[call.tenant_index].out_of_patience(call)


def _reading(described: DescribedTarget | None) -> tuple[Callable[[], AnswerParser], bool]:
    """How answers are read: what a target file does not ask for is not kept."""
    if described is None:
        return AnswerParser, False
    wanted = described.answers.headers
    return (lambda: KeepingParser(wanted)), described.answers.wants_body


def _is_over(call: Call) -> bool:
    return call.outcome is not None
