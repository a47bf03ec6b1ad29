"""What a driver needs of a caller model, whichever it is: steady tenants, re-planning agents, and agent runs.

A driver (gevent live, the simulators in virtual time) sleeps until `next_ns`, takes the calls that are due, sends them,
and tells of each end with `on_outcome`, which may bring `next_ns` forward.
"""

from __future__ import annotations

from typing import Protocol

from harness.ledger.call import Call


class CallSource(Protocol):
    """One tenant's calls. index: its place in the profile."""

    tenant: str
    index: int

    @property
    def next_ns(self) -> int:
        """Earliest instant at which something is due; NEVER if nothing is planned (an outcome may yet change that)."""

    def take(self) -> Call:
        """The call due at `next_ns`, which must not be NEVER. If its `outcome` is set, it must not be sent."""

    def on_due(self, now_ns: int) -> list[Call]:
        """All calls due by `now_ns`, in order."""

    def on_outcome(self, call: Call) -> None:
        """A call that was sent has ended: `outcome` and `done_ns` are set, and `answer` if it has an action."""
