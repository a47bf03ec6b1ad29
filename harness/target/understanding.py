"""What a target's answer means, as its target file says: a typed outcome, how long it waited, when to come back.

    the first rule of `answers.outcome` that fits      its outcome
    a body {"outcome": ...} in our words, if `typed`   that outcome
    2xx / 429 / anything else                          served / throttled, untyped / failed status_<n>, untyped

Pure, so that `overload target check` shows exactly what a trial will make of an answer. Whatever a target answers is
untrusted: text is bounded and made printable, durations that make no sense are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from harness.ledger.outcomes import FAILED, FROM_SERVICE, QUEUED, SERVED, THROTTLED
from harness.target.model import Answers, OutcomeRule, Place, RetryAfterPlace
from harness.target.tokens import NOTHING_TO_MASK, Redactor

MOST_TEXT = 200
_MOST_REASON = 100
_UNIT_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_MOST_NS = 10**16
_TIMING_LIMIT = 4096
_NUMBER = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*")
MISSING = object()


@dataclass(frozen=True, slots=True)
class Understood:
    """by: which rule said so, for people. typed: the answer itself said what it was. -1: not told."""

    outcome: str
    reason: str | None
    typed: bool
    by: str
    queue_wait_ns: int = -1
    service_ns: int = -1
    retry_after: str | None = None


class Understanding:
    """headers: names, in lower case, that an answer's reader must keep. wants_body: also of a success. redactor: of
    what a target says and we keep."""

    def __init__(self, answers: Answers, redactor: Redactor = NOTHING_TO_MASK) -> None:
        self._redactor = redactor
        self._rules = [_Rule(place, rule, redactor) for place, rule in enumerate(answers.outcome, 1)]
        self._typed = answers.typed
        self._queue, self._service = answers.queue_wait, answers.service_time
        self._retry = answers.retry_after
        places = [place for place in (self._queue, self._service) if place is not None]
        names = {rule_name.lower() for rule in answers.outcome for rule_name in rule.header}
        headers = [place.header for place in places] + [place.header for place in self._retry]
        names |= {header.lower() for header in headers if header is not None}
        names |= {"server-timing" for place in places if place.server_timing is not None}
        self.headers = frozenset(name.encode("ascii") for name in names)
        self.wants_body = any(place.pointer is not None for place in places) or any(
            rule.pointer is not None for rule in answers.outcome
        )

    def of(self, status: int, headers: Mapping[bytes, bytes], body: bytes | None) -> Understood:
        """headers: lower-case name -> value. body: None if it was too large to look at."""
        return self.of_document(status, headers, json_of(body))

    def of_document(self, status: int, headers: Mapping[bytes, bytes], document: Any) -> Understood:
        """document: the body, read; None if it is no JSON."""
        outcome, reason, typed, by = self._outcome(status, headers, document)
        return Understood(
            outcome,
            reason,
            typed,
            by,
            duration_at(self._queue, headers, document),
            duration_at(self._service, headers, document),
            self._retry_after(headers, document),
        )

    def _outcome(self, status: int, headers: Mapping[bytes, bytes], document: Any) -> tuple[str, str | None, bool, str]:
        for rule in self._rules:
            found = rule.fits(status, headers, document)
            if found is not None:
                return rule.outcome, found or None, True, rule.name
        if self._typed and isinstance(document, dict):
            said = document.get("outcome")
            if isinstance(said, str) and said in (*FROM_SERVICE, QUEUED):
                return said, _word(document.get("reason"), self._redactor), True, 'the body\'s own "outcome"'
        if 200 <= status < 300:
            return SERVED, None, True, "status 2xx"
        if status == 429:
            return THROTTLED, None, False, "status 429, which nothing in the answer explains"
        return FAILED, f"status_{status}", False, f"status {status}, for which there is no rule"

    def _retry_after(self, headers: Mapping[bytes, bytes], document: Any) -> str | None:
        for place in self._retry:
            raw = _raw_at(place, headers, document, self._redactor)
            if raw is None:
                continue
            if place.unit == "ms" and (match := _NUMBER.fullmatch(raw)):
                return f"{float(match[1]) / 1000:.3f}".rstrip("0").rstrip(".")
            return raw[:MOST_TEXT]
        return None


class _Rule:
    def __init__(self, place: int, rule: OutcomeRule, redactor: Redactor) -> None:
        self._redactor = redactor
        given = rule.status if isinstance(rule.status, list) else [] if rule.status is None else [rule.status]
        self._statuses = tuple(str(status) for status in given)
        self._headers = [(name.lower().encode("ascii"), text.lower()) for name, text in rule.header.items()]
        self._pointer = rule.pointer
        equals = rule.equals if isinstance(rule.equals, list) else [rule.equals]
        self._equals = None if rule.equals is None else equals
        self._reason = rule.reason
        self.outcome = str(rule.outcome)
        self.name = f"rule {place} of answers.outcome"

    def fits(self, status: int, headers: Mapping[bytes, bytes], document: Any) -> str | None:
        """The reason ('' for none) if every condition holds, else None."""
        if self._statuses and not any(_status_fits(text, status) for text in self._statuses):
            return None
        for name, text in self._headers:
            if name not in headers or text not in _printable(headers[name], 8192).lower():
                return None
        told = ""
        if self._pointer is not None:
            value = at_pointer(document, self._pointer)
            if value is MISSING:
                return None
            if self._equals is not None and not any(_same(value, wanted) for wanted in self._equals):
                return None
            told = _word(value, self._redactor) or ""
        return self._reason if self._reason is not None else told


def at_pointer(document: Any, pointer: str) -> Any:
    """RFC 6901. MISSING where there is nothing."""
    value = document
    for raw in pointer.split("/")[1:]:
        step = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif (
            isinstance(value, list)
            and step.isascii()
            and step.isdecimal()
            and len(step) < 10
            and int(step) < len(value)
        ):
            value = value[int(step)]
        else:
            return MISSING
    return value


def duration_ns(raw: Any, unit: str) -> int:
    """-1 for what is no duration: negative, NaN, beyond a hundred days, not a number."""
    if isinstance(raw, str):
        match = _NUMBER.fullmatch(raw)
        raw = float(match[1]) if match else None
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0 <= raw < 1e16:  # NaN is neither
        return -1
    ns = int(raw * _UNIT_NS[unit] + 0.5)
    return ns if ns <= _MOST_NS else -1


def duration_at(place: Place | None, headers: Mapping[bytes, bytes], document: Any) -> int:
    """Nanoseconds; -1 where the answer does not say."""
    if place is None:
        return -1
    if place.server_timing is not None:
        return _server_timing(headers.get(b"server-timing"), place.server_timing)
    if place.header is not None:
        raw = headers.get(place.header.lower().encode("ascii"))
        return -1 if raw is None else duration_ns(_printable(raw, MOST_TEXT), place.unit)
    value = at_pointer(document, place.pointer or "")
    return -1 if value is MISSING else duration_ns(value, place.unit)


def _server_timing(value: bytes | None, metric: str) -> int:
    """`dur` of one metric, in milliseconds as the Server-Timing specification (W3C) has it."""
    if value is None or len(value) > _TIMING_LIMIT:
        return -1
    for entry in _printable(value, _TIMING_LIMIT).split(","):
        name, *params = entry.split(";")
        if name.strip().lower() != metric.lower():
            continue
        for param in params:
            key, _, raw = param.partition("=")
            if key.strip().lower() == "dur":
                return duration_ns(raw.strip().strip('"'), "ms")
    return -1


def _raw_at(place: RetryAfterPlace, headers: Mapping[bytes, bytes], document: Any, redactor: Redactor) -> str | None:
    if place.header is not None:
        raw = headers.get(place.header.lower().encode("ascii"))
        return None if raw is None else _kept(raw.decode("latin-1"), MOST_TEXT, redactor)
    value = at_pointer(document, place.pointer or "")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return _kept(str(value), MOST_TEXT, redactor)


def json_of(body: bytes | None) -> Any:
    if not body or body[:1] not in b"{[ \t\r\n":
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _status_fits(text: str, status: int) -> bool:
    shown = str(status)
    return len(shown) == len(text) and all(want in ("x", have) for want, have in zip(text, shown, strict=True))


def _same(value: Any, wanted: Any) -> bool:
    """true is not 1, in JSON as in a rule."""
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _word(value: Any, redactor: Redactor) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return _kept(str(value), _MOST_REASON, redactor)


def _kept(text: str, limit: int, redactor: Redactor) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in redactor.masked(text, limit))


def _printable(value: bytes, limit: int) -> str:
    text = value[:limit].decode("latin-1")
    return text if text.isascii() and text.isprintable() else "".join(c if " " <= c <= "~" else "?" for c in text)
