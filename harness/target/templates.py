"""Requests with places to fill: `/items/{id}?q={word}`, headers, and JSON bodies, from seeded data.

    {name}        the value of that name; in a path percent-encoded, in a header as text, in a body as it is
    {{ and }}     braces
    "{name}"      alone as a text of a body: the value itself, a number or a list as it is; a key whose value is one of
                  what the call does not have is left out

Pure. Values come from a recording, a target file or a run, and are untrusted: none can end a header, add one, or leave
its place in the path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote
from uuid import UUID

import orjson

from harness.target.model import Data, Numbers, Request

CALL_NAMES = ("call", "attempt", "tenant", "seq", "round", "due_ms", "uuid")
"""What every request may name."""
LIMIT_NAMES = (
    "deadline_ms", "attempts", "parallel", "retry_tokens", "budgets", "depth", "fan_out", "sessions", "bytes",
    "payload", "context_tokens", "credits", "agent_tokens", "iterations", "branch_tokens",
)  # fmt: skip
"""Limits that a run may be opened with."""
RUN_NAMES = (
    "run", "parent_run", "batch", "steps", "traffic_class", "task_class", "priority", "request_class", "forecast",
    *LIMIT_NAMES,
)  # fmt: skip
STEP_NAMES = ("step", "dependency", "operation", "tool", "idempotency_key", "coalesce")
FAULT_NAMES = ("dependency", "kind", "factor", "status", "retry_after", "operation")

_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")
_NO_HEADER = re.compile(r"[^\x20-\x7e\x80-\xff]")

Pieces = tuple[str | tuple[str], ...]
"""Literal text, and names as one-element tuples."""


def parse(text: str) -> Pieces:
    """Raises ValueError on a brace that stands alone."""
    pieces: list[str | tuple[str]] = []
    at = 0
    for match in _PIECE.finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        if match[1]:
            pieces.append((match[1],))
        elif len(match[0]) == 2:
            pieces.append(match[0][0])
        else:
            raise ValueError(f"'{match[0]}' stands alone; write '{match[0] * 2}' for a brace, or {{name}} for a value")
    pieces.append(text[at:])
    return tuple(piece for piece in pieces if piece)


def names_in(value: Any) -> set[str]:
    """Every name in the texts of a body, a path or a header. Raises ValueError."""
    if isinstance(value, str):
        return {piece[0] for piece in parse(value) if isinstance(piece, tuple)}
    if isinstance(value, dict):
        return set().union(*(names_in(inner) | names_in(key) for key, inner in value.items()))
    if isinstance(value, list):
        return set().union(*(names_in(inner) for inner in value))
    return set()


def names_of(request: Request) -> set[str]:
    """Raises ValueError."""
    return names_in(request.path) | names_in(list(request.headers.values())) | names_in(request.body)


@dataclass(frozen=True, slots=True)
class Filled:
    """One request ready to be sent, without the credential and without what the client itself sets."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None


class RequestTemplate:
    """A request that is filled once a call."""

    __slots__ = ("_body", "_headers", "_path", "_raw_body", "method")

    def __init__(self, request: Request) -> None:
        self.method = request.method
        self._path = parse(request.path)
        self._headers = tuple((name, parse(text)) for name, text in request.headers.items())
        self._raw_body = isinstance(request.body, str)
        self._body = _compiled(request.body)
        kinds = {name.lower() for name, _ in self._headers}
        if request.body is not None and "content-type" not in kinds:
            kind = "text/plain; charset=utf-8" if self._raw_body else "application/json"
            self._headers = (*self._headers, ("Content-Type", (kind,)))

    def fill(self, values: Mapping[str, Any]) -> Filled:
        """Raises KeyError on a name that has no value."""
        path = "".join(p if isinstance(p, str) else quote(_text(values[p[0]]), safe="") for p in self._path)
        headers = tuple((name, _header(pieces, values)) for name, pieces in self._headers)
        body = None
        if self._body is not None:
            made = _filled(self._body, values)
            body = _text(made).encode("utf-8", "replace") if self._raw_body else orjson.dumps(made)
        return Filled(self.method, path, headers, body)


def value_of(body: Any, values: Mapping[str, Any]) -> Any:
    """A body, or a part of one, filled."""
    return _filled(_compiled(body), values)


@dataclass(frozen=True, slots=True)
class _Pieces:
    pieces: Pieces


def _compiled(value: Any) -> Any:
    if isinstance(value, str):
        return _Pieces(parse(value))
    if isinstance(value, dict):
        return {key: _compiled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_compiled(inner) for inner in value]
    return value


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, _Pieces):
        pieces = value.pieces
        if len(pieces) == 1 and isinstance(pieces[0], tuple):
            return values[pieces[0][0]]
        return "".join(p if isinstance(p, str) else _text(values[p[0]]) for p in pieces)
    if isinstance(value, dict):
        return {key: _filled(inner, values) for key, inner in value.items() if not _absent(inner, values)}
    if isinstance(value, list):
        return [_filled(inner, values) for inner in value]
    return value


def _absent(value: Any, values: Mapping[str, Any]) -> bool:
    """One placeholder alone, for what this call does not have: a limit that the run does not name, say."""
    if not isinstance(value, _Pieces) or len(value.pieces) != 1 or not isinstance(value.pieces[0], tuple):
        return False
    return values[value.pieces[0][0]] is None


def _header(pieces: Pieces, values: Mapping[str, Any]) -> str:
    text = "".join(p if isinstance(p, str) else _text(values[p[0]]) for p in pieces)
    return _NO_HEADER.sub("?", text).strip()


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else orjson.dumps(value).decode()


class Draws:
    """The data of a target file: the same values for the same seed, tenant and sequence, whoever asks first."""

    __slots__ = ("_data", "_seed")

    def __init__(self, data: Mapping[str, Data], seed: int) -> None:
        self._data = dict(data)
        self._seed = seed

    def of(self, tenant: str, seq: int) -> dict[str, Any]:
        """A value of each name, and `uuid`."""
        rng = Random(f"{self._seed}:{tenant}:{seq}:data")
        values: dict[str, Any] = {"uuid": str(UUID(int=rng.getrandbits(128), version=4))}
        for name, source in self._data.items():
            if isinstance(source, Numbers):
                values[name] = rng.randint(source.from_, source.to)
            else:
                values[name] = source[rng.randrange(len(source))]
        return values
