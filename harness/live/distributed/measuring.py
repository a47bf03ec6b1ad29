"""Pings to the workers of other machines, for what their clocks say (clocks.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import monotonic_ns
from typing import Any

import gevent

from harness.live.distributed import clocks, wire
from harness.live.distributed.members import Member

MEASURE_S = 2.0
_APART_S = 0.005
_LOOK_S = 0.02


class ClockMeter:
    """`measure` leaves a member's exchanges with it. Hears answers by `on_pong`."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._members: Mapping[str, Member] = {}
        self._asked: dict[int, tuple[str, int]] = {}
        self._count = 0

    def measure(self, members: Mapping[str, Member]) -> None:
        """Waits for all answers, or for some seconds."""
        self._members = members
        remote = [member for member in members.values() if not member.local and member.lost is None]
        for member in remote:
            member.exchanges.clear()
        for _ in range(clocks.PINGS if remote else 0):
            for member in remote:
                self._count += 1
                self._asked[self._count] = (member.client_id, monotonic_ns())
                self._runner.send_message(wire.PING, {"n": self._count}, member.client_id)
            gevent.sleep(_APART_S)
        for _ in looks(MEASURE_S):
            if all(len(member.exchanges) >= clocks.PINGS for member in remote):
                return

    def on_pong(self, client_id: str, data: Mapping[str, Any]) -> None:
        now_ns = monotonic_ns()
        asked_of, sent_ns = self._asked.pop(wire.number(data["n"]), ("", 0))
        if asked_of == client_id and client_id in self._members:
            self._members[client_id].exchanges.append(clocks.Exchange(sent_ns, wire.number(data["ns"]), now_ns))


def looks(within_s: float) -> Iterator[None]:
    """Looks again and again, until the time is over; at least twice."""
    end_ns = monotonic_ns() + int(within_s * 1e9)
    while monotonic_ns() < end_ns:
        yield
        gevent.sleep(_LOOK_S)
    yield
