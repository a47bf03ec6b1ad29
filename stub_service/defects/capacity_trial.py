"""What the checks beside the ten must catch: an adaptive limit that leaves its bounds, decisions without their event,
and things that nobody gives back."""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable
from typing import Any

from stub_service.capacity.adaptive import Aimd
from stub_service.capacity.bulkhead import Grant
from stub_service.capacity.coalesce import Coalescer, Flight, Key
from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.controller import Controller
from stub_service.capacity.dispatch import Dispatcher
from stub_service.capacity.events import Events
from stub_service.capacity.ports import StepResult
from stub_service.capacity.records import Decision
from stub_service.capacity.runs import CANCELLED, COALESCED, EXPIRED, SERVED, LiveStep, Run
from stub_service.capacity.steps import StepFlow
from stub_service.defects.registry import become, broken, twin

ADAPTIVE, DECISIONS, LEAKS = "capacity.adaptive_bounded", "trial.decisions_complete", "trial.leak_free"
CONSERVED, ONE_OWNER, FAN_OUT = "trial.conserved", "v05.one_retry_owner", "v01.fan_out_ceiling"

LINGER_S = 0.03

Record = Callable[[Decision], None]


class BelowReserve(Aimd):
    """The limit falls as long as there is trouble, down to one."""

    __slots__ = ()

    def bounded(self, limit: int) -> int:
        return max(1, min(self.config.highest, limit))


class AboveTested(Aimd):
    """The limit rises as long as there is no trouble."""

    __slots__ = ()

    def bounded(self, limit: int) -> int:
        return max(self.config.lowest, limit)


class Jumps(Aimd):
    """Twin: from one bound to the other at once."""

    __slots__ = ()

    def bounded(self, limit: int) -> int:
        return self.config.highest if limit > self.limit_before else self.config.lowest

    @property
    def limit_before(self) -> int:
        return self.limit


class UnrecordedRetries(Events):
    """Nobody hears of a retry."""

    def step(self, live: LiveStep, bulkhead: Any, kind: str, outcome: str, *rest: Any, **more: Any) -> None:
        if (kind, outcome) != ("retry", "scheduled"):
            super().step(live, bulkhead, kind, outcome, *rest, **more)


class UnrecordedFollowers(Events):
    """Whoever shares a call leaves no trace."""

    def step(self, live: LiveStep, bulkhead: Any, kind: str, outcome: str, *rest: Any, **more: Any) -> None:
        if (kind, outcome) != ("step", COALESCED):
            super().step(live, bulkhead, kind, outcome, *rest, **more)


class EndsTwice(Events):
    """Two places write that a step was served."""

    def step(self, live: LiveStep, bulkhead: Any, kind: str, outcome: str, *rest: Any, **more: Any) -> None:
        super().step(live, bulkhead, kind, outcome, *rest, **more)
        if (kind, outcome) == ("step", SERVED):
            super().step(live, bulkhead, kind, outcome, *rest, **more)


class UnrecordedRefusals(Events):
    """A batch that is refused whole was never there."""

    def batch(self, run: Run, batch: str, round_: int, outcome: str, *rest: Any) -> None:
        if outcome == "admitted":
            super().batch(run, batch, round_, outcome, *rest)


class KeepsCancelledSlots(StepFlow):
    """A call that was cancelled under way keeps its slot."""

    def end(self, live: LiveStep, outcome: str, reason: str | None, now_ns: int, **more: Any) -> StepResult:
        if outcome == CANCELLED:
            live.grant = None
        return super().end(live, outcome, reason, now_ns, **more)


class KeepsExpiredPermits(StepFlow):
    """An expired step counts as one of its run's parallel steps for ever."""

    def end(self, live: LiveStep, outcome: str, reason: str | None, now_ns: int, **more: Any) -> StepResult:
        result = super().end(live, outcome, reason, now_ns, **more)
        if outcome == EXPIRED:
            live.permit = False
        return result


class KeepsPlaces(Dispatcher):
    """Whoever waits no more keeps its place; a slot that comes free goes to somebody who is not there."""

    def leave(self, live: LiveStep) -> None:
        live.waiter = None


