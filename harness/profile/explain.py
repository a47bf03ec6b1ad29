"""Validation errors -> problems that a person can act on: the place in the text, the path as written, rule and remedy.

The models accept short forms (`rate: 8/s` for `rate: {base: 8/s}`), so a location inside a model is not yet a path in
the document; `_locate` walks the tree beside it. Wording is ours, so that it stays when pydantic changes its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness.profile.base import ASKED, HIDDEN, NAME_RULE, Part
from harness.profile.errors import MOST_FOUND, Problem, did_you_mean, listed
from harness.profile.nodes import Mark, Node
from harness.profile.paths import Path, Step, show_path
from harness.profile.rules import Contradiction, Contradictions


@dataclass(frozen=True, slots=True)
class _Place:
    """node: the deepest one on the way. key_mark: where its key stands. rest: steps that the document does not have."""

    node: Node
    path: Path
    key_mark: Mark
    variant: str | None
    rest: tuple[Step, ...] = ()

    def problem(self, rule: str, hint: str = "", *, at_key: bool = False, show: bool = True) -> Problem:
        mark = self.key_mark if at_key else self.node.mark
        node = self.node
        value = (
            node.shown() if show and (node.kind == "scalar" or (node.kind == "sequence" and node.size < 8)) else None
        )
        return Problem(mark.file, mark.line, mark.column, show_path(self.path), value, rule, hint, self.variant)


def explain(error: ValidationError, root: Node, model: type[Part], start: _Place | None = None) -> list[Problem]:
    """One problem for each error of a validation of `root` against `model`."""
    place = start or _Place(root, (), root.mark, None)
    problems: list[Problem] = []
    for details in error.errors(include_url=False, include_input=False)[:MOST_FOUND]:
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, Contradictions):
            problems += explain_contradictions(cause.problems, root, _locate(place, details["loc"]))
        else:
            problems.append(_explain_one(details, place, model))
    return problems


def explain_contradictions(found: Iterable[Contradiction], root: Node, start: _Place | None = None) -> list[Problem]:
    """start: where the paths begin; None: at the root."""
    problems = []
    begin = start or _Place(root, (), root.mark, None)
    tenants = root.mapping["tenants"].mapping if "tenants" in root.mapping else {}
    for path, message in islice(found, MOST_FOUND):
        place = _locate(begin, path)
        hint = did_you_mean(place.node.text, list(tenants), "tenants") if message == "there is no such tenant" else ""
        problems.append(place.problem(message, hint))
    return problems


def explain_params(root: Node, checks: Mapping[str, type[Part]]) -> list[Problem]:
    """Names and parameters of the checks that a profile asks for, against those that exist."""
    node = root.mapping.get("checks")
    problems: list[Problem] = []
    if node is None or node.kind != "sequence":
        return problems
    for i in range(min(len(node.sequence), MOST_FOUND)):
        item = _locate(_Place(root, (), root.mark, None), ("checks", i))
        name = _locate(item, ("name",)) if item.node.kind == "mapping" else item
        text = _name_of(item.node)
        if text is None:
            continue  # its shape is wrong, which is told of elsewhere
        if text not in checks:
            shown = replace(name, node=Node("scalar", name.key_mark, text, text)) if name.rest else name
            problems.append(shown.problem("there is no such check", did_you_mean(text, list(checks), "checks")))
            continue
        params = _locate(item, ("params",))
        given = params.node if item.node.kind == "mapping" and not params.rest else None
        value = given.plain() if given is not None and given.value is None else {}
        try:
            checks[text].model_validate(value)
        except ValidationError as error:
            problems += explain(error, root, checks[text], params)
    return problems


def _name_of(node: Node) -> str | None:
    if node.kind == "scalar":
        return node.value if isinstance(node.value, str) else None
    if "name" in node.mapping:
        return _name_of(node.mapping["name"])
    return next(iter(node.mapping)) if len(node.mapping) == 1 else None


def _locate(start: _Place, loc: Iterable[Step]) -> _Place:
    """Follows a location of the models as far as the document goes, through the short forms."""
    place, steps = start, list(loc)
    while steps:
        taken, written = _next(place.node, steps)
        child = place.node.child(written) if taken else None
        if child is None:
            return replace(place, rest=tuple(steps))
        key_mark = place.node.keys.get(str(written), child.mark) if place.node.kind == "mapping" else child.mark
        place = _Place(child, (*place.path, written), key_mark, child.variant or place.variant)
        steps = steps[taken:]
    return place


def _next(node: Node, steps: list[Step]) -> tuple[int, Step]:
    """How many steps of the location one step in the document stands for (0: none fits), and that step."""
    step = steps[0]
    if node.kind == "mapping":
        if str(step) in node.mapping:
            return 1, step
        if isinstance(step, int) and len(steps) > 1:
            return 2, steps[1]  # one budget stands for the list of it
        only = next(iter(node.mapping), "")
        return (1, only) if step == "params" and len(node.mapping) == 1 else (0, step)
    if node.kind == "sequence":
        if isinstance(step, int):
            return 1, step
        if step == "steps" and len(steps) > 1 and isinstance(steps[1], int):
            # `[8/s, {...}]` has its base first; a batch written as a list is its steps alone.
            return 2, steps[1] + (not node.sequence or node.sequence[0].kind == "scalar")
        return 1, {"base": 0, "from": 0, "to": 1}.get(step, len(node.sequence))
    return 0, step


def _explain_one(details: ErrorDetails, start: _Place, model: type[Part]) -> Problem:
    loc, kind = details["loc"], details["type"]
    if loc and loc[-1] == "[key]":
        rule = _of_pattern(details) if kind == "string_pattern_mismatch" else NAME_RULE
        return _locate(start, loc[:-1]).problem(rule, at_key=True, show=False)
    place = _locate(start, loc)
    if kind == "missing":
        return place.problem(f"'{loc[-1]}' is missing", at_key=True, show=False)
    if kind == "extra_forbidden":
        known = _keys(_type_at(model, loc[:-1]))
        return place.problem("unknown key", did_you_mean(str(loc[-1]), known, "keys here"), at_key=True, show=False)
    annotation = _type_at(model, loc)
    if kind == "literal_error":
        options = [str(option) for option in get_args(annotation)]
        return place.problem(f"expected one of {listed(options)}", _close(place.node.text, options))
    return place.problem(_rule(details, annotation), show=details.get("ctx", {}).get("pattern") not in HIDDEN)


_KINDS = {
    "int_type": "expected a whole number, such as 8",
    "int_parsing": "expected a whole number, such as 8",
    "int_from_float": "expected a whole number, such as 8",
    "float_type": "expected a number, such as 0.5",
    "float_parsing": "expected a number, such as 0.5",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected text; quote it if it looks like a number or a word such as true",
    "list_type": "expected a list, such as [a, b]",
    "dict_type": "expected a mapping of keys to values",
    "model_type": "expected a mapping of keys to values",
    "string_too_short": "expected text that is not empty",
}


def _rule(details: ErrorDetails, annotation: Any) -> str:
    kind, ctx = details["type"], details.get("ctx", {})
    if kind in ("model_type", "dict_type") and (keys := _keys(annotation)):
        return f"expected a mapping with keys such as {listed(keys, 6)}"
    if kind in _KINDS:
        return _KINDS[kind]
    if kind == "value_error":
        return str(ctx["error"])
    for word, phrase in (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than")):
        if word in ctx:
            return f"expected {phrase} {ctx[word]}"
    if kind in ("too_short", "too_long"):
        few = kind == "too_short"
        return f"expected at {'least' if few else 'most'} {ctx['min_length' if few else 'max_length']} entries"
    if kind == "string_pattern_mismatch":
        return _of_pattern(details)
    if kind == "string_too_long":
        return f"expected at most {ctx['max_length']} characters"
    return details["msg"][:1].lower() + details["msg"][1:]


def _of_pattern(details: ErrorDetails) -> str:
    pattern = details.get("ctx", {}).get("pattern", "")
    return ASKED.get(pattern, f"does not fit the pattern {pattern}")


def _close(word: str, options: list[str]) -> str:
    guess = did_you_mean(word, options)
    return guess.split(" (")[0] if guess.startswith("did") else ""


def _keys(annotation: Any) -> list[str]:
    """Keys that a model takes, as written; nothing for what is no model."""
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return [info.alias or name for name, info in annotation.model_fields.items()]
    return []


def _type_at(model: type[Part], loc: Iterable[Step]) -> Any:
    """The type that the models give a location, optional and annotated peeled off."""
    current: Any = model
    for step in loc:
        origin = get_origin(current)
        if origin in (list, tuple):
            current = _peeled(get_args(current)[0])
        elif origin is dict:
            current = _peeled(get_args(current)[1])
        elif isinstance(current, type) and issubclass(current, Part):
            fields = ((info.alias or name, info) for name, info in current.model_fields.items())
            current = next((_peeled(info.annotation) for alias, info in fields if alias == step), None)
        else:
            return None
    return current


def _peeled(annotation: Any) -> Any:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _peeled(get_args(annotation)[0])
    if origin in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return _peeled(kinds[0]) if len(kinds) == 1 else annotation
    return annotation
