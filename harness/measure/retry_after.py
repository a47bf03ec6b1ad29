"""What a Retry-After header says, in every form that is met: a delay, a date, or nothing that can be relied on.

Source: RFC 9110, 10.2.3 (delta-seconds or HTTP-date) and 5.6.7 (the three date forms). Decimal seconds are not in the
RFC, are common, and are taken as meant. Whatever else comes is treated as absent, with the reason: a client must then
use its own backoff, and never a hot loop. Headers are the target's, so any text is possible; nothing here raises.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from typing import Literal

LONGEST_DELAY_S = 366 * 24 * 3600
"""Above a year it is not a delay: most likely an epoch."""

_NUMBER = re.compile(r"\d{1,20}(\.\d{1,20})?", re.ASCII)
_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")  # whatever the locale
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_MONTH, _CLOCK = f"(?P<month>{'|'.join(_MONTHS)})", r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
_DATES = (
    re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_CLOCK} GMT", re.ASCII),
    re.compile(
        rf"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_CLOCK} GMT", re.ASCII
    ),
    re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH} (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})", re.ASCII),
)


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """delay: `delay_s`, 0 or more. date: `at_epoch_s`, good to one second. absent: `why`."""

    kind: Literal["delay", "date", "absent"]
    delay_s: float = 0.0
    at_epoch_s: int = 0
    why: str = ""

    @property
    def usable(self) -> bool:
        return self.kind != "absent"

    def wait_s(self, answered_epoch_s: int) -> float | None:
        """Seconds to wait, counted from the answer's own `Date`; 0 for a date that has passed; None if absent."""
        if self.kind == "delay":
            return self.delay_s
        return float(max(0, self.at_epoch_s - answered_epoch_s)) if self.kind == "date" else None


def parse(header: str | None) -> RetryAfter:
    """The value of Retry-After as it came."""
    if header is None:
        return _absent("no header")
    text = header.strip(" \t")
    if not text:
        return _absent("empty")
    if _NUMBER.fullmatch(text):
        delay = float(text)
        return RetryAfter("delay", delay_s=delay) if delay <= LONGEST_DELAY_S else _absent("longer than a year")
    for form in _DATES:
        match = form.fullmatch(text)
        if match:
            return _date(match)
    return _absent(_why(text))


def parse_ms(header: str | None, fallback: str | None) -> RetryAfter:
    """A header in milliseconds (`retry-after-ms`) where the target is known to send one; else Retry-After."""
    text = (header or "").strip(" \t")
    if _NUMBER.fullmatch(text) and float(text) <= LONGEST_DELAY_S * 1000:
        return RetryAfter("delay", delay_s=float(text) / 1000)
    return parse(fallback)


def _absent(why: str) -> RetryAfter:
    return RetryAfter("absent", why=why)


def _date(match: re.Match[str]) -> RetryAfter:
    year, day = int(match["year"]), int(match["day"])
    if len(match["year"]) == 2:
        year += 1900 if year >= 70 else 2000
    hour, minute, second = int(match["h"]), int(match["m"]), int(match["s"])
    month = _MONTHS[match["month"]]
    if year < 1 or not 1 <= day <= calendar.monthrange(year, month)[1] or hour > 23 or minute > 59 or second > 60:
        return _absent("no such date")
    return RetryAfter("date", at_epoch_s=calendar.timegm((year, month, day, hour, minute, second)))


def _why(text: str) -> str:
    if not text.isascii():
        return "not ASCII"
    if text.lower() in ("inf", "infinity", "nan", "-inf"):
        return "not a finite number"
    if re.fullmatch(r"-\d+(\.\d+)?", text):
        return "negative"
    if "," in text and text.replace(",", "").replace(" ", "").isdigit():
        return "more than one value"
    return "neither seconds nor an HTTP date"
