"""Which worker has which of Locust's users, told to Locust in the place of its own dispatcher."""

from __future__ import annotations

from collections.abc import Callable


class Settled:
    """Stands in for Locust's dispatcher of users: who has which is settled, and is dealt out once.

    Always `in progress`, so that Locust never deals anew when a worker comes or goes.
    """

    dispatch_in_progress = True

    def __init__(self, dealt: Callable[[], dict[str, dict[str, int]]]) -> None:
        self._dealt = dealt
        self._left = 0

    def new_dispatch(self, target_user_count: int, spawn_rate: float, user_classes: object = None) -> None:
        self._left = 1

    def add_worker(self, worker_node: object) -> None: ...

    def remove_worker(self, worker_node: object) -> None: ...

    def __iter__(self) -> Settled:
        return self

    def __next__(self) -> dict[str, dict[str, int]]:
        if not self._left:
            raise StopIteration
        self._left -= 1
        return self._dealt()
