"""Times as logs write them, to integer nanoseconds since 1970 and the grain to which they are good.

Forms: CLF `17/May/2015:10:05:03 +0000`; ISO 8601 with up to 9 digits of a second that count (longer ones are cut), with
a zone or without (then the zone that was given); seconds, milliseconds, microseconds or nanoseconds since 1970, told
apart by size. Never uses floating point: 100 ns digits come out as they went in.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from harness.recorded.errors import RecordedError

NS_PER_S = 1_000_000_000
LATEST_S = 7_258_118_400
"""The year 2200: what lies outside 1970 to 2200 is a wrong column, not a time."""

_MONTHS = {"JanFebMarAprMayJunJulAugSepOctNovDec"[3 * i : 3 * i + 3]: i + 1 for i in range(12)}
_CLF = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d)(?: ([+-])(\d\d)(\d\d))?", re.ASCII)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,18}))? ?(?:(Z|UTC)|([+-])(\d\d):?(\d\d))?", re.ASCII
)
_EPOCH = re.compile(r"(\d{1,19})(?:\.(\d{1,18}))?", re.ASCII)
_EPOCH_UNITS = ((10**11, NS_PER_S), (10**14, 10**6), (10**17, 10**3), (10**20, 1))
_CACHE_MINUTES = 4_096


def zone_of(text: str) -> tzinfo:
    """`UTC`, `+02:00` or a name such as `Europe/Berlin`. Raises RecordedError."""
    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text, re.ASCII)
    if text.upper() in ("UTC", "Z"):
        return timezone.utc  # noqa: UP017 - spelled as the annotation says
    if match and int(match[2]) < 24 and int(match[3]) < 60:
        sign = -1 if match[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(match[2]), minutes=int(match[3])))
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, KeyError):  # KeyError: ZoneInfoNotFoundError
        raise RecordedError("--zone", f"'{text[:80]}' is no time zone", "write UTC, +02:00 or Europe/Berlin") from None


class Clock:
    """Reads times; remembers the minutes it has seen, since a log has thousands of lines in each."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._minutes: dict[tuple[str | None, ...], int] = {}
        self._last: tuple[str | None, tuple[int, int]] = (None, (0, 0))

    def read(self, value: object) -> tuple[int, int]:
        """(nanoseconds since 1970, grain in nanoseconds). Raises ValueError on anything that is no time."""
        if isinstance(value, str):
            if value == self._last[0]:  # the lines of one second stand together
                return self._last[1]
            text = value.strip()
            if text[2:3] == "/":
                found = self._clf(text)
                self._last = (value, found)
                return found
            if text[4:5] == "-":
                return self._iso(text)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("no time")
        else:
            text = repr(value)
        return _epoch(text)

    def _clf(self, text: str) -> tuple[int, int]:
        match = _CLF.fullmatch(text)
        if match is None:
            raise ValueError("no time")
        day, month, year, hour, minute, second, *offset = match.groups()
        minute_s = self._minute_s((year, month, day, hour, minute, *offset))
        return (minute_s + _seconds(second)) * NS_PER_S, NS_PER_S

    def _iso(self, text: str) -> tuple[int, int]:
        match = _ISO.fullmatch(text)
        if match is None:
            raise ValueError("no time")
        year, month, day, hour, minute, second, fraction, utc, *offset = match.groups()
        if utc:
            offset = ["+", "00", "00"]
        minute_s = self._minute_s((year, month, day, hour, minute, *offset))
        part_ns, grain_ns = _fraction(fraction)
        return (minute_s + _seconds(second)) * NS_PER_S + part_ns, grain_ns

    def _minute_s(self, key: tuple[str | None, ...]) -> int:
        known = self._minutes.get(key)
        if known is None:
            if len(self._minutes) >= _CACHE_MINUTES:
                self._minutes.clear()
            known = self._minutes[key] = self._fresh_minute_s(key)
        return known

    def _fresh_minute_s(self, key: tuple[str | None, ...]) -> int:
        year, month, day, hour, minute, sign, off_h, off_m = key
        zone = self._zone
        if sign is not None:
            delta = timedelta(hours=int(off_h or 0), minutes=int(off_m or 0))
            zone = timezone(-delta if sign == "-" else delta)
        number = _MONTHS.get(str(month)) or int(str(month))
        moment = datetime(int(str(year)), number, int(str(day)), int(str(hour)), int(str(minute)), tzinfo=zone)
        try:
            at_s = int(moment.timestamp())
        except OverflowError:
            raise ValueError("no time") from None
        if not 0 <= at_s < LATEST_S:
            raise ValueError("a time outside 1970 to 2200")
        return at_s


def _seconds(text: str) -> int:
    second = int(text)
    if second > 60:  # 60: a leap second, the first instant of the next minute
        raise ValueError("no time")
    return second


def _fraction(digits: str | None) -> tuple[int, int]:
    if digits is None:
        return 0, NS_PER_S
    return int(digits[:9].ljust(9, "0")), 10 ** max(0, 9 - len(digits))


def _epoch(text: str) -> tuple[int, int]:
    match = _EPOCH.fullmatch(text)
    if match is None:
        raise ValueError("no time")
    whole = int(match[1])
    unit_ns = next(unit for limit, unit in _EPOCH_UNITS if whole < limit)
    at_ns, grain_ns = whole * unit_ns, unit_ns
    if match[2]:
        digits = match[2]
        at_ns += int(digits) * unit_ns // 10 ** len(digits)
        grain_ns = max(1, unit_ns // 10 ** len(digits))
    if at_ns >= LATEST_S * NS_PER_S:
        raise ValueError("a time outside 1970 to 2200")
    return at_ns, grain_ns
