"""Hands dealt badly, for `fairness.shuffle_isolation` to catch; and twins that deal otherwise and as well.

Laid over a service whose policy is `shuffle_sharded`; over another one, that policy gives way to it.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random
from zlib import crc32

from stub_service.admission.service import SharedService
from stub_service.admission.shuffle_sharding import ShuffleSharded
from stub_service.config import SharedServiceConfig
from stub_service.defects.registry import SHARED, broken, twin

ISOLATION = "fairness.shuffle_isolation"
_QUEUES, _HAND, _QUEUE = 16, 4, 25


class HandOfOne(ShuffleSharded):
    """One queue a tenant: plain sharding. Whoever shares it with a flood is drowned."""

    def _deal(self, tenant: str) -> tuple[int, ...]:
        return super()._deal(tenant)[:1]


class WithReplacement(ShuffleSharded):
    """The same card may be dealt twice, so that hands are smaller than they look."""

    def _deal(self, tenant: str) -> tuple[int, ...]:
        rng = Random(f"{self._salt}:{tenant}")
        return tuple(dict.fromkeys(rng.randrange(self._number) for _ in range(self._hand)))


class ModuloHash(ShuffleSharded):
    """The hash modulo the queues, and its neighbours: there are only as many hands as queues."""

    def _deal(self, tenant: str) -> tuple[int, ...]:
        first = crc32(tenant.encode()) % self._number
        return tuple((first + i) % self._number for i in range(self._hand))


class OtherHash(ShuffleSharded):
    """Twin: dealt by another good hash, in another way."""

    def _deal(self, tenant: str) -> tuple[int, ...]:
        rng = Random(sha256(f"{self._salt}:{tenant}".encode()).digest())
        return tuple(rng.sample(range(self._number), self._hand))


class TiesToTheLast(ShuffleSharded):
    """Twin: of equally short queues, the last of the hand."""

    def _shortest(self, hand: tuple[int, ...]) -> int:
        return super()._shortest(hand[::-1])


def _register(name: str, about: str, kind: type[ShuffleSharded], healthy: bool = False) -> None:
    def lay(service: SharedService, config: SharedServiceConfig) -> None:
        own = config.admission
        length = own.queue or own.queue_per_tenant or _QUEUE
        service.policy = kind(own.queues or _QUEUES, own.hand or _HAND, length, own.salt)

    (twin if healthy else broken)(name, about, lay, ISOLATION, part=SHARED)


_register("hand_of_one", "a tenant has one queue, and no other to go to", HandOfOne)
_register("hands_with_replacement", "a hand may hold one queue twice", WithReplacement)
_register("modulo_hash", "a hand is a number of neighbouring queues", ModuloHash)
_register("twin_other_hash", "hands dealt by another good hash", OtherHash, healthy=True)
_register("twin_ties_to_the_last", "of equally short queues the last of the hand", TiesToTheLast, healthy=True)
