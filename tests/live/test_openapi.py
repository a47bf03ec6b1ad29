"""docs/openapi.yaml against the stub: every path and method it names is answered as it says, and none is left out."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from harness.target.stub import StubProcess
from stub_service.app import served_paths
from tests.live.stub_client import config
from tests.live.test_stub_capacity import exchange
from tests.unit.dependency_bench import config as capacity_config
from tests.unit.dependency_bench import dependency

DOCUMENT = yaml.safe_load((Path(__file__).resolve().parents[2] / "docs" / "openapi.yaml").read_text())
METHODS = ("get", "post", "put", "delete", "patch", "head")
TYPES = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


def resolved(node):
    while isinstance(node, dict) and "$ref" in node:
        target = DOCUMENT
        for key in node["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        node = target
    return node


def breaches(value, schema, at="body"):
    """Where a value is not as its schema says: type, const, enum, required, properties, items."""
    schema = resolved(schema)
    found = []
    kinds = schema.get("type", [])
    allowed = [python for kind in ([kinds] if isinstance(kinds, str) else kinds) for python in TYPES[kind]]
    if allowed and (type(value) not in allowed):
        return [f"{at} is {value!r}, not {kinds}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{at} is {value!r}, not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at} is {value!r}, not one of {schema['enum']}")
    if isinstance(value, dict):
        found += [f"{at} lacks {key}" for key in schema.get("required", ()) if key not in value]
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key)
            found += breaches(inner, known, f"{at}.{key}") if known else []
            if known is None and schema.get("additionalProperties", True) is False:
                found.append(f"{at}.{key} is not described")
    if isinstance(value, list) and "items" in schema:
        found += [breach for n, one in enumerate(value) for breach in breaches(one, schema["items"], f"{at}[{n}]")]
    return found


def operations():
    return [
        (path, method, item[method], item.get("parameters", []))
        for path, item in DOCUMENT["paths"].items()
        for method in METHODS
        if method in item
    ]


def concrete(path, parameters):
    for parameter in map(resolved, parameters):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(parameter["example"]))
    return path


def content_of(operation):
    return resolved(operation.get("requestBody", {})).get("content", {}).get("application/json", {})


def mismatch(operation, status, headers, body):
    """What is not as described in an answer."""
    described = operation["responses"].get(str(status)) or (operation["responses"].get("default"))
    if described is None:
        return [f"status {status} is not described"]
    described = resolved(described)
    kind = headers["content-type"].split(";")[0]
    if kind not in described["content"]:
        return [f"content {kind} is not described"]
    wanted = [name for name in described.get("headers", {}) if name in ("Location", "Server-Timing", "Overload-Cursor")]
    missing = [f"header {name} is missing" for name in wanted if name.lower() not in headers]
    return missing + breaches(body, described["content"][kind]["schema"])


@pytest.mark.live
@pytest.mark.untimed
def test_every_operation_is_answered_as_described(tmp_path):
    made = capacity_config(dependency("customer", service_ms=1), dependency("billing", service_ms=1))
    wrong = {}
    with StubProcess(config(service_ms=1), tmp_path, capacity=made) as stub:
        for path, method, operation, shared in operations():
            real = concrete(path, [*shared, *operation.get("parameters", [])])
            content = content_of(operation)
            if content:
                assert breaches(content["example"], content["schema"], "example") == []
            told = exchange(stub, method.upper(), real, content.get("example"))
            found = mismatch(operation, *told)
            if not 200 <= told[0] < 300:
                found.append(f"status {told[0]}: {told[2]}")
            if operation.get("security"):
                unknown = exchange(stub, method.upper(), real, content.get("example"), tenant=None)
                assert unknown[0] == 401
                found += mismatch(operation, *unknown)
            if content:
                bad = exchange(stub, method.upper(), real, b"[]")
                assert bad[0] == 400
                found += mismatch(operation, *bad)
            if path == "/runs/{run}/steps":
                batch = {"batch": "b2", "wait": False, "steps": [{"step": "s2", "dependency": "customer"}]}
                later = exchange(stub, method.upper(), real, batch)
                assert later[0] == 202
                found += mismatch(operation, *later)
            if found:
                wrong[f"{method} {path}"] = found
    assert wrong == {}


def test_every_path_that_is_served_is_described():
    described = {path.split("/")[1] for path in DOCUMENT["paths"]}
    assert described == {path.split("/")[1] for path in served_paths()}


def test_a_breach_is_seen():
    schema = {"$ref": "#/components/schemas/Opened"}
    good = {"outcome": "served", "run": "r1", "deadline_ns": 1, "remaining": {"attempts": 1, "retry_tokens": 1,
            "budgets": {}}}  # fmt: skip
    assert breaches(good, schema) == []
    for changed in ({"outcome": "x"}, {"run": 1}, {"deadline_ns": True}, {"remaining": {}}, {"remaining": []}):
        assert breaches(good | changed, schema) != []
    assert breaches([{"step": 1}], {"type": "array", "items": {"$ref": "#/components/schemas/Step"}}) != []
    assert mismatch({"responses": {}}, 500, {}, {}) == ["status 500 is not described"]
