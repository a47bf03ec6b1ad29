"""The ground that every model of a profile stands on: units in types, names, and the frozen `Part`."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal, TypeAlias

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
# A tool's name is a part of a path.
ToolName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Count: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
# A tenant's name travels in headers and is shown on terminals: no control characters, no space at its ends.
Name: TypeAlias = Annotated[
    str,
    Field(
        min_length=1, max_length=200, pattern=r"^[^\x00-\x20\x7f-\x9f](?:[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\x9f])?$"
    ),
]


class Part(BaseModel):
    """Base of every model: an unknown key is an error, a value never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
