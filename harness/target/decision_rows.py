"""A line of a service's own decision log -> a row of our ledger, by the field map of its target file.

Pure, and never trusting: a row that cannot be understood is counted with its reason, not guessed at. Rows of calls that
are not ours (no attempt id of this trial) are left out: a staging service serves others, too.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import orjson

from harness.ledger.outcomes import FROM_SERVICE, QUEUED
from harness.target.model import DecisionLog
from harness.target.understanding import MISSING, at_pointer, duration_ns

MOST_LINE = 1 << 20
_STARTED = "started"
_OURS = re.compile(r"\d{1,6}\.\d{1,11}(?:\.\d{1,3})?")
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:?\d\d)", re.ASCII
)
_PER_UNIT = {"unix_s": 1_000_000_000, "unix_ms": 1_000_000, "unix_ns": 1, "monotonic_ns": 1}
_KEPT_WORDS = 20


@dataclass(slots=True)
class Reading:
    """What became of the lines. words: of outcomes that are neither ours nor mapped."""

    rows: int = 0
    foreign: int = 0
    unreadable: int = 0
    words: Counter[str] = field(default_factory=Counter)


class DecisionRows:
    """epoch_ns: when the trial began, on the log's own clock (CLOCK_REALTIME for all but `monotonic_ns`)."""

    def __init__(self, log: DecisionLog, epoch_ns: int) -> None:
        self._log = log
        self._epoch_ns = epoch_ns
        self.read = Reading()

    def of(self, line: bytes) -> dict[str, Any] | None:
        """The row as decisions.jsonl has it, times still by the other clock; None for what is not of this trial."""
        document = None
        if len(line) <= MOST_LINE:
            with suppress(orjson.JSONDecodeError):
                document = orjson.loads(line)
        if not isinstance(document, dict):
            self.read.unreadable += 1
            return None
        fields = self._log.fields
        attempt = _text(document, fields.attempt)
        call = _text(document, fields.call)
        known = attempt or call
        if known is None or not _OURS.fullmatch(known):
            self.read.foreign += 1
            return None
        at_ns = time_ns(at_pointer(document, fields.time), self._log.time)
        outcome = self._outcome(document)
        if at_ns is None or outcome is None:
            self.read.unreadable += 1
            return None
        attempt = attempt if attempt is not None and attempt.count(".") == 2 else f"{known}.1"
        row: dict[str, Any] = {
            "t_ns": at_ns - self._epoch_ns,
            "call": attempt.rpartition(".")[0],
            "attempt_id": attempt,
            "outcome": outcome,
        }
        row |= self._told(document)
        self.read.rows += 1
        return row

    def _outcome(self, document: dict[str, Any]) -> str | None:
        word = at_pointer(document, self._log.fields.outcome)
        if isinstance(word, bool) or not isinstance(word, str | int):
            return None
        said = self._log.outcomes.get(str(word))
        if said is not None:
            return str(said)
        if word in (*FROM_SERVICE, QUEUED, _STARTED):
            return str(word)
        if len(self.read.words) < _KEPT_WORDS or str(word) in self.read.words:
            self.read.words[str(word)[:100]] += 1
        return None

    def _told(self, document: dict[str, Any]) -> dict[str, Any]:
        fields, told = self._log.fields, dict[str, Any]()
        for name in ("tenant", "reason"):
            text = _text(document, getattr(fields, name))
            if text is not None:
                told[name] = text
        for name in ("queue_wait", "service_time"):
            pointer = getattr(fields, name)
            ns = duration_ns(at_pointer(document, pointer), self._log.unit) if pointer is not None else -1
            if ns >= 0:
                told["queue_wait_ns" if name == "queue_wait" else "service_ns"] = ns
        for name in ("waiting", "running", "workers"):
            pointer = getattr(fields, name)
            count = at_pointer(document, pointer) if pointer is not None else None
            if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 10**9:
                told[name] = count
        return told


def _text(document: dict[str, Any], pointer: str | None) -> str | None:
    value = at_pointer(document, pointer) if pointer is not None else MISSING
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return "".join(char if char.isprintable() else "?" for char in str(value)[:200])


def time_ns(value: Any, form: str) -> int | None:
    """Nanoseconds on the clock that the form names; None for what is no time. Exact: no sum is done in floats."""
    if isinstance(value, bool):
        return None
    if form == "rfc3339":
        return _rfc3339_ns(value) if isinstance(value, str) else None
    if isinstance(value, str):
        try:
            value = Fraction(value[:40]) if re.fullmatch(r"\d{1,20}(\.\d{1,12})?", value, re.ASCII) else None
        except ValueError:
            return None
    if not isinstance(value, int | float | Fraction) or not 0 <= value < 10**20:  # NaN is neither
        return None
    # repr of a float is the shortest text that reads back: what the log's writer wrote.
    exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
    return int(exact * _PER_UNIT[form])


def _rfc3339_ns(text: str) -> int | None:
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        return None
    try:
        whole = datetime(*(int(part) for part in match.groups()[:6]), tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        return None
    zone = match[8]
    east_s = 0 if zone in "Zz" else (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60) * (1 if zone[0] == "+" else -1)
    return (int(whole.timestamp()) - east_s) * 1_000_000_000 + int((match[7] or "0").ljust(9, "0"))
