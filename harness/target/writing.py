"""The text of a new target file: from a few answers, or from an OpenAPI document. Commented, and sound as it stands.

An OpenAPI document is untrusted: bounded, read as plain JSON or YAML, and only names, methods, paths and small examples
are taken from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml

from harness.errors import BadInput
from harness.target.hosts import is_loopback

METHODS = ("post", "get", "put", "patch", "delete")
MOST_BYTES = 4 << 20
_MOST_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Wish:
    """What a new file is to say. outcomes: (status, outcome) of refusals that the service documents."""

    name: str
    url: str
    method: str = "POST"
    path: str = "/"
    body: Any = None
    tenants: tuple[str, ...] = ("A", "B", "C", "D")
    max_rate: str = "50/s"
    data: dict[str, Any] = field(default_factory=dict)
    outcomes: tuple[tuple[int, str], ...] = ()


def target_text(wish: Wish) -> str:
    host = urlsplit(wish.url).hostname or ""
    away = not is_loopback(host)
    variables = "\n".join(f"    {_quoted(tenant)}: {name}" for tenant, name in _variables(wish.tenants).items())
    body = "" if wish.body is None else f"\n  body: {_flow(wish.body)}"
    data = "".join(f"\n  {name}: {_flow(values)}" for name, values in wish.data.items())
    rules = "\n".join(
        f"    - {{status: {status}, outcome: {outcome}}}" for status, outcome in wish.outcomes or ((429, "throttled"),)
    )
    return f"""\
# yaml-language-server: $schema=../docs/target.schema.json
#
# A target of overload: where the service is, what a call of it is, and what its answers mean.
#
#   overload target check FILE       what can be judged; one call for each tenant, and how its answer was understood
#   overload run PROFILE --target FILE --dry-run
#
# Every key: docs/targets.md. Secrets are never here: tokens come from environment variables.

name: {_quoted(wish.name)}
url: {_quoted(wish.url)}

# Hosts that may be loaded; loopback always may.
{f"allow: [{host}]" if away else "# allow: [staging.example]"}

# What the owner of the service allows. A profile whose worst case, every call refused and re-planned, is above max_rate
# is not sent.
limits: {{max_rate: {wish.max_rate}, max_in_flight: 200}}

# When a running trial stops by itself.
abort: {{server_errors_pp: 25, latency_p95: 10s}}

# Each tenant's token: tenant -> environment variable.
credentials:
  header: Authorization
  form: "Bearer {{token}}"
  tenants:
{variables}

# One call. {{name}} is filled from `data` below, or is one of call, attempt, tenant, seq, round, uuid.
call:
  method: {wish.method}
  path: {_quoted(wish.path)}{body}
{"data:" + data if data else "# data: {word: [alpha, beta], n: {from: 1, to: 100}}"}

# What an answer means; the first rule that fits counts. Without one: 2xx is served, 429 throttled, the rest failed.
answers:
  outcome:
{rules}
    # - {{status: 503, header: {{X-Reason: shed}}, outcome: dependency_unavailable}}
    # - {{pointer: /error/code, equals: quota_exceeded, outcome: budget_exhausted}}
  queue_wait: {{server_timing: queue}} # or {{header: X-Queue-Ms, unit: ms}}, or {{pointer: /meta/queued_ms, unit: ms}}
  retry_after: [{{header: Retry-After}}]

# The service time of one call, about: it bounds how late the generator may be, and how much a wait may grow.
# service_time: 200ms

# The more the service lets us see, the more can be judged.
# evidence:
#   decisions:                # its own log of what it decided: JSON Lines that hold the header Overload-Attempt
#     file: /var/log/service/decisions.jsonl
#     fields: {{time: /ts, attempt: /attempt, tenant: /tenant, outcome: /outcome}}
#     time: rfc3339
#   dependencies: http://127.0.0.1:9000   # overload stub PROFILE --dependencies-only, called in place of its own
"""


def _variables(tenants: tuple[str, ...]) -> dict[str, str]:
    """No two tenants of one variable: to the service they would be one."""
    variables: dict[str, str] = {}
    for place, tenant in enumerate(tenants):
        name = "TOKEN_" + "".join(char if char.isascii() and char.isalnum() else "_" for char in tenant.upper())
        variables[tenant] = name if name not in variables.values() else f"{name}_{place + 1}"
    return variables


def _quoted(text: str) -> str:
    """As it stands where YAML reads it as this very text, else between quotes."""
    plain = re.fullmatch(r"[A-Za-z/][A-Za-z0-9_./:-]*", text) is not None and not text.endswith(":")
    return text if plain and yaml.safe_load(text) == text else orjson.dumps(text).decode()


def _flow(value: Any) -> str:
    """JSON is YAML."""
    return orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of an OpenAPI document."""

    method: str
    path: str
    body: Any
    data: dict[str, Any]
    outcomes: tuple[tuple[int, str], ...]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


