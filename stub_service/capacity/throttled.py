"""A dependency that answers 429 gets nothing new from the background until its Retry-After has passed.

    held for autonomous and maintenance steps:  until the latest answered_at + stated wait (or `otherwise_ns` if none)

Foreground steps go on, and so do retries: they wait for their own answer's Retry-After.
"""

from __future__ import annotations

from stub_service.capacity.ports import DependencyAnswer
from stub_service.capacity.reserve import RANK
from stub_service.capacity.retry_after import stated_wait_ns

_BACKGROUND = RANK["autonomous"]


class Hold:
    __slots__ = ("otherwise_ns", "until_ns")

    def __init__(self, otherwise_ns: int) -> None:
        self.otherwise_ns = otherwise_ns
        self.until_ns = -1

    def answered(self, answer: DependencyAnswer, now_ns: int) -> None:
        """The dependency has answered."""
        if answer.status == 429:
            stated_ns = stated_wait_ns(answer.retry_after, answer.date)
            self.until_ns = max(self.until_ns, now_ns + (stated_ns or self.otherwise_ns))

    def blocks(self, rank: int, again: bool, now_ns: int) -> bool:
        return now_ns < self.until_ns and rank >= _BACKGROUND and not again
