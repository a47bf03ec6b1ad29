"""Calls shared that must not be, for `capacity.coalesced` to catch; and a twin that shares late, but rightly.

Each is laid over the coalescer's idea of what is equal, or over when followers hear of their leader's end.
"""

from __future__ import annotations

from asyncio import get_running_loop
from typing import Any

from stub_service.capacity.coalesce import Coalescer, Flight, Key
from stub_service.capacity.ports import Step
from stub_service.capacity.steps import LANDED
from stub_service.defects.registry import become, broken, twin

COALESCED = "capacity.coalesced"
TELLS_AFTER_S = 0.01


class MutationsToo(Coalescer):
    """Writes with one text share a call, as reads do: all but one of them never happen."""

    def key(self, tenant: str, step: Step) -> Key | None:
        if not self.on or step.coalesce is None:
            return None
        return (tenant, step.dependency, f"{step.operation} {step.tool}", step.coalesce)


class AcrossTenants(Coalescer):
    """Whoever asks the same is given the same, whosever it is."""

    def key(self, tenant: str, step: Step) -> Key | None:
        return super().key("anybody", step)


class NeverShared(Coalescer):
    """Equal reads are told apart by who asks: each goes out by itself."""

    def find(self, key: Key, rank: int) -> Flight | None:
        return None


class ToldLater(Coalescer):
    """Twin: followers hear of their leader's end a little later, one after another. They ended with it all the same."""

    def land(self, key: Key, flight: Flight) -> list[Any]:
        loop = get_running_loop()
        for place, follower in enumerate(super().land(key, flight), 1):
            loop.call_later(TELLS_AFTER_S * place / 10, follower.wake, LANDED)
        return []


def _coalescer(kind: type[Coalescer]) -> Any:
    return lambda controller, config: become(controller.flow.coalescer, kind)


broken("mutation_coalesced", "writes share a call, and all but one never happen", _coalescer(MutationsToo), COALESCED)
broken("coalesced_across_tenants", "a tenant is given the result of another's call", _coalescer(AcrossTenants),
       COALESCED)  # fmt: skip
broken("never_coalesced", "equal reads each go out by themselves", _coalescer(NeverShared), COALESCED)
twin("twin_followers_told_later", "followers hear of their leader's end one after another", _coalescer(ToldLater),
     COALESCED)  # fmt: skip
