"""What a request is going to cost, before anybody knows: a basis for each class, corrected by what its like have cost.

    chat_turn      tokens
    tool_heavy     tokens + tools * per_tool
    deep_research  depth * fan_out * tokens

    forecast = basis * factor(tenant, class),  at least the class's floor, at most the bucket's burst
    factor  <- factor + weight * (actual / basis - factor),  between `least` and `most`

The factor follows an error that persists, and forgives one that does not. It learns only from runs that did all that
they set out to do: one that crashed or was refused half of its steps cost less than its like will. A forecast above the
burst would refuse the first call for ever: it is cut to the burst, and the rest becomes a debt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stub_service.capacity.cost_config import (
    DEEP_RESEARCH,
    QUEUE_OF,
    REQUEST_CLASSES,
    TOOL_HEAVY,
    ClassForecast,
    Learning,
)

UNSAID_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class Hints:
    """What the caller says of its request; the basis of its class says which of them count."""

    depth: int = 1
    fan_out: int = 1
    tools: int = 1
    memory: int = 0


class Forecasts:
    """Classes that are not configured are forecast at 1,000 tokens."""

    def __init__(self, classes: Iterable[ClassForecast], learning: Learning) -> None:
        told = {one.request_class: one for one in classes}
        self.classes = {
            name: told.get(name) or ClassForecast(name, QUEUE_OF[name], UNSAID_TOKENS) for name in REQUEST_CLASSES
        }
        self.learning = learning
        self._factors: dict[tuple[str, str], float] = {}

    def basis(self, request_class: str, hints: Hints) -> int:
        """What it would cost as configured [cost], at least 1. Raises KeyError on a class that there is not."""
        one = self.classes[request_class]
        if request_class == TOOL_HEAVY:
            return max(1, one.tokens + hints.tools * one.per_tool)
        if request_class == DEEP_RESEARCH:
            return max(1, hints.depth * hints.fan_out * one.tokens)
        return max(1, one.tokens)

    def forecast(self, tenant: str, request_class: str, basis: int, burst: int | None) -> int:
        """burst: of the tenant's bucket; None: it has none."""
        expected = max(self.floor(request_class), round(basis * self.factor(tenant, request_class)))
        return expected if burst is None else min(expected, burst)

    def floor(self, request_class: str) -> int:
        return self.classes[request_class].floor

    def factor(self, tenant: str, request_class: str) -> float:
        return self._factors.get((tenant, request_class), 1.0)

    def learn(self, tenant: str, request_class: str, basis: int, actual: int) -> None:
        """A request of this basis cost so much in the end."""
        learning, factor = self.learning, self.factor(tenant, request_class)
        learned = factor + learning.weight * (actual / basis - factor)
        self._factors[tenant, request_class] = min(learning.most, max(learning.least, learned))