class ReturnsLater(Dispatcher):
    """Twin: a slot is free 30 ms after its call has ended, when its connection has been looked after."""

    def release(self, live: LiveStep, now_ns: int) -> None:
        grant = live.grant
        if grant is None:
            return
        self.told(live, None, now_ns)
        live.grant = None
        get_running_loop().call_later(LINGER_S, self._return, grant)

    def _return(self, grant: Grant) -> None:
        if grant.bulkhead.release(grant):
            self.pump(self.now_ns())


class NeverLands(Coalescer):
    """The call that is shared is on its way for ever: whoever comes later follows it."""

    def land(self, key: Key, flight: Flight) -> list[Any]:
        return flight.followers


def _adaptive(kind: type[Aimd]) -> Any:
    def lay(controller: Controller, config: CapacityConfig) -> None:
        for bulkhead in controller.dispatch.bulkheads.values():
            if bulkhead.adaptive is not None:
                become(bulkhead.adaptive, kind)

    return lay


def _events(kind: type[Events]) -> Any:
    def lay(controller: Controller, config: CapacityConfig) -> None:
        become(controller.events, kind)

    return lay


def _flow(kind: type[StepFlow]) -> Any:
    def lay(controller: Controller, config: CapacityConfig) -> None:
        become(controller.flow, kind)

    return lay


def _recorded(change: Callable[[Decision], Decision]) -> Any:
    """Every decision as it is made, changed."""

    def lay(controller: Controller, config: CapacityConfig) -> None:
        healthy: Record = controller.events.record
        controller.events.record = lambda decision: healthy(change(decision))

    return lay


def _later(controller: Controller, config: CapacityConfig) -> None:
    become(controller.dispatch, ReturnsLater)


def _places(controller: Controller, config: CapacityConfig) -> None:
    become(controller.dispatch, KeepsPlaces)


def _flights(controller: Controller, config: CapacityConfig) -> None:
    become(controller.flow.coalescer, NeverLands)


def without_remaining(decision: Decision) -> Decision:
    return decision._replace(remaining_attempts=None, remaining_ns=None)


def in_own_words(decision: Decision) -> Decision:
    """Twin: reasons are whole sentences."""
    return decision._replace(reason=decision.reason and f"because of: {decision.reason.replace('_', ' ')}")


broken(
    "limit_below_reserve", "the adaptive limit falls below the interactive reserve", _adaptive(BelowReserve), ADAPTIVE
)
broken("limit_above_tested", "the adaptive limit rises over the tested maximum", _adaptive(AboveTested), ADAPTIVE)
twin("twin_limit_jumps", "the limit jumps from one bound to the other", _adaptive(Jumps), ADAPTIVE)

broken("retries_unrecorded", "a retry has no event", _events(UnrecordedRetries), DECISIONS, also=(ONE_OWNER,))
broken("followers_unrecorded", "a coalesced step has no end", _events(UnrecordedFollowers), DECISIONS, also=(FAN_OUT,))
broken(
    "refusals_unrecorded",
    "a batch that is refused has no event",
    _events(UnrecordedRefusals),
    DECISIONS,
    also=(CONSERVED,),
)
broken("ends_recorded_twice", "a served step ends twice", _events(EndsTwice), DECISIONS)
broken("limits_unrecorded", "events do not say what the run has left", _recorded(without_remaining), DECISIONS)
twin("twin_reasons_in_words", "reasons are whole sentences", _recorded(in_own_words), DECISIONS)

broken("slot_kept_when_cancelled", "a cancelled call keeps its slot", _flow(KeepsCancelledSlots), LEAKS)
broken("permit_kept_when_expired", "an expired step keeps its permit", _flow(KeepsExpiredPermits), LEAKS)
broken("place_kept_when_expired", "whoever waits no more keeps its place in the queue", _places, LEAKS)
broken("shared_call_never_ends", "a shared call is on its way for ever", _flights, LEAKS)
twin("twin_slot_returned_later", "a slot is free 30 ms after its call has ended", _later, LEAKS)
