"""The JSON Schema fits what the models accept, short forms included, and refuses what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.profile.loader import load, variant_names
from harness.profile.nodes import compose
from harness.profile.schema import profile_schema

ROOT = Path(__file__).parents[2]
PROFILES = sorted((ROOT / "profiles").glob("*.yaml"))
SCHEMA = profile_schema()

TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool}
KNOWN = {
    "$schema", "$defs", "$ref", "title", "description", "default", "examples", "type", "enum", "anyOf", "pattern",
    "properties", "required", "additionalProperties", "propertyNames", "items", "prefixItems", "minItems", "maxItems",
    "minLength", "maxLength", "minProperties", "maxProperties", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum",
}  # fmt: skip


def fits(value: Any, schema: Any) -> bool:
    """The part of JSON Schema that the schema uses; a keyword that is not understood is an error."""
    if isinstance(schema, bool):
        return schema
    assert set(schema) <= KNOWN
    if "$ref" in schema and not fits(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")]):
        return False
    if "anyOf" in schema and not any(fits(value, inner) for inner in schema["anyOf"]):
        return False
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_a(value, kind) for kind in kinds):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, str):
        return "pattern" not in schema or re.search(schema["pattern"], value) is not None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return within(value, schema)
    if isinstance(value, dict):
        return fits_object(value, schema)
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        rest = value[len(first) :]
        return all(map(fits, value, first)) and all(fits(item, schema.get("items", True)) for item in rest)
    return True


def fits_object(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    properties = schema.get("properties", {})
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
        return False
    if any(key not in value for key in schema.get("required", [])):
        return False
    names = all(fits(key, schema.get("propertyNames", True)) for key in value)
    return names and all(
        fits(inner, properties.get(key, schema.get("additionalProperties", True))) for key, inner in value.items()
    )


def within(value: float, schema: dict[str, Any]) -> bool:
    return (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and not ("exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"])
        and not ("exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"])
    )


def is_a(value: Any, kind: str) -> bool:
    if kind in ("integer", "number"):
        return not isinstance(value, bool) and isinstance(value, int if kind == "integer" else int | float)
    return isinstance(value, TYPES[kind])


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_profile_fits_as_written_and_with_each_variant(path):
    written = compose(path.read_text(), path.name)[0].plain()
    assert fits(written, SCHEMA)
    for name in variant_names(path):
        assert fits(load(path, variant=name).document, SCHEMA)


WORKED = compose((ROOT / "profiles" / "worked_example.yaml").read_text(), "x")[0].plain()
TENANT = {"tenants": {"A": {"rate": "8/s"}}}


@pytest.mark.parametrize(
    "change",
    [
        {"tenants": {"A": {"rate": {"base": "8/s", "steps": [{"from": "1s", "to": "2s", "rate": "3/m"}]}}}},
        {"tenants": {"A": {"recorded": {"file": "x.jsonl"}, "patience": None}}},
        {"phases": {"calm": {"from": "0s", "to": "1.5s"}, "burst": None}},
        {"checks": ["a", {"b": {"x": 1}}, {"b": None}, {"name": "c", "params": {}}]},
        {"service": {**WORKED["service"], "service_time": {"distribution": "lognormal", "mean": "1s", "sigma": 0.5}}},
        {"service": {**WORKED["service"], "workers": [8, {"from": "1s", "to": "2s", "workers": 0}]}},
    ],
    ids=str,
)
def test_every_short_form_and_long_form_fits(change):
    assert fits({**WORKED, **change}, SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        {"durations": "1s"},
        {"duration": 120},
        {"duration": "120"},
        {"name": "a b"},
        {"tenants": {}},
        {"tenants": {"A": {"rate": 8}}},
        {"tenants": {"A": {"rate": []}}},
        {"tenants": {"A": {"rate": ["8/s", {"from": "1s", "rate": "1/s"}]}}},
        {"tenants": {"A": {"rate": "8/s", "pace": "odd"}}},
        {"tenants": {" A": {"rate": "8/s"}}},
        {"phases": {"calm": ["0s"]}},
        {"phases": {"calm": ["0s", "1s", "2s"]}},
        {"checks": [{"a": {}, "b": {}}]},
        {"checks": [3]},
        {"service": {**WORKED["service"], "workers": 0}},
        {"seed": 1.5},
    ],
    ids=str,
)
def test_what_the_models_refuse_does_not_fit(change):
    assert not fits({**WORKED, **change}, SCHEMA)


def test_every_part_says_what_it_is():
    assert all(part.get("description") for part in SCHEMA["$defs"].values())
    assert SCHEMA["description"]


def test_the_schema_in_the_docs_is_the_current_one():
    """If this fails: overload profile schema > docs/profile.schema.json"""
    assert json.loads((ROOT / "docs" / "profile.schema.json").read_text()) == SCHEMA


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_profile_names_the_schema_for_editors(path):
    first = path.read_text().splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (path.parent / first.partition("$schema=")[2]).resolve() == ROOT / "docs" / "profile.schema.json"
