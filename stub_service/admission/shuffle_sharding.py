"""Shuffle sharding: thousands of tenants on a few queues, each dealt a hand of them; it joins the shortest of its hand.

A flood fills the queues of its own hand. Another tenant is hurt by it only if all of its own hand lies among those, for
else it has a queue that the flood does not reach. With Q queues, hands of H and one heavy tenant:

    P(hurt) = 1 / C(Q, H)          each other tenant for itself, so that their number is binomial

Queues take turns, round-robin. Source: Kubernetes API Priority and Fairness (KEP-1040; apiserver, util/flowcontrol) and
MacCarthaigh 2014, "Workload isolation using shuffle-sharding". Departs from the former: the shortest queue counts
calls, not seats times their time, and a turn is one call.

A hand is a function of tenant, Q, H and salt alone (BLAKE2b), dealt without replacement; it must never depend on what
waits, or on who came first.
"""

from __future__ import annotations

from hashlib import blake2b

from stub_service.admission.fair_queues import FairQueues, Key
from stub_service.admission.policy import Ticket

MOST_QUEUES, MOST_HAND = 4096, 32
"""32 cards out of 4,096 take 384 bits; the hash has 512, so that no card is noticeably likelier than another."""

_HANDS_KEPT = 100_000


def deal(tenant: str, queues: int, hand: int, salt: int = 0) -> tuple[int, ...]:
    """`hand` different numbers below `queues`, in the order dealt."""
    digest = blake2b(tenant.encode("utf-8", "surrogatepass"), key=salt.to_bytes(8, "big")).digest()
    value = int.from_bytes(digest, "big")
    deck = list(range(queues))
    cards = []
    for _ in range(hand):
        value, place = divmod(value, len(deck))
        cards.append(deck.pop(place))
    return tuple(cards)


class ShuffleSharded(FairQueues):
    """queue: most tickets that may wait in one queue beyond the free workers. A tenant's own calls may overtake each
    other: they are in several queues."""

    _full = "queue_full"

    def __init__(self, queues: int, hand: int, queue: int, salt: int = 0) -> None:
        super().__init__(queue)
        self._number, self._hand, self._salt = queues, hand, salt
        self._hands: dict[str, tuple[int, ...]] = {}

    def hand_of(self, tenant: str) -> tuple[int, ...]:
        hand = self._hands.get(tenant)
        if hand is None:
            if len(self._hands) >= _HANDS_KEPT:
                self._hands.clear()
            hand = self._hands[tenant] = self._deal(tenant)
        return hand

    def offer(self, ticket: Ticket, free: int) -> str | None:
        hand = self.hand_of(ticket.tenant)
        shortest = self._shortest(hand)
        if free and self.waiting >= free and self._length(shortest) >= self._bound:
            # Within one instant: the idle workers may take from any of them before the next call comes.
            shortest = min(hand, key=lambda queue: self._length(queue) - self._would_start(queue, free))
        ticket.queue = shortest
        return super().offer(ticket, free)

    def ahead_of(self, tenant: str) -> int:
        return self._length(self._shortest(self.hand_of(tenant)))

    def _deal(self, tenant: str) -> tuple[int, ...]:
        return deal(tenant, self._number, self._hand, self._salt)

    def _shortest(self, hand: tuple[int, ...]) -> int:
        """The first of equal ones, in the order dealt."""
        return min(hand, key=self._length)

    def _length(self, queue: int) -> int:
        return len(self._queues.get(queue, ()))

    def _queue_of(self, ticket: Ticket) -> Key:
        return ticket.queue
