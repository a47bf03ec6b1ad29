"""Durations and rates as people write them (`200ms`, `8/s`), and as the code holds them.

A duration is held in integer nanoseconds, a rate as an exact `Fraction` per second: `20/m` is a third of a call a
second, not 0.333. Nothing here guesses a unit: a bare number is refused.
"""

from __future__ import annotations

import re
from fractions import Fraction

NS_PER_S = 1_000_000_000
MAX_DURATION_NS = 30 * 24 * 3600 * NS_PER_S
MAX_RATE_PER_S = 10_000_000

_UNIT_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S}
_RATE_S = {"s": 1, "m": 60, "h": 3600}
_NUMBER = r"(\d{1,12}(?:\.\d{1,9})?)"
_SHARE = re.compile(rf"{_NUMBER}\s?%", re.ASCII)
_DURATION = re.compile(rf"{_NUMBER}\s?(ns|us|ms|s|m|h)", re.ASCII)
_RATE = re.compile(rf"{_NUMBER}\s?/\s?(s|m|h)", re.ASCII)


def parse_duration(value: object) -> int:
    """`"200ms"` -> 200_000_000 ns. Raises ValueError that says what was expected."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a duration with its unit, such as 200ms, 2s, 5m or 1h")
    ns = Fraction(match[1]) * _UNIT_NS[match[2]]
    if ns > MAX_DURATION_NS:
        raise ValueError("a duration is at most 30 days (720h)")
    return int(ns)


def parse_rate(value: object) -> Fraction:
    """`"8/s"` -> Fraction(8), calls per second. Raises ValueError that says what was expected."""
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a rate with its unit, such as 8/s, 0.5/s or 20/m")
    rate = Fraction(match[1]) / _RATE_S[match[2]]
    if rate > MAX_RATE_PER_S:
        raise ValueError("a rate is at most 10000000/s")
    return rate


def parse_share(value: object) -> Fraction:
    """`"10%"` -> Fraction(1, 10). Raises ValueError that says what was expected."""
    match = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not 0 < (share := Fraction(match[1]) / 100) <= 1:
        raise ValueError("expected a share above 0% and up to 100%, such as 10%")
    return share


def show_duration(ns: int) -> str:
    """Nanoseconds as the shortest exact text that `parse_duration` reads back to the same number."""
    for unit in ("h", "m", "s", "ms", "us"):
        size = _UNIT_NS[unit]
        if ns and ns % size == 0:
            return f"{ns // size}{unit}"
    return f"{ns}ns" if ns else "0s"


def show_rate(rate: Fraction) -> str:
    """A rate per second for people, at most three decimals."""
    return f"{float(rate):.3f}".rstrip("0").rstrip(".") + "/s"
