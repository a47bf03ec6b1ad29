"""What the master knows of each worker, and what it says of it in the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.live.distributed.clocks import SAME_CLOCK, Exchange
from harness.live.distributed.shipping import Inbox
from harness.measure.clock_offset import Offset
from harness.workload.dealing import WHOLE, Part, Share


@dataclass(frozen=True, slots=True)
class Lost:
    """at_ns: since the trial began. unaccounted: calls that were due by then and have no row; of a tenant that re-plans
    its original ones only, so at least so many."""

    why: str
    at_ns: int
    unaccounted: int


@dataclass(slots=True)
class Member:
    """One worker of the trial. local: on this machine, so on this clock. heard_ns: when it last said anything."""

    name: str
    client_id: str
    host: str
    pid: int
    local: bool
    heard_ns: int
    exchanges: list[Exchange] = field(default_factory=list)
    offset: Offset = SAME_CLOCK
    share: Share = field(default_factory=Share)
    inbox: Inbox = field(default_factory=Inbox)
    prepared: str | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    drained: dict[str, Any] | None = None
    lost: Lost | None = None

    @property
    def under_way(self) -> bool:
        return self.drained is None and self.lost is None

    def told(self) -> dict[str, Any]:
        """For the manifest: keys as in ARCHITECTURE.md."""
        parts: Mapping[str, Part] = {name: part for name, part in self.share.parts.items() if part != WHOLE}
        said: dict[str, Any] = {
            "name": self.name,
            "host": self.host,
            "tenants": list(self.share.parts),
            "clock_offset_ns": self.offset.offset_ns,
            "clock_error_ns": self.offset.error_ns,
            "calls": self.inbox.rows,
        }
        if parts:
            said["parts"] = {name: f"{k} of {n}" for name, (k, n) in parts.items()}
        return said

    def loss(self) -> dict[str, Any]:
        assert self.lost is not None
        return {
            "name": self.name,
            "why": self.lost.why,
            "at_ns": self.lost.at_ns,
            "calls": self.inbox.rows,
            "unaccounted": self.lost.unaccounted,
        }
