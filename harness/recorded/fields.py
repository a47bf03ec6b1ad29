"""Which field of a line is what: the field map, and who the tenant is.

    --map time=ts,tenant=auth.sub,status=code,cost=tokens,path=url,method=verb,queue_time=wait:ms,duration=took:ms
    --tenant remote_addr | user | file | host | header:NAME | cookie:NAME | query:NAME | field:NAME | path:N

A name is a field as the log has it; `auth.sub` is the field of that name, else `sub` inside `auth`. What may be a
credential (an Authorization header, a cookie, an API key in a query) tells tenants apart as a digest, never as itself.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from harness.recorded.errors import RecordedError, printable
from harness.recorded.record import MAX_NAME, MAX_PATH, NO_TENANT

Get = Callable[[Mapping[str, Any]], Any]

ROLES = ("time", "tenant", "status", "cost", "path", "method", "queue_time", "duration")
_USUAL = {
    "time": ("time", "timestamp", "ts", "@timestamp", "time_local", "time_iso8601", "msec", "datetime", "date"),
    "status": ("status", "status_code", "statusCode", "code"),
    "path": ("path", "request_uri", "uri", "url"),
    "method": ("method", "request_method", "http_method", "verb"),
    "cost": ("cost",),
    "queue_time": ("queue_time", "queue_time_ms"),
    "duration": (
        "upstream_response_time",
        "request_time",
        "duration",
        "duration_ms",
        "duration_us",
        "duration_ns",
        "response_time",
        "response_time_ms",
        "latency_ms",
        "elapsed_ms",
    ),
}
_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_MOST_PARAMETERS = 200
_STATUSES = {str(status): status for status in range(100, 600)}
_METHOD = re.compile(r"[A-Z]{1,20}", re.ASCII)
_SECRET_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"))
_SECRET = re.compile(r"(?:^|[-_.])(?:key|apikey|token|secret|password|passwd|pwd|signature|sig|auth|session|sid|jwt)$")
_TENANTS = (
    "write remote_addr, user, file, host, header:x-tenant, cookie:NAME, query:NAME, field:NAME or path:N (the N-th "
    "part of the path, from 1)"
)
_PATH = re.compile(rf"/[!-~]{{0,{MAX_PATH - 1}}}", re.ASCII)


def parse_map(text: str | None) -> dict[str, str]:
    """`time=ts,status=code` -> {"time": "ts", ...}. Raises RecordedError."""
    roles: dict[str, str] = {}
    for part in (text or "").split(","):
        role, equals, field = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if role not in ROLES or not equals or not field:
            raise RecordedError("--map", f"'{printable(part)}' is not ROLE=FIELD", f"the roles are {', '.join(ROLES)}")
        roles[role] = field
    return roles


def role_getter(role: str, roles: Mapping[str, str], sample: Mapping[str, Any]) -> Get | None:
    """How to find a role's value: the field that was named, else a usual name that the sample line has."""
    if role in roles:
        named = roles[role]
        return getter(named.rpartition(":")[0] if role in ("queue_time", "duration") and _unit(named) else named)
    by_lower = {str(name).lower(): str(name) for name in reversed(list(sample))}
    for usual in _USUAL.get(role, ()):
        if (name := by_lower.get(usual.lower())) is not None:
            return getter(name)
    return None


def getter(name: str) -> Get:
    """The field of that name, else what is found along its dots; the first of a list; None if there is nothing."""
    keys = name.split(".")
    if len(keys) == 1:
        return lambda fields: value[0] if type(value := fields.get(name)) is list and value else value

    def get(fields: Mapping[str, Any]) -> Any:
        value = fields.get(name)
        if value is None:
            value = fields
            for key in keys:
                value = value.get(key) if isinstance(value, dict) else None
        return value[0] if isinstance(value, list) and value else value

    return get


def header_getter(header: str) -> Get:
    """A logged request header, by the names under which nginx, Caddy, Envoy and others log it."""
    flat = header.lower().replace("-", "_")
    names = [f"http_{flat}", f"req_header_{flat}", header, header.lower(), flat]
    spellings = (header, header.lower(), "-".join(word.capitalize() for word in header.split("-")), flat)
    names += [f"{place}.{s}" for place in ("headers", "header", "request.headers", "req.headers") for s in spellings]
    getters = [getter(name) for name in dict.fromkeys(names)]

    def get(fields: Mapping[str, Any]) -> Any:
        return next((value for one in getters if (value := one(fields)) is not None), None)

    return get


def tenant_getter(choice: str | None, roles: Mapping[str, str], source_name: str) -> tuple[Get, str]:
    """(how to find the tenant, what it was taken from). Raises RecordedError. `path:N` is asked of the path alone."""
    if choice is None and "tenant" in roles:
        choice = f"field:{roles['tenant']}"
    kind, _, name = (choice or "").partition(":")
    if kind in ("header", "field") and name:
        found = header_getter(name) if kind == "header" else getter(name)
        return (hidden(found) if is_secret(name) else found), str(choice)
    if kind in ("cookie", "query") and name:
        found = _of_group("cookies", name) if kind == "cookie" else _of_query(name)
        return (hidden(found) if kind == "cookie" or is_secret(name) else found), str(choice)
    if choice == "host":
        return (lambda fields: fields.get("host") or fields.get("http_host") or fields.get("server_name")), choice
    if choice == "remote_addr":
        return getter("remote_addr"), choice
    if choice == "user":
        user, plain = getter("remote_user"), getter("user")
        return (lambda fields: user(fields) if "remote_user" in fields else plain(fields)), choice
    if choice == "file":
        return (lambda fields: source_name), choice
    if kind == "path" and name.isascii() and name.isdigit() and 1 <= int(name) <= 50:
        place = int(name)
        return (lambda fields: _segment(fields.get(":path"), place)), str(choice)
    raise RecordedError(
        "--tenant",
        f"'{printable(choice or '')}' says not who the tenant is",
        _TENANTS,
    )


