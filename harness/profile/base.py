"""The ground that every model of a profile stands on: units in types, names, and the frozen `Part`."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from harness.profile.units import parse_duration, parse_rate, parse_share

TrafficClass = Literal["interactive", "approval_resume", "autonomous", "maintenance"]
RetriedOutcome = Literal["throttled", "expired", "dependency_unavailable", "failed", "abandoned"]


class Scales:
    """Marks a field that `--time-scale` changes: a duration shrinks with it, a rate grows."""

    def __init__(self, quantity: Literal["duration", "rate"]) -> None:
        self.quantity = quantity


_DURATION_SCHEMA = {"type": "string", "pattern": r"^\d+(\.\d+)?\s?(ns|us|ms|s|m|h)$", "examples": ["200ms", "2s", "5m"]}
_RATE_SCHEMA = {"type": "string", "pattern": r"^\d+(\.\d+)?\s?/\s?(s|m|h)$", "examples": ["8/s", "20/m"]}
DurationNs: TypeAlias = Annotated[
    int, BeforeValidator(parse_duration), WithJsonSchema(_DURATION_SCHEMA), Scales("duration")
]
RatePerS: TypeAlias = Annotated[Fraction, BeforeValidator(parse_rate), WithJsonSchema(_RATE_SCHEMA), Scales("rate")]
_SHARE_SCHEMA = {"type": "string", "pattern": r"^\d+(\.\d+)?\s?%$", "examples": ["10%", "0.5%"]}
Share: TypeAlias = Annotated[Fraction, BeforeValidator(parse_share), WithJsonSchema(_SHARE_SCHEMA)]
ASKED: dict[str, str] = {}
"""Pattern -> what it asks for, as an error message says it."""
HIDDEN: set[str] = set()
"""Patterns of texts in whose place somebody may have written a secret: no message shows what stands there."""


def written(pattern: str, asks: str, hidden: bool = False, **more: Any) -> Any:
    """A text's field with a pattern, and the words for it."""
    ASKED[pattern] = asks
    if hidden:
        HIDDEN.add(pattern)
    return Field(pattern=pattern, **more)


# A tool's name is a part of a path.
ToolName: TypeAlias = Annotated[
    str,
    written(
        r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        "expected letters, digits, '.', '_' and '-', at most 100, a letter or digit first",
    ),
]
Count: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
# A tenant's name travels in headers and is shown on terminals: no control characters, no space at its ends.
NAME_RULE = "a name has 1 to 200 characters, no control characters, and no space at its ends"
Name: TypeAlias = Annotated[
    str,
    written(
        r"^[^\x00-\x20\x7f-\x9f](?:[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\x9f])?$",
        NAME_RULE,
        min_length=1,
        max_length=200,
    ),
]


class Part(BaseModel):
    """Base of every model: an unknown key is an error, a value never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
