"""A page that lists every key of a file: made from the models that validate it, so that it cannot drift.

    python -m harness.profile.reference > docs/reference/profile.md
    python -m harness.target.reference > docs/reference/target.md

A table a model, in the order in which a reader meets them: key, type and unit, default, meaning. Types, bounds and
defaults are those of the JSON Schema (schema.py), what a model is for is its docstring, what a key means is
meanings.py. A test holds the pages to what this prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.profile.meanings import MEANINGS
from harness.profile.schema import full, profile_schema, properties, shown

Schema = Mapping[str, Any]
_UNITS = {"ns": "duration", "/": "rate", "%": "percent"}
_LONGEST_CHOICE = 12

PROFILE_INTRO = """\
# Every key of a profile

Made from the models that read profiles; `python -m harness.profile.reference` prints it. How profiles are written, with
examples: [profiles.md](../profiles.md). A duration is `200ms`, `2s`, `5m`; a rate `8/s`, `20/m`.
A bare number is neither.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page is made of. root: the model that a whole file is; meanings: model -> key -> one line."""

    intro: str
    root: str
    schema: Schema
    meanings: Mapping[str, Mapping[str, str]]


def profile_page() -> Page:
    return Page(PROFILE_INTRO, "Profile", profile_schema(), MEANINGS)


def markdown(page: Page) -> str:
    """The whole page."""
    found = [page.intro]
    for name, model in models(page):
        heading = "" if name == page.root else f"## {name}\n\n"
        found.append(f"{heading}{model.get('description', '')}\n\n{_table(page, name, model)}")
    return "\n".join(found)


def models(page: Page) -> Iterator[tuple[str, Schema]]:
    """(name, schema) of the root and of everything that it leads to, each once, as a reader comes to them."""
    definitions = page.schema["$defs"]
    ahead, seen = [(page.root, page.schema)], {page.root}
    while ahead:
        name, model = ahead.pop(0)
        yield name, model
        inner = [ref for value in properties(model).values() for ref in _refs(value)]
        new = [ref for ref in dict.fromkeys(inner) if shown(ref) not in seen]
        seen |= {shown(ref) for ref in new}
        ahead[:0] = [(shown(ref), definitions[ref]) for ref in new]


def _table(page: Page, name: str, model: Schema) -> str:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    needed = set(full(model).get("required", ()))
    for key, value in properties(model).items():
        meaning = page.meanings.get(name, {}).get(key, "")
        cells = (f"`{key}`", _kind(value), "needed" if key in needed else _default(value), meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(value: Schema) -> str:
    if "default" not in value or value["default"] in ([], "", {}):
        return "–"
    default = value["default"]
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _kind(value: Schema) -> str:
    """What may stand there, in words."""
    if "$ref" in value:
        return _link(value["$ref"])
    if "anyOf" in value:
        kinds = dict.fromkeys(_kind(one) for one in value["anyOf"] if one.get("type") != "null")
        return " or ".join(kinds)
    if "enum" in value:
        return " or ".join(f"`{one}`" for one in value["enum"][:_LONGEST_CHOICE])
    if "const" in value:
        return f"`{value['const']}`"
    kind = value.get("type")
    if kind == "array":
        return f"list of {_kind(value.get('items', {}))}"
    if kind == "object":
        inner = value.get("additionalProperties")
        return f"name → {_kind(inner)}" if isinstance(inner, dict) else "mapping"
    if kind == "string":
        # Units have a pattern and examples; a plain text may have a pattern alone.
        pattern = value.get("pattern", "") if "examples" in value else ""
        return next((unit for mark, unit in _UNITS.items() if mark in pattern), "text")
    words = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
    return words.get(kind or "", "any") + _bounds(value)


def _bounds(value: Schema) -> str:
    above, below = value.get("exclusiveMinimum"), value.get("exclusiveMaximum")
    least, most = value.get("minimum"), value.get("maximum")
    told = [
        f"above {_number(above)}" if above is not None else f"from {_number(least)}" if least is not None else "",
        f"below {_number(below)}" if below is not None else f"to {_number(most)}" if most is not None else "",
    ]
    return "".join(f" {one}" for one in told if one)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].removeprefix("#/$defs/")
        for inner in value.values():
            yield from _refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _refs(inner)


def _link(ref: str) -> str:
    name = shown(ref.removeprefix("#/$defs/"))
    return f"[{name}](#{name.lower().replace('.', '')})"


if __name__ == "__main__":
    print(markdown(profile_page()), end="")
