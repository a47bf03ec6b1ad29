"""What a refused caller is told. Pure, so that the simulator and the shell give the same answer, and a defect can give
another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """retry_after: the header's raw text. body: JSON; typed if it has `outcome`. delay_ns: held before it is given."""

    status: int
    retry_after: str | None
    body: dict[str, Any]
    delay_ns: int = 0

    @property
    def typed(self) -> bool:
        return "outcome" in self.body


Refuse = Callable[[str, str, int], Answer]
"""(tenant, reason, retry_after_s) -> Answer"""


def refuse(tenant: str, reason: str, retry_after_s: int) -> Answer:
    """429, a Retry-After in whole seconds, a typed body, at once."""
    body = {"outcome": "throttled", "reason": reason, "tenant": tenant, "retry_after_s": retry_after_s}
    return Answer(429, str(retry_after_s), body)
