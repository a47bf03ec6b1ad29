"""What there is to know of one check: its page in docs/checks, and what the code itself knows.

The page is prose, the same in the documentation and in the terminal. Parameters, evidence and defects are read from
the models and the registries at the time of asking, so that they are never out of date. Nothing here judges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

from harness.callers import judge as callers
from harness.callers.parameters import Params as CallerParams
from harness.checks import CHECKS
from harness.checks.tiers import Tier, needs
from harness.errors import BadInput
from harness.profile.base import Part, Scales
from harness.profile.units import show_duration
from harness.shipped import PAGES_OF_CHECKS

SECTIONS = ("Why", "What drives it", "How it is judged", "When it fails", "When it cannot tell")


@dataclass(frozen=True, slots=True)
class Parameter:
    """default: as a profile writes it."""

    name: str
    default: str
    unit: str


@dataclass(frozen=True, slots=True)
class Explained:
    """sections: title -> Markdown, in the order of SECTIONS. needs: words; tiers: what a target file must give beside
    answers. parameters_say: what they mean, as their model tells it."""

    name: str
    judges: str
    sections: Mapping[str, str]
    parameters: tuple[Parameter, ...]
    parameters_say: str
    needs: str
    tiers: tuple[Tier, ...]


def names() -> dict[str, str]:
    """Every check, with what it judges in a line."""
    return {name: check.judges for name, check in (CHECKS | callers.CHECKS).items()}


def explained(name: str) -> Explained:
    """name: of a check, whole. Raises BadInput if its page cannot be read."""
    model: type[Part] = CHECKS[name].params if name in CHECKS else CallerParams
    said = " ".join((model.__doc__ or "").split()) if model.__doc__ != Part.__doc__ else ""
    return Explained(
        name,
        names()[name],
        sections_of(name),
        tuple(parameters_of(model)),
        said,
        CHECKS[name].needs if name in CHECKS else "what a real caller sends to the stand-in (overload judge)",
        needs(name) if name in CHECKS else (),
    )


def sections_of(name: str) -> dict[str, str]:
    """Raises BadInput."""
    path = PAGES_OF_CHECKS / f"{name}.md"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); install overload again") from None
    parts = re.split(r"(?m)^## (.+)$", text)
    return {title.strip(): body.strip() for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def parameters_of(model: type[Part]) -> list[Parameter]:
    """In the order in which the model names them."""
    found = []
    for name, field in model.model_fields.items():
        duration = any(isinstance(mark, Scales) and mark.quantity == "duration" for mark in _marks(field))
        default = field.get_default(call_default_factory=True)
        found.append(Parameter(name, _shown(default, duration), _unit(name, duration, default)))
    return found


def _marks(field: Any) -> list[Any]:
    """What the type of a field is marked with, also within `| None`."""
    marks = list(field.metadata)
    for part in get_args(field.annotation):
        marks += list(getattr(part, "__metadata__", ()))
    return marks


def _shown(default: Any, duration: bool) -> str:
    if default is None:
        return "left out"
    if duration and isinstance(default, int):
        return show_duration(default)
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, Fraction):
        return f"{float(default) * 100:g}%"
    return str(default).lower() if isinstance(default, bool) else str(default)


def _unit(name: str, duration: bool, default: Any) -> str:
    if duration:
        return "time"
    if name.endswith("_pp"):
        return "points"
    if name.endswith("_pct"):
        return "percent"
    if isinstance(default, bool):
        return "yes or no"
    if isinstance(default, int):
        return "count"
    return "number" if isinstance(default, float) else ""
