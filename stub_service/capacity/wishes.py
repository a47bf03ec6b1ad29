"""What a caller of the controller asks, read from JSON: every field with its type and bound, nothing guessed.

Raises `BadRequest`, and nothing else: it names the field, the rule, and what would be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

import orjson

from stub_service.capacity.config import TRAFFIC_CLASSES
from stub_service.capacity.cost_config import REQUEST_CLASSES
from stub_service.capacity.forecast import Hints
from stub_service.capacity.ports import READ, WRITE, Batch, RunWish, Step
from stub_service.capacity.tree import MOST_USED, TreeLimits

MOST_STEPS = 1000
MOST_TEXT = 200
MOST_COUNT = 1_000_000
MOST_DEADLINE_MS = 7 * 86_400_000


class BadRequest(Exception):
    """One sentence; `field` is the dotted path of what is wrong, empty for the body itself."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


def read_wish(body: bytes, dependencies: Iterable[str]) -> RunWish:
    """The body of `POST /runs`; an empty one wishes nothing."""
    document = _object(body) if body.strip() else {}
    _known(document, "", _WISH)
    deadline_ms = _number(document, "deadline_ms", MOST_DEADLINE_MS)
    return RunWish(
        traffic_class=_one_of(document, "traffic_class", "", TRAFFIC_CLASSES, "autonomous"),
        task_class=_text(document, "task_class", ""),
        priority=_count(document, "priority", "", 0) or 0,
        release=_text(document, "release", ""),
        deadline_ns=None if deadline_ms is None else max(1, round(deadline_ms * 1_000_000)),
        attempts=_count(document, "attempts", "", 1),
        parallel=_count(document, "parallel", "", 1),
        retry_tokens=_count(document, "retry_tokens", "", 0),
        budgets=_budgets(document, tuple(dependencies)),
        parent_run=_text(document, "parent_run", ""),
        request_class=_one_of(document, "request_class", "", REQUEST_CLASSES, "") or None,
        forecast=_hints(document),
        tree=_tree(document),
    )


def read_batch(body: bytes, request: str | None, dependencies: Iterable[str]) -> tuple[Batch, bool]:
    """(the batch of `POST /runs/<run>/steps`, whether its caller waits)."""
    document = _object(body)
    _known(document, "", _BATCH)
    name = _text(document, "batch", "")
    if name is None:
        raise BadRequest("batch", 'is missing; give the batch a name, such as "b1"')
    steps = document.get("steps")
    if not isinstance(steps, list) or not 1 <= len(steps) <= MOST_STEPS:
        raise BadRequest("steps", f"must be a list of 1 to {MOST_STEPS} steps")
    names = tuple(dependencies)
    read = tuple(_step(step, f"steps[{place}]", names) for place, step in enumerate(steps))
    seen: set[str] = set()
    for place, step in enumerate(read):
        if step.step in seen:
            raise BadRequest(
                f"steps[{place}].step", f"'{step.step}' is twice in this batch; each step has its own name"
            )
        seen.add(step.step)
    return Batch(name, read, _count(document, "round", "", 0) or 0, request), _flag(document, "wait", "", True)


_WISH = (
    "traffic_class", "task_class", "priority", "release", "deadline_ms", "attempts", "parallel", "retry_tokens",
    "budgets", "parent_run", "request_class", "forecast", *(_TREE := tuple(one.name for one in fields(TreeLimits))),
)  # fmt: skip
_NONE_IS_A_LIMIT = ("depth", "fan_out", "credits")
"""Of a tree: what a run may have none of."""
_BATCH = ("batch", "round", "wait", "steps")
_HINTS = ("depth", "fan_out", "tools", "memory")
_STEP = ("step", "dependency", "operation", "tool", "idempotency_key", "coalesce", "may_wait", "high_risk")


