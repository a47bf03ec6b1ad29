"""One admission context for each request: what it claims, in turn, and all of it back at a refusal at any step.

    session -> tokens -> memory writes -> tool calls          claimed in this order
    refused at step k:  k-1, ..., 1 given back, in reverse; so it is when the flow is cut off in the middle

A claim holds nothing unless `take` returned None: one that waits gives up its place when it is cancelled. Between a
check and what it takes nothing is awaited (that is each claim's own duty). What has been given back is never given back
twice. A context that is complete holds its claims until `release`.
Source: RAII / saga with compensation; Google SRE book, "Addressing Cascading Failures" (admit whole or not at all).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

SESSIONS, TOKENS, MEMORY, TOOLS = "sessions", "tokens", "memory", "tools"
POOLS = (SESSIONS, TOKENS, MEMORY, TOOLS)


@dataclass(frozen=True, slots=True)
class Denied:
    """A request that was not admitted. reason: the pool that refused it, or `deadline`. wait_ns: when it may be asked
    for again; None: it does not say."""

    outcome: str
    reason: str
    wait_ns: int | None = None


class Claim(Protocol):
    """One thing that a request needs of one pool."""

    async def take(self) -> Denied | None: ...
    def give_back(self) -> None: ...


class AdmissionContext:
    """claims: in the order in which they are made."""

    __slots__ = ("_claims", "_held")

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._claims = tuple(claims)
        self._held: list[Claim] = []

    async def claim(self) -> Denied | None:
        """All of them (None), or none at all, and why."""
        complete = False
        try:
            for one in self._claims:
                denied = await one.take()
                if denied is not None:
                    return denied
                self._held.append(one)
            complete = True
            return None
        finally:
            if not complete:
                self.release()

    def release(self) -> None:
        """Gives back what is held, the last first."""
        while self._held:
            self._held.pop().give_back()
