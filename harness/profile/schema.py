"""The JSON Schema of profiles, for completion and checks in an editor.

Generated from the very models that validate (model.py), so that it cannot drift; what is added here are the short forms
that the models accept before validation: `rate: 8/s`, `[8/s, {from: 30s, to: 70s, rate: 40/s}]`, `calm: [0s, 30s]`,
`service_time: 200ms`, a batch as the list of its steps, a check by its name; and what each key means (meanings.py),
which editors show. The schema knows no rule between fields: `overload profile check` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.profile.meanings import MEANINGS
from harness.profile.model import Profile
from harness.profile.units import show_duration

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def profile_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a profile file."""
    schema = Profile.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    _one_or_several(definitions["Tenant"]["properties"]["budget"])
    for name, short in _short_forms(definitions).items():
        definitions[name] = _either(definitions[name], short)
    tidy(schema)
    tell(schema, "Profile", MEANINGS)
    schema["title"] = "overload profile"
    return {"$schema": DIALECT, **schema}


def _short_forms(definitions: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """What each model takes beside its full mapping."""
    rate = definitions["RateStep"]["properties"]["rate"]
    duration = definitions["RateStep"]["properties"]["from"]
    workers = definitions["Workers"]["properties"]["base"]
    return {
        "Window": [{"type": "array", "prefixItems": [duration, duration], "items": False, "minItems": 2}],
        "Rates": [rate, _list_of(rate, "RateStep")],
        "Workers": [workers, _list_of(workers, "WorkerStep")],
        "ServiceTime": [duration],
        "Batch": [{"type": "array", "items": {"$ref": "#/$defs/Step"}, "minItems": 1}],
        "CheckRef": [
            {"type": "string"},
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": {"type": ["object", "null"]},
            },
        ],
    }


def _one_or_several(field: dict[str, Any]) -> None:
    """A budget alone stands for the list of it, and null for none."""
    field.update(anyOf=[field["items"], {"type": "array", "items": field.pop("items")}, {"type": "null"}])
    del field["type"]
    field.pop("default", None)


def _list_of(first: dict[str, Any], step: str) -> dict[str, Any]:
    return {"type": "array", "prefixItems": [first], "items": {"$ref": f"#/$defs/{step}"}, "minItems": 1}


def _either(full: dict[str, Any], short: list[dict[str, Any]]) -> dict[str, Any]:
    about: dict[str, Any] = {key: full[key] for key in ("title", "description") if key in full}
    inner = {key: value for key, value in full.items() if key not in about}
    forms = [{key: value for key, value in form.items() if key != "title"} for form in short]
    return {**about, "anyOf": [*forms, inner]}


def tidy(node: Any) -> None:
    """Docstrings become one paragraph each; generated titles go; defaults are shown as people write them."""
    if isinstance(node, list):
        for inner in node:
            tidy(inner)
        return
    if not isinstance(node, dict):
        return
    if isinstance(node.get("description"), str):
        node["description"] = "\n\n".join(" ".join(part.split()) for part in node["description"].split("\n\n"))
    if "patternProperties" in node:
        # A rule of names, not a choice among kinds of names: then a name that breaks it is refused, not ignored.
        ((pattern, node["additionalProperties"]),) = node.pop("patternProperties").items()
        node["propertyNames"] = {**node.get("propertyNames", {}), "pattern": pattern}
    properties = node.get("properties")
    if isinstance(properties, dict):
        for value in properties.values():
            _tidy_property(value)
    for inner in node.values():
        tidy(inner)


def tell(schema: dict[str, Any], root: str, meanings: Mapping[str, Mapping[str, str]]) -> None:
    """Gives each key its meaning: model -> key -> one line. root: the model that the whole schema is."""
    for name, model in ((root, schema), *((shown(name), model) for name, model in schema["$defs"].items())):
        for key, value in properties(model).items():
            if line := meanings.get(name, {}).get(key):
                value["description"] = line


def shown(definition: str) -> str:
    """The name of a model; where two share one, with the module that tells them apart: `capacity.Adaptive`."""
    return ".".join(definition.split("__")[-2:])


def full(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """The mapping with all keys, where a model has short forms, too."""
    return model if "properties" in model else next(one for one in model["anyOf"] if "properties" in one)


def properties(model: Mapping[str, Any]) -> dict[str, Any]:
    """Key -> its schema."""
    found: dict[str, Any] = full(model)["properties"]
    return found


def _tidy_property(value: dict[str, Any]) -> None:
    value.pop("title", None)
    default = value.get("default")
    if isinstance(default, int) and not isinstance(default, bool) and value.get("type") == "string":
        value["default"] = show_duration(default)
    elif default is None or isinstance(default, dict):
        value.pop("default", None)