def _step(value: Any, at: str, dependencies: tuple[str, ...]) -> Step:
    if not isinstance(value, dict):
        raise BadRequest(at, 'must be an object, such as {"step": "s1", "dependency": "customer"}')
    _known(value, at, _STEP)
    step, dependency = _text(value, "step", at), _text(value, "dependency", at)
    if step is None:
        raise BadRequest(f"{at}.step", 'is missing; give the step a name, such as "s1"')
    if dependency is None:
        raise BadRequest(f"{at}.dependency", f"is missing; one of {', '.join(dependencies)}")
    if dependency not in dependencies:
        raise BadRequest(f"{at}.dependency", _unknown(dependency, dependencies))
    return Step(
        step,
        dependency,
        _one_of(value, "operation", at, (READ, WRITE), READ),
        _text(value, "tool", at) or "call",
        _text(value, "idempotency_key", at),
        _text(value, "coalesce", at),
        _flag(value, "may_wait", at, True),
        _flag(value, "high_risk", at, False),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest("", f"the body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    if not isinstance(document, dict):
        raise BadRequest("", "the body must be a JSON object")
    return document


def _known(document: Mapping[str, Any], at: str, keys: tuple[str, ...]) -> None:
    for key in document:
        if key not in keys:
            raise BadRequest(_path(at, key[:MOST_TEXT]), _unknown(key[:MOST_TEXT], keys))


def _unknown(value: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(value, known, 1)
    return f"is not known{f'; did you mean {near[0]}?' if near else ''} (known: {', '.join(known)})"


def _text(document: Mapping[str, Any], key: str, at: str) -> str | None:
    value = document.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MOST_TEXT or not value.isprintable():
        raise BadRequest(_path(at, key), f"must be text of 1 to {MOST_TEXT} printable characters")
    return value


def _count(document: Mapping[str, Any], key: str, at: str, least: int, most: int = MOST_COUNT) -> int | None:
    value = document.get(key)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise BadRequest(_path(at, key), f"must be a whole number from {least} to {most}")
    return value


def _number(document: Mapping[str, Any], key: str, most: int) -> float | None:
    value = document.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value <= most:
        raise BadRequest(key, f"must be a number above 0, and at most {most}")
    return float(value)


def _flag(document: Mapping[str, Any], key: str, at: str, default: bool) -> bool:
    value = document.get(key, default)
    if type(value) is not bool:
        raise BadRequest(_path(at, key), "must be true or false")
    return value


def _one_of(document: Mapping[str, Any], key: str, at: str, known: tuple[str, ...], default: str) -> str:
    value = document.get(key)
    if value is None:
        return default
    if not isinstance(value, str) or value not in known:
        raise BadRequest(_path(at, key), _unknown(str(value)[:MOST_TEXT], known))
    return value


def _budgets(document: Mapping[str, Any], dependencies: tuple[str, ...]) -> dict[str, int] | None:
    value = document.get("budgets")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRequest("budgets", 'must be an object of dependency to calls, such as {"customer": 6}')
    for name in value:
        if name not in dependencies:
            raise BadRequest(f"budgets.{name[:MOST_TEXT]}", _unknown(name[:MOST_TEXT], dependencies))
    return {name: _count(value, name, "budgets", 0) or 0 for name in value}


def _hints(document: Mapping[str, Any]) -> Hints | None:
    """What the caller says of its request; a number that it leaves out has its default."""
    value = document.get("forecast")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRequest("forecast", 'must be an object, such as {"depth": 2, "fan_out": 5, "tools": 3}')
    _known(value, "forecast", _HINTS)
    counts = {name: _count(value, name, "forecast", 0 if name in ("tools", "memory") else 1) for name in _HINTS}
    return Hints(**{name: count for name, count in counts.items() if count is not None})


def _tree(document: Mapping[str, Any]) -> TreeLimits | None:
    """None where nothing of the tree is named."""
    named = {
        name: _count(document, name, "", 0 if name in _NONE_IS_A_LIMIT else 1, MOST_USED)
        for name in _TREE if name in document
    }  # fmt: skip
    return TreeLimits(**named) if any(n is not None for n in named.values()) else None


def _path(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
