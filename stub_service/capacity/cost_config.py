"""What the cost side of the capacity layer is made of: frozen values that travel as JSON, beside those of config.py.

Cost is counted in units of which a token is one. Usage is not the controller's: it is what the dependencies say, after
the call, that a call has used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CHAT_TURN, TOOL_HEAVY, DEEP_RESEARCH = "chat_turn", "tool_heavy", "deep_research"
REQUEST_CLASSES = (CHAT_TURN, TOOL_HEAVY, DEEP_RESEARCH)
SHORT, STANDARD, BATCH = "short", "standard", "batch"
SIZE_CLASSES = (SHORT, STANDARD, BATCH)
"""In the order in which those that wait are let in."""
QUEUE_OF = {CHAT_TURN: SHORT, TOOL_HEAVY: STANDARD, DEEP_RESEARCH: BATCH}
FIXED, LOGNORMAL, RECORDED = "fixed", "lognormal", "recorded"


@dataclass(frozen=True, slots=True)
class BucketLimits:
    """Of one tenant: cost a second, and the most that it may hold. tenant: empty for every tenant that is not named."""

    tenant: str
    rate_per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class ClassForecast:
    """What a request of this class is expected to cost before anything is learned (forecast.py): `tokens` for a chat
    turn, plus `per_tool` for each tool call, or for each branch of a deep research. floor: never below."""

    request_class: str
    size_class: str
    tokens: int
    per_tool: int = 0
    floor: int = 1


@dataclass(frozen=True, slots=True)
class Learning:
    """How much of an error the next forecast takes over (0: nothing), and the bounds of the learned factor."""

    weight: float = 0.2
    least: float = 0.1
    most: float = 10.0


@dataclass(frozen=True, slots=True)
class SizeQueue:
    """kept: sessions that no other size class may take. queue: most that wait."""

    size_class: str
    kept: int = 0
    queue: int = 50


@dataclass(frozen=True, slots=True)
class CostConfig:
    """sessions, memory, tools: most held at once by all runs; None: without limit. lease_ns: how long a run may ask
    for nothing before its caller counts as gone; 0: until its deadline."""

    buckets: tuple[BucketLimits, ...] = ()
    classes: tuple[ClassForecast, ...] = ()
    learning: Learning = Learning()
    sessions: int | None = None
    memory: int | None = None
    tools: int | None = None
    queues: tuple[SizeQueue, ...] = ()
    lease_ns: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """How much one call uses. fixed: `mean`; lognormal: of this mean and sigma (of the logarithm), at most `most`
    (0: unbounded); recorded: `values`, one after another, over and over."""

    distribution: str
    mean: float = 0.0
    sigma: float = 0.0
    most: int = 0
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call of this tenant with this tool uses at the dependency."""

    tenant: str
    dependency: str
    tool: str
    tokens: Draw | None = None
    bytes: Draw | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """Tokens a second that a dependency serves to everybody together; beyond it answers 429."""

    rate_per_s: float
    burst: int


def cost_from_json(document: dict[str, Any] | None) -> CostConfig | None:
    """The inverse of `asdict`. Raises KeyError, TypeError or ValueError on anything else."""
    if document is None:
        return None
    return CostConfig(
        **{
            **document,
            "buckets": tuple(BucketLimits(**one) for one in document["buckets"]),
            "classes": tuple(ClassForecast(**one) for one in document["classes"]),
            "learning": Learning(**document["learning"]),
            "queues": tuple(SizeQueue(**one) for one in document["queues"]),
        }
    )


def usages_from_json(documents: list[dict[str, Any]]) -> tuple[Usage, ...]:
    """As `cost_from_json`."""
    return tuple(Usage(**{**one, "tokens": _draw(one["tokens"]), "bytes": _draw(one["bytes"])}) for one in documents)


def _draw(document: dict[str, Any] | None) -> Draw | None:
    return Draw(**{**document, "values": tuple(document["values"])}) if document is not None else None
