"""Reserves gone wrong, for `v02.foreground_first` to catch; and twins, which look suspicious and put people first.

Each is laid over the slots of every bulkhead and of the ceiling above them, or over the order of those who wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stub_service.capacity.ports import RunWish
from stub_service.capacity.reserve import COMMON, LENT, NO, OWN, RANK, Slots
from stub_service.capacity.runs import Opened, Refused
from stub_service.defects.registry import become, broken, twin

FOREGROUND = "v02.foreground_first"
BACKGROUND_RANK = RANK["autonomous"]


def slots_of(controller: Any) -> Iterator[Slots]:
    """Of each bulkhead, and of the ceiling last."""
    for bulkhead in controller.dispatch.bulkheads.values():
        yield bulkhead.slots
    yield controller.dispatch.ceiling


def no_reserve(controller: Any, config: Any) -> None:
    """Traffic classes are not told apart: no reserve, and one order for all who wait."""
    healthy = controller.open_run

    def open_run(tenant: str, wish: RunWish, request: str | None = None) -> Opened | Refused:
        told: Opened | Refused = healthy(tenant, wish, request)
        if told.run is not None:
            controller.runs[told.run].rank = BACKGROUND_RANK
        return told

    controller.open_run = open_run


class NothingKept(Slots):
    """Nobody's reserve is left free; a class that has one gets no slot of it ahead of others."""

    __slots__ = ()

    def may_start(self, rank: int, tenant: str, now_ns: int) -> int:
        return COMMON if self.in_use < self.limit else NO


class NeverTakenBack(Slots):
    """Once it is lent, demand does not end it: whoever is quick gets the slot."""

    __slots__ = ()

    def lends(self, lender: int, rank: int, now_ns: int) -> bool:
        return lender < rank and (self.lent[lender] or super().lends(lender, rank, now_ns))

    def _take_back(self, rank: int, now_ns: int, until_ns: int, reason: str) -> None:
        if not self.lent[rank]:
            super()._take_back(rank, now_ns, until_ns, reason)


def floor_lent(controller: Any, config: Any) -> None:
    """All of a reserve is lent, its floor too."""
    for slots in slots_of(controller):
        slots.floors = [0] * len(slots.floors)


class OverTheLimit(Slots):
    """A reserve is honoured even where its slots are lent out: by going over the limit."""

    __slots__ = ()

    def may_start(self, rank: int, tenant: str, now_ns: int) -> int:
        if self.own[rank] < self.reserves[rank]:
            return OWN
        return super().may_start(rank, tenant, now_ns)


def quick_to_lend(controller: Any, config: Any) -> None:
    """Twin: a reserve is lent after two quiet service times instead of five; it is taken back as soon as ever."""
    for slots in slots_of(controller):
        slots.quiet_ns = slots.quiet_ns * 2 // 5


class LentFirst(Slots):
    """Twin: a call of the background takes a slot that is lent before a common one. What is left is the same."""

    __slots__ = ()

    def may_start(self, rank: int, tenant: str, now_ns: int) -> int:
        how = super().may_start(rank, tenant, now_ns)
        if how == COMMON and rank >= BACKGROUND_RANK and any(self.lends(k, rank, now_ns) for k in self._lendable):
            return LENT
        return how


def all_slots(kind: type[Slots]) -> Callable[[Any, Any], None]:
    """Slots of another kind in the place of all that there are."""

    def lay(controller: Any, config: Any) -> None:
        for slots in slots_of(controller):
            become(slots, kind)

    return lay


broken("no_reserve", "traffic classes are not told apart", no_reserve, FOREGROUND)
broken("priority_without_reserve", "people are first in the queue, and background work holds every slot",
       all_slots(NothingKept), FOREGROUND)  # fmt: skip
broken("reserve_never_taken_back", "a reserve that was lent stays lent", all_slots(NeverTakenBack), FOREGROUND)
broken("floor_lent", "the floor of a reserve is lent, too", floor_lent, FOREGROUND)
broken("ceiling_exceeded_for_reserve", "reserves are honoured by going over limit and ceiling",
       all_slots(OverTheLimit), FOREGROUND)  # fmt: skip
twin("twin_quick_to_lend", "reserves are lent after a short quiet, and taken back at once", quick_to_lend, FOREGROUND)
twin("twin_lent_first", "background work takes lent slots before common ones", all_slots(LentFirst), FOREGROUND)
