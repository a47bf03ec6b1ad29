"""Defects by name: each lays one deliberately wrong part over a healthy service, for a check to catch.

The healthy code knows nothing of them. A defect of the part `shared` takes the `SharedService` and its configuration,
one of the part `capacity` the `Controller` and its `CapacityConfig`; it replaces one part of what it is given
(`policy`, `refuse`, ...). A healthy twin looks suspicious and is right; it is laid the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SHARED, CAPACITY = "shared", "capacity"


@dataclass(frozen=True, slots=True)
class Defect:
    """name: what `--defect` takes. about: what is wrong, one line. caught_by: checks that must FAIL, on a profile of the
    first of them or of its own. lay: (what the part serves with, its configuration). healthy: it is a twin, and every
    check must PASS. part: what it is laid over. also: checks that may FAIL beside, since they see the same wrong."""

    name: str
    about: str
    caught_by: tuple[str, ...]
    lay: Callable[[Any, Any], None]
    healthy: bool = False
    part: str = SHARED
    also: tuple[str, ...] = ()


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
