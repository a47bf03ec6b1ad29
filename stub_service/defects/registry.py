"""Defects by name: each lays one deliberately wrong part over a healthy service, for a check to catch.

The healthy code knows nothing of them. A defect takes the service and its configuration, and replaces one part of the
service (`policy`, `refuse`, ...). A healthy twin looks suspicious and is right; it is laid the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stub_service.admission.service import SharedService
from stub_service.config import SharedServiceConfig


@dataclass(frozen=True, slots=True)
class Defect:
    """name: what `--defect` takes. about: what is wrong, one line. caught_by: checks that must FAIL; others that may.
    healthy: it is a twin, and every check must PASS."""

    name: str
    about: str
    caught_by: tuple[str, ...]
    lay: Callable[[SharedService, SharedServiceConfig], None]
    healthy: bool = False


DEFECTS: dict[str, Defect] = {}


def lay(name: str, service: SharedService, config: SharedServiceConfig) -> None:
    """Raises ValueError on a name that is not known."""
    if name not in DEFECTS:
        raise ValueError(f"unknown defect '{name}' (known: {', '.join(DEFECTS) or 'none'})")
    DEFECTS[name].lay(service, config)
