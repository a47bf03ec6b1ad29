"""Who takes part in a trial that several processes drive: who is awaited, who has joined, who comes too late.

A trial is planned for so many workers. One more has nothing to do that is not somebody's already, so it is turned away;
and that it came says that somebody thinks of this trial otherwise than it was planned, so `on_late` is told
(docs/decisions/0005). Never gives a late worker a share of a trial.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from harness.live.distributed import wire
from harness.live.distributed.measuring import looks
from harness.live.distributed.members import Member
from harness.live.manifest import CannotBegin

MOST_LATE = 20
"""Of whom the record tells. All are counted."""


@dataclass(frozen=True, slots=True)
class Late:
    """A worker that the trial was not planned for. at_ns: since the trial began; None: it had not yet."""

    name: str
    host: str
    at_ns: int | None

    def told(self) -> dict[str, Any]:
        """For the manifest: keys as in ARCHITECTURE.md."""
        return {"name": self.name, "host": self.host} | ({} if self.at_ns is None else {"at_ns": self.at_ns})


class Roster:
    """runner: Locust's master runner. expected: how many the trial is planned for. on_late: told of each worker too
    many; returns when it came, as `Late.at_ns`."""

    def __init__(self, runner: Any, expected: int, on_late: Callable[[str], int | None]) -> None:
        self.members: dict[str, Member] = {}
        self.expected = expected
        self.late: list[Late] = []
        self.late_count = 0
        self.turned_away = 0
        self._runner = runner
        self._on_late = on_late
        self._given_up = False
        self._away: set[str] = set()

    def wait_for_all(
        self, within_s: float, waiting: Callable[[list[str]], None], stopped: Callable[[], bool], where: str
    ) -> None:
        """waiting: told who is there whenever that changes, and not all are. stopped: there is to be no trial, and
        somebody knows why. Raises CannotBegin."""
        told = -1
        for _ in looks(within_s):
            names = [member.name for member in self.members.values()]
            if len(names) >= self.expected or stopped():
                return
            if len(names) != told:
                told = len(names)
                waiting(names)
        self._given_up = True
        there = f" ({', '.join(member.name for member in self.members.values())})" if self.members else ""
        raise CannotBegin(
            f"{len(self.members)} of {self.expected} workers joined within {within_s:g} s{there}; nothing was "
            f"sent. Start the others with: overload worker --master {where}"
        )

    def never_came(self, name: str) -> Member:
        """A worker of this machine that ended before it could join: a member, so that the record tells of it."""
        member = Member(name, f"{name}, which never joined", socket.gethostname(), 0, True, monotonic_ns())
        self.members[member.client_id] = member
        return member

    def in_order(self) -> list[Member]:
        """So that the same names get the same shares, whoever joined first."""
        return sorted(self.members.values(), key=lambda member: (not member.local, member.name))

    def on_hello(self, client_id: str, data: Mapping[str, Any]) -> None:
        if client_id in self.members or client_id in self._away:
            return
        name = wire.text(data["name"], 100) or client_id[:100]
        host, pid, protocol = wire.text(data["host"], 100), wire.number(data["pid"]), data["protocol"]
        if self._given_up:
            self._turn_away(client_id, "the trial was given up, for not all of its workers joined in time")
        elif len(self.members) >= self.expected:
            self._too_late(client_id, name, host)
        elif protocol != wire.PROTOCOL:
            self._turn_away(client_id, f"it speaks protocol {protocol}, not {wire.PROTOCOL}; install the same "
                            "version of overload")  # fmt: skip
        else:
            taken = {member.name for member in self.members.values()}
            unique = next(
                each for n in range(len(taken) + 1) if (each := name + (f"-{n + 1}" if n else "")) not in taken
            )
            self.members[client_id] = Member(unique, client_id, host, pid, bool(data["local"]), monotonic_ns())

    def _too_late(self, client_id: str, name: str, host: str) -> None:
        self.late_count += 1
        at_ns = self._on_late(name)
        if len(self.late) < MOST_LATE:
            self.late.append(Late(name, host, at_ns))
        self._turn_away(
            client_id,
            f"the trial has all of the {self.expected} workers that it was planned for, and is INVALID now that "
            f"another has joined; if this one is to take part, ask for {self.expected + self.late_count} at its start",
        )

    def _turn_away(self, client_id: str, why: str) -> None:
        self.turned_away += 1
        self._away.add(client_id)
        self._runner.send_message(wire.AWAY, {"why": why}, client_id)
