"""`--time-scale`: the same trial in less time. Durations shrink, rates grow alike, counts and shares stay.

Works on any model whose fields say so (`Scales` in model.py), a check's parameters included:

    duration' = floor(duration * factor), but at least 1 ns where it was not 0        [ns]
    rate'     = rate / factor                                                         [1/s]

The factor is taken as the decimal that was written: 0.3 is 3/10, not the nearest binary number. Recorded schedules are
files: whoever reads one multiplies its `due_ns` by `Loaded.time_scale`. Nothing is validated again here.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from harness.profile.base import Part, Scales

T = TypeVar("T", bound=Part)
_Change = Callable[[Any, Fraction], Any]


def exact_factor(factor: float) -> Fraction:
    """0.3 -> 3/10."""
    return Fraction(str(factor))


def scale_ns(ns: int, factor: Fraction) -> int:
    """A duration or instant at another time scale."""
    return max(int(ns * factor), 1 if ns else 0)


def scaled(profile: T, factor: float) -> T:
    """A copy with every duration multiplied by `factor`, every rate divided by it."""
    exact = exact_factor(factor)
    return profile if exact == 1 else _scaled_part(profile, exact)


def _scaled_part(part: T, factor: Fraction) -> T:
    update = {
        name: change(value, factor)
        for name, change in _changes(type(part))
        if (value := getattr(part, name)) is not None
    }
    return part.model_copy(update=update) if update else part


@cache
def _changes(model: type[Part]) -> tuple[tuple[str, _Change], ...]:
    """What scaling does to each field of a model; fields that it leaves alone are left out."""
    found = []
    for name, info in model.model_fields.items():
        change = _of_metadata(info.metadata) or _of_type(info.annotation)
        if change is not None:
            found.append((name, change))
    return tuple(found)


def _of_metadata(metadata: list[Any] | tuple[Any, ...]) -> _Change | None:
    quantity = next((mark.quantity for mark in metadata if isinstance(mark, Scales)), None)
    if quantity == "duration":
        return scale_ns
    return _scale_rate if quantity == "rate" else None


def _scale_rate(rate: Fraction, factor: Fraction) -> Fraction:
    return rate / factor


def _of_type(annotation: Any) -> _Change | None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _of_metadata(arguments[1:]) or _of_type(arguments[0])
    if origin in (Union, UnionType):
        changes = [change for kind in arguments if kind is not NoneType and (change := _of_type(kind))]
        return changes[0] if changes else None
    if origin in (list, tuple):
        inner = _of_type(arguments[0]) if arguments else None
        if inner is None:
            return None
        return lambda values, factor: type(values)(inner(value, factor) for value in values)
    if origin is dict:
        of_value = _of_type(arguments[1])
        if of_value is None:
            return None
        return lambda values, factor: {key: of_value(value, factor) for key, value in values.items()}
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return _scaled_part
    return None
