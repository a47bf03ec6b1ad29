"""Recovery gone wrong, for `v10.outage_recovery` to catch; and a drain that only looks out of order."""

from __future__ import annotations

from typing import Any

from stub_service.capacity.bulkhead import FOREGROUND_RANK
from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.controller import Controller
from stub_service.capacity.recovery import Ramp
from stub_service.capacity.waiting import Key, Waiting
from stub_service.defects.capacity_v06 import EXPIRY, OnEnqueueOnly
from stub_service.defects.registry import become, broken, twin

RECOVERY = "v10.outage_recovery"
UNBOUNDED = 1_000_000
LAST_RANK = 10


class FirstInFirstOut(Waiting):
    """By arrival alone."""

    __slots__ = ()

    def key(self, rank: int, deadline_ns: int, priority: int, sequence: int) -> Key:
        return (0, 0, 0, sequence)


class ForegroundLast(Waiting):
    """Everybody goes behind those who wait, and foreground work behind all others."""

    __slots__ = ()

    def key(self, rank: int, deadline_ns: int, priority: int, sequence: int) -> Key:
        place = rank + LAST_RANK if rank <= FOREGROUND_RANK else rank
        return (place, deadline_ns, -priority, sequence)

    def holds(self, rank: int, tenant: str, again: bool) -> bool:
        return self.size > 0


class NewestFirst(Waiting):
    """Twin: of equal class, deadline and priority, the newest goes first. Nothing was promised to the eldest."""

    __slots__ = ()

    def key(self, rank: int, deadline_ns: int, priority: int, sequence: int) -> Key:
        return (rank, deadline_ns, -priority, -sequence)


class NoRamp(Ramp):
    """A closed circuit is a closed circuit: everybody starts."""

    __slots__ = ()

    def begin(self, now_ns: int) -> None:
        return


class SameForAll(Ramp):
    """Foreground work is spaced as the backlog is."""

    __slots__ = ()

    def next_ns(self, foreground: bool, now_ns: int) -> int:
        return super().next_ns(False, now_ns)


class Gentle(Ramp):
    """Twin: background work drains at four fifths of what was tested."""

    __slots__ = ()

    def rate_per_s(self, now_ns: int) -> float:
        return super().rate_per_s(now_ns) * 0.8


def _waiting(kind: type[Waiting]) -> Any:
    def lay(controller: Controller, config: CapacityConfig) -> None:
        for bulkhead in controller.dispatch.bulkheads.values():
            become(bulkhead.waiting, kind)

    return lay


def _ramps(kind: type[Ramp]) -> Any:
    def lay(controller: Controller, config: CapacityConfig) -> None:
        for ramp in controller.dispatch.ramps.values():
            become(ramp, kind)

    return lay


def _unbounded(controller: Controller, config: CapacityConfig) -> None:
    for bulkhead in controller.dispatch.bulkheads.values():
        waiting = bulkhead.waiting
        waiting.most = waiting.tenant_most = UNBOUNDED
        waiting.kept = dict.fromkeys(waiting.kept, UNBOUNDED)


def _interactive_last(controller: Controller, config: CapacityConfig) -> None:
    _waiting(ForegroundLast)(controller, config)
    _ramps(SameForAll)(controller, config)


def _stale(controller: Controller, config: CapacityConfig) -> None:
    become(controller.flow, OnEnqueueOnly)


broken("backlog_unbounded", "the queue has no bound", _unbounded, RECOVERY)
broken("backlog_first_in_first_out", "the backlog drains in order of arrival", _waiting(FirstInFirstOut), RECOVERY)
broken("backlog_all_at_once", "the whole backlog starts when the circuit closes", _ramps(NoRamp), RECOVERY)
broken("backlog_stale_started", "work whose deadline has passed starts all the same", _stale, RECOVERY, also=(EXPIRY,))
broken("backlog_before_interactive", "interactive work waits behind the backlog", _interactive_last, RECOVERY)
twin("twin_newest_first_among_equals", "of equal work the newest goes first", _waiting(NewestFirst), RECOVERY)
twin("twin_gentle_drain", "the backlog drains slower than was tested", _ramps(Gentle), RECOVERY)
