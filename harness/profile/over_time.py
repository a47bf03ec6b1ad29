"""Numbers of a profile that change in the course of a trial: a rate, and a number of workers.

A base holds from the beginning to the end; steps hold instead of it for a while, in order and without overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, model_validator

from harness.profile.base import Count, DurationNs, Part, RatePerS

V = TypeVar("V")


class RateStep(Part):
    """A rate that holds in [from, to) instead of the base rate."""

    from_ns: DurationNs = Field(alias="from")
    to_ns: DurationNs = Field(alias="to")
    rate: RatePerS


class WorkerStep(Part):
    """A number of workers that holds in [from, to) instead of the base number (autoscaling)."""

    from_ns: DurationNs = Field(alias="from")
    to_ns: DurationNs = Field(alias="to")
    workers: Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


def _steps_in_order(steps: list[RateStep] | list[WorkerStep], what: str) -> None:
    end = 0
    for step in steps:
        if step.from_ns >= step.to_ns:
            raise ValueError(f"a {what} step must end after it begins")
        if step.from_ns < end:
            raise ValueError(f"{what} steps must be in order and may not overlap")
        end = step.to_ns


def _base_and_steps(value: Any) -> Any:
    """The short forms: `base`, or `[base, step, ...]`."""
    if isinstance(value, list):
        return {"base": value[0] if value else None, "steps": value[1:]}
    return value if isinstance(value, dict) else {"base": value}


def _segments(base: V, steps: list[tuple[int, int, V]], end_ns: int) -> Iterator[tuple[int, int, V]]:
    """(from_ns, to_ns, value): the steps, and the base wherever there is none."""
    at = 0
    for from_ns, to_ns, value in steps:
        if from_ns >= end_ns:
            break
        if from_ns > at:
            yield at, from_ns, base
        at = min(to_ns, end_ns)
        yield from_ns, at, value
    if at < end_ns:
        yield at, end_ns, base


class Rates(Part):
    """Offered rate over time. In YAML: `8/s`, or `[8/s, {from: 30s, to: 70s, rate: 40/s}]`."""

    base: RatePerS
    steps: list[RateStep] = []

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return _base_and_steps(value)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _steps_in_order(self.steps, "rate")
        return self

    def segments(self, end_ns: int) -> Iterator[tuple[int, int, Fraction]]:
        """(from_ns, to_ns, calls per second), gapless over [0, end_ns)."""
        return _segments(self.base, [(step.from_ns, step.to_ns, step.rate) for step in self.steps], end_ns)


class Workers(Part):
    """Workers over time. In YAML: `8`, or `[8, {from: 60s, to: 90s, workers: 16}]`."""

    base: Count
    steps: list[WorkerStep] = []

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return _base_and_steps(value)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _steps_in_order(self.steps, "worker")
        return self

    def segments(self, end_ns: int) -> Iterator[tuple[int, int, int]]:
        """(from_ns, to_ns, workers), gapless over [0, end_ns)."""
        return _segments(self.base, [(step.from_ns, step.to_ns, step.workers) for step in self.steps], end_ns)
