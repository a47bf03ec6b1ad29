"""Equal reads share one call: the first leads, those that come while it is on its way follow.

Equal: one tenant, one dependency, one tool, one text of `coalesce`. Only reads that say they may be shared; a mutation
never is, nor a read of another tenant. A step does not follow one of a lower class that still waits for its slot: it
would wait behind the background. Nothing is kept after the leader has ended.
"""

from __future__ import annotations

from typing import Any

from stub_service.capacity.ports import READ, Step

Key = tuple[str, str, str, str]


class Flight:
    """A leader, and those who wait for its result."""

    __slots__ = ("followers", "leader", "rank", "started")

    def __init__(self, leader: Any, rank: int) -> None:
        self.leader = leader
        self.rank = rank
        self.started = False
        self.followers: list[Any] = []


class Coalescer:
    def __init__(self, on: bool) -> None:
        self.on = on
        self.flights: dict[Key, Flight] = {}

    def key(self, tenant: str, step: Step) -> Key | None:
        """What the step shares its call with; None: with nothing."""
        if not self.on or step.coalesce is None or step.operation != READ:
            return None
        return (tenant, step.dependency, step.tool, step.coalesce)

    def find(self, key: Key, rank: int) -> Flight | None:
        """The flight that a step of this class may follow."""
        flight = self.flights.get(key)
        return flight if flight is not None and (flight.started or flight.rank <= rank) else None

    def lead(self, key: Key, leader: Any, rank: int) -> Flight | None:
        """A new flight, unless one with this key is on its way already (of a lower class: both go)."""
        if key in self.flights:
            return None
        self.flights[key] = flight = Flight(leader, rank)
        return flight

    def land(self, key: Key, flight: Flight) -> list[Any]:
        """The leader has ended; returns its followers."""
        if self.flights.get(key) is flight:
            del self.flights[key]
        return flight.followers
