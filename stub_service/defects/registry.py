"""Defects by name: each lays one deliberately wrong part over a healthy service, for a check to catch.

The healthy code knows nothing of them. A defect of the part `shared` takes the `SharedService` and its configuration,
one of the part `capacity` the `Controller` and its `CapacityConfig`; it replaces one part of what it is given
(`policy`, `refuse`, ...). A healthy twin looks suspicious and is right; it is laid the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SHARED, CAPACITY, CALLER = "shared", "capacity", "caller"
"""What a defect is laid over. Those of callers are registered, and laid, by whoever has callers."""


@dataclass(frozen=True, slots=True)
class Defect:
    """name: what `--defect` takes. about: what is wrong, one line. caught_by: checks that must FAIL, on the profile of
    the first of them or on one of its own. lay: (what the part serves with, its configuration). healthy: it is a twin,
    and every check must PASS. part: what it is laid over. also: checks that may FAIL beside, since they see the same
    wrong. twin_of: checks to which a twin looks suspicious."""

    name: str
    about: str
    caught_by: tuple[str, ...]
    lay: Callable[[Any, Any], None]
    healthy: bool = False
    part: str = SHARED
    also: tuple[str, ...] = ()
    twin_of: tuple[str, ...] = ()


DEFECTS: dict[str, Defect] = {}


def named(name: str) -> Defect:
    """Raises ValueError on a name that is not known."""
    if name not in DEFECTS:
        raise ValueError(f"unknown defect '{name}' (known: {', '.join(DEFECTS) or 'none'})")
    return DEFECTS[name]


def lay(name: str, service: Any, config: Any) -> None:
    """Lays a defect over the `SharedService` or the `Controller`, whichever it belongs to. Raises ValueError on a name
    that is not known."""
    named(name).lay(service, config)


def broken(
    name: str,
    about: str,
    lay: Callable[[Any, Any], None],
    *caught_by: str,
    part: str = CAPACITY,
    also: tuple[str, ...] = (),
) -> None:
    """Registers a defect, of the capacity layer unless told otherwise."""
    DEFECTS[name] = Defect(name, about, caught_by, lay, part=part, also=also)


def twin(name: str, about: str, lay: Callable[[Any, Any], None], *of: str, part: str = CAPACITY) -> None:
    """Registers a healthy twin: of the checks that it looks suspicious to."""
    DEFECTS[name] = Defect(name, f"twin: {about}", (), lay, healthy=True, part=part, twin_of=of)


def become(part: Any, kind: type) -> None:
    """Gives a healthy part the behaviour of a subclass, in place: everybody who holds it meets the defect. A part with
    `__slots__` needs a subclass with empty ones."""
    part.__class__ = kind