def is_secret(name: str) -> bool:
    """Whether a header, a parameter or a field of that name may hold a credential."""
    lowered = name.lower()
    return lowered in _SECRET_HEADERS or _SECRET.search(lowered) is not None


def hidden(found: Get) -> Get:
    """The same, told apart by a digest. 48 bits of a token of usual length give nothing of it away."""

    def get(fields: Mapping[str, Any]) -> Any:
        value = found(fields)
        if not isinstance(value, str) or not value.strip() or value.strip() == "-":
            return None
        return f"key-{hashlib.blake2b(value.strip().encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"

    return get


def _of_group(group: str, name: str) -> Get:
    def get(fields: Mapping[str, Any]) -> Any:
        values = fields.get(group)
        return values.get(name) if isinstance(values, dict) else None

    return get


def _of_query(name: str) -> Get:
    return lambda fields: query_value(fields.get(":path"), name)


def query_value(path: Any, name: str) -> str | None:
    """The first value of that name in the query of a path."""
    query = path.partition("?")[2] if isinstance(path, str) else ""
    if query.count("&") >= _MOST_PARAMETERS:
        return None
    return next((value for key, value in parse_qsl(query) if key == name), None)


def without_secrets(path: str) -> str:
    """The path with the values of parameters that may be credentials replaced by `_`."""
    plain, mark, query = path.partition("?")
    if not mark:
        return path
    parts = [f"{key}=_" if is_secret(key) else part for part in query.split("&") for key in (part.partition("=")[0],)]
    return f"{plain}?{'&'.join(parts)}"


def _segment(path: Any, place: int) -> str | None:
    parts = path.split("?", 1)[0].split("/") if isinstance(path, str) else []
    return parts[place] if place < len(parts) else None


def tenant_name(value: Any) -> str:
    """A name that prints on one line, of at most 200 characters. One that had to be escaped or cut ends in `~` and a
    digest of the whole, so that two hostile names never become one. Blanks around a name do not count."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return NO_TENANT
    text = str(value).strip()
    if text in ("", "-"):
        return NO_TENANT
    if len(text) <= MAX_NAME and text.isprintable():
        return text
    shown = printable(text, MAX_NAME)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{shown[: MAX_NAME - 17]}~{digest}"


def status_of(value: Any) -> int:
    """100 to 599, else 0: unknown."""
    return _STATUSES.get(value if type(value) is str else str(value), 0)


def cost_of(value: Any) -> float:
    """A finite number that is not negative, else -1: unknown."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return -1.0
    try:
        cost = float(value)
    except (ValueError, OverflowError):
        return -1.0
    return cost if math.isfinite(cost) and cost >= 0 else -1.0


def _unit(field: str) -> str | None:
    tail = field.rpartition(":")[2] if ":" in field else ""
    return tail if tail in _UNITS_NS else None


def queue_unit_ns(field: str) -> int:
    """`wait:ms` says its unit; else the end of the name (`queue_ms`); else seconds, as nginx writes them."""
    unit = _unit(field) or next((u for u in ("ns", "us", "ms") if field.lower().endswith(f"_{u}")), "s")
    return _UNITS_NS[unit]


def duration_field(roles: Mapping[str, str], sample: Mapping[str, Any]) -> str:
    """The name of the field that is the duration, with its unit if it was given; empty: there is none."""
    if "duration" in roles:
        return roles["duration"]
    by_lower = {str(name).lower(): str(name) for name in reversed(list(sample))}
    return next((by_lower[usual] for usual in _USUAL["duration"] if usual in by_lower), "")


def duration_ns_of(value: Any, unit_ns: int) -> int:
    """-1: unknown. nginx writes `0.01, 0.02` where it asked several servers one after another: their sum."""
    if isinstance(value, str) and ("," in value or ":" in value):
        parts = [queue_ns_of(part.strip(), unit_ns) for part in value.replace(":", ",").split(",")]
        return sum(part for part in parts if part >= 0) if any(part >= 0 for part in parts) else -1
    return queue_ns_of(value, unit_ns)


def queue_ns_of(value: Any, unit_ns: int) -> int:
    number = cost_of(value)
    return int(number * unit_ns) if 0 <= number * unit_ns < 2**62 else -1


def method_of(value: Any) -> str | None:
    """A method that is safe to send, else None."""
    return value if isinstance(value, str) and _METHOD.fullmatch(value) else None


def path_of(value: Any) -> str | None:
    """A path (and query) that is safe to send, else None; of `http://host/path` the path."""
    if not isinstance(value, str):
        return None
    if value[:1] != "/" and "://" in value[:10]:
        value = "/" + value.partition("://")[2].partition("/")[2]
    value = value.partition("#")[0]
    return value if _PATH.fullmatch(value) else None


def split_request(value: Any) -> tuple[str | None, str | None]:
    """`GET /a HTTP/1.1` -> ("GET", "/a"), each only as it stands; (None, None) for what is no request line."""
    parts = value.split(" ") if isinstance(value, str) else []
    return (parts[0], parts[1]) if len(parts) >= 2 else (None, None)