def read_openapi(file: Path) -> tuple[str | None, list[Operation]]:
    """(url of its first server, operations). Raises BadInput."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror})") from None
    if len(data) > MOST_BYTES:
        raise BadInput(f"{file}: larger than {MOST_BYTES >> 20} MiB; give the document of one service")
    try:
        # Aliases are shared, not written out, and nothing but plain values is made.
        document = yaml.safe_load(data.decode("utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
        raise BadInput(f"{file}{where}: neither JSON nor YAML that can be read") from None
    paths = document.get("paths") if isinstance(document, dict) else None
    if not isinstance(paths, dict):
        raise BadInput(f"{file}: not an OpenAPI document: it has no `paths`; give one of version 3")
    servers = document.get("servers")
    first = servers[0].get("url") if isinstance(servers, list) and servers and isinstance(servers[0], dict) else None
    operations = list(_operations(document, paths))
    if not operations:
        raise BadInput(f"{file}: has no operation that can be called")
    return (first if isinstance(first, str) and "://" in first else None), operations


def _operations(document: dict[str, Any], paths: dict[str, Any]) -> Iterator[Operation]:
    for path, item in paths.items():
        if not isinstance(item, dict) or not isinstance(path, str) or not path.startswith("/"):
            continue
        for method in METHODS:
            operation = item.get(method)
            if isinstance(operation, dict):
                shared = item.get("parameters")
                yield _operation(document, method.upper(), path, operation, shared if isinstance(shared, list) else [])


def _operation(
    document: dict[str, Any], method: str, path: str, operation: dict[str, Any], shared: list[Any]
) -> Operation:
    own = operation.get("parameters")
    data: dict[str, Any] = {}
    query = []
    for raw in [*shared, *(own if isinstance(own, list) else [])]:
        parameter = _resolved(document, raw)
        name = parameter.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,50}", name):
            continue
        if parameter.get("in") == "query" and parameter.get("required") is True:
            query.append(f"{name}={{{name}}}")
        elif parameter.get("in") != "path":
            continue
        data[name] = [_example(document, parameter.get("schema"), 0) or "1"]
    known = path
    for name in re.findall(r"\{([^{}]*)\}", path):
        if name not in data:
            known = known.replace(f"{{{name}}}", "1")
    body = None
    if method in ("POST", "PUT", "PATCH"):
        content = _resolved(document, operation.get("requestBody")).get("content")
        media = content.get("application/json") if isinstance(content, dict) else None
        schema = media.get("schema") if isinstance(media, dict) else None
        body = media["example"] if isinstance(media, dict) and "example" in media else _example(document, schema, 0)
        body = {} if body is None else _escaped(body)
    return Operation(method, known + ("?" + "&".join(query) if query else ""), body, data, _refusals(operation))


def _escaped(value: Any) -> Any:
    """Braces of an example are no places to fill."""
    if isinstance(value, str):
        return value.replace("{", "{{").replace("}", "}}")
    if isinstance(value, dict):
        return {_escaped(key): _escaped(inner) for key, inner in value.items()}
    return [_escaped(inner) for inner in value] if isinstance(value, list) else value


def _refusals(operation: dict[str, Any]) -> tuple[tuple[int, str], ...]:
    means = {429: "throttled", 503: "dependency_unavailable", 504: "expired"}
    responses = operation.get("responses")
    told = {str(status) for status in responses} if isinstance(responses, dict) else set()
    return tuple((status, outcome) for status, outcome in means.items() if str(status) in told or status == 429)


def _resolved(document: dict[str, Any], node: Any) -> dict[str, Any]:
    """A local `$ref`, followed once or twice."""
    for _ in range(_MOST_DEPTH):
        if not isinstance(node, dict):
            return {}
        ref = node.get("$ref")
        if not isinstance(ref, str):
            return node
        found: Any = document
        for step in ref.removeprefix("#/").split("/"):
            found = found.get(step) if isinstance(found, dict) else None
        node = found
    return {}


def _example(document: dict[str, Any], schema: Any, depth: int) -> Any:
    """A small value that fits a schema: its example or default, else by its type; None for what cannot be told."""
    schema = _resolved(document, schema)
    for key in ("example", "default"):
        if key in schema:
            return schema[key]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties")
        if depth >= _MOST_DEPTH or not isinstance(properties, dict):
            return {}
        required = schema.get("required") or list(properties)
        return {name: _example(document, properties[name], depth + 1) for name in required if name in properties}
    if kind == "array":
        inner = _example(document, schema.get("items"), depth + 1) if depth < _MOST_DEPTH else None
        return [] if inner is None else [inner]
    return {"string": "text", "integer": 1, "number": 1, "boolean": True}.get(str(kind))
