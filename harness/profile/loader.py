"""A file -> a Profile, or every problem with it at once.

    text -> nodes (nodes.py) -> variant and `--set` laid in -> models (model.py) -> rules between fields -> groups of
    tenants dealt out (groups.py) -> time scale

What comes back holds the *resolved document*: what the profile says once the variant and the sets are applied, short
forms kept, `variants` left out (they are spent), not time-scaled. It loads again to the same profile, and is what a
trial's manifest keeps. Reading sends nothing, opens no other file, and raises nothing but ProfileError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.profile import nodes
from harness.profile.base import Part
from harness.profile.errors import Problem, ProfileError
from harness.profile.explain import explain, explain_contradictions, explain_params
from harness.profile.groups import dealt_out, has_groups
from harness.profile.model import Profile
from harness.profile.nodes import Node
from harness.profile.overrides import apply_sets, apply_variant, check_variants, names_of
from harness.profile.rules import contradictions
from harness.profile.salvage import sound_parts
from harness.profile.scale import scaled
from harness.profile.units import MAX_DURATION_NS, MAX_RATE_PER_S, show_duration

MIN_SCALE, MAX_SCALE = 0.001, 1000.0

Checks = Mapping[str, type[Part]]
"""Known checks: name -> the model of its parameters."""


@dataclass(frozen=True)
class Loaded:
    """profile: validated, time-scaled. document: resolved, not time-scaled (module docstring). variants: names of all
    that the file has."""

    profile: Profile
    document: dict[str, Any]
    variant: str | None
    time_scale: float
    variants: tuple[str, ...] = ()


def load(
    path: Path,
    *,
    variant: str | None = None,
    sets: Sequence[str] = (),
    time_scale: float = 1.0,
    checks: Checks | None = None,
) -> Loaded:
    """Reads a profile. sets: `path=value` each, applied in order, after the variant. checks: None leaves the names and
    parameters of checks unexamined. Raises ProfileError."""
    root, problems = _compose(path)
    if root.kind != "mapping":
        raise ProfileError([*problems, _not_a_mapping(root)])
    root, more = _laid_over(root, variant, sets)
    return _finish(root, [*problems, *more], variant, time_scale, checks)


def from_document(
    document: Any, *, origin: str = "<document>", time_scale: float = 1.0, checks: Checks | None = None
) -> Loaded:
    """The same from a document in memory, such as the one that a manifest keeps. Raises ProfileError."""
    root = nodes.from_plain(document, origin)
    if root.kind != "mapping":
        raise ProfileError([_not_a_mapping(root)])
    root, problems = _laid_over(root, None, ())
    return _finish(root, problems, None, time_scale, checks)


def variant_names(path: Path) -> tuple[str, ...]:
    """Names of a profile's variants, in order. Raises ProfileError where the file cannot be read."""
    root, _ = _compose(path)
    return names_of(root)


def _compose(path: Path) -> tuple[Node, list[Problem]]:
    name = str(path)
    try:
        with open(path, "rb") as file:
            data = file.read(nodes.MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ProfileError([Problem(name, None, None, "", None, f"the file cannot be read: {reason}")]) from None
    return nodes.compose(nodes.decode(data, name), name)


def _not_a_mapping(root: Node) -> Problem:
    rule = "a profile is a mapping of keys such as name, duration and tenants"
    return Problem(root.mark.file, root.mark.line, root.mark.column, "", root.shown(), rule)


def _laid_over(root: Node, variant: str | None, sets: Sequence[str]) -> tuple[Node, list[Problem]]:
    problems = check_variants(root)
    if variant is not None:
        root, more = apply_variant(root, variant)
        problems = [*problems, *(problem for problem in more if problem not in problems)]
    root, more = apply_sets(root, sets)
    return root, [*problems, *more]


def _finish(
    root: Node, problems: list[Problem], variant: str | None, time_scale: float, checks: Checks | None
) -> Loaded:
    problems = [*problems, *_check_scale(time_scale)]
    document: dict[str, Any] = {key: node.plain() for key, node in root.mapping.items() if key != "variants"}
    profile: Profile | None = None
    try:
        profile = Profile.model_validate(document)
    except ValidationError as error:
        problems += explain(error, root, Profile)
        problems += explain_contradictions(contradictions(sound_parts(document)), root)
    if checks is not None:
        problems += explain_params(root, checks)
    if profile is None or problems:
        raise ProfileError(_in_order(problems))
    if has_groups(document):
        profile, document = _with_groups(document, root)
    if time_scale != 1:
        profile = scaled(profile, time_scale)
        _check_scaled(profile, time_scale)
    return Loaded(profile, document, variant, time_scale, names_of(root))


def _with_groups(document: dict[str, Any], root: Node) -> tuple[Profile, dict[str, Any]]:
    """Raises ProfileError where names meet (`light-1` beside `light` with a count), or there are too many tenants."""
    made = dealt_out(document)
    try:
        many = sum(tenant.get("count", 1) for tenant in document["tenants"].values())
        if len(made["tenants"]) < many:
            raise ProfileError([_of_tenants(root, "two tenants have one name once the groups are dealt out")])
        return Profile.model_validate(made), made
    except ValidationError as error:
        raise ProfileError([_of_tenants(root, f"groups: {error.errors()[0]['msg']}")]) from None


def _of_tenants(root: Node, rule: str) -> Problem:
    mark = root.keys["tenants"]
    return Problem(mark.file, mark.line, mark.column, "tenants", None, rule)


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By place, as a reader meets them; what has no line last. One of equal problems is enough."""
    unique = dict.fromkeys(problems)
    return sorted(unique, key=lambda problem: (problem.line is None, problem.line or 0, problem.column or 0))


def _scale_problem(time_scale: float, rule: str, hint: str = "") -> Problem:
    return Problem("--time-scale", None, None, "", str(time_scale), rule, hint)


def _check_scale(time_scale: float) -> list[Problem]:
    if not math.isfinite(time_scale) or not MIN_SCALE <= time_scale <= MAX_SCALE:
        return [_scale_problem(time_scale, f"a time scale lies from {MIN_SCALE} to {MAX_SCALE:g}")]
    return []


def _check_scaled(profile: Profile, time_scale: float) -> None:
    """A sound profile can leave the sound range when scaled. Raises ProfileError."""
    problems = []
    if profile.duration > MAX_DURATION_NS:
        problems.append(_scale_problem(time_scale, f"the trial would last {show_duration(profile.duration)}"))
    windows = [window for _, window in profile.phases.items()]
    tenants = profile.tenants.values()
    steps = [step for tenant in tenants if tenant.rate for step in tenant.rate.steps]
    rates = [tenant.rate.base for tenant in tenants if tenant.rate] + [step.rate for step in steps]
    if max(rates, default=0) > MAX_RATE_PER_S:
        problems.append(_scale_problem(time_scale, f"a rate would be above {MAX_RATE_PER_S}/s"))
    workers = profile.service.workers.steps if profile.service else []
    spans = [(span.from_ns, span.to_ns) for group in (windows, steps, workers) for span in group]
    if any(from_ns >= to_ns for from_ns, to_ns in spans):
        problems.append(_scale_problem(time_scale, "a window would be shorter than a nanosecond", "scale less"))
    if problems:
        raise ProfileError(problems)
