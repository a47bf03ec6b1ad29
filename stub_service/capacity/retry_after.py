"""When a Retry-After header allows the next attempt: nanoseconds after the answer, or nothing that can be relied on.

Source: RFC 9110, 10.2.3 (delta-seconds or HTTP-date) and 5.6.7 (IMF-fixdate, RFC 850, asctime). Decimal seconds are
not in the RFC, are common, and are taken as meant. A date counts from the answer's own `Date`; without one it says
nothing here, for there is no wall clock. Both have a grain of one second, and `Date` is cut down to its second: their
difference is never before the stated one. Everything else (negative, not finite, several values, an epoch, other
digits) is as good as absent. Nothing here raises.
"""

from __future__ import annotations

import calendar
import math
import re

LONGEST_S = 366 * 24 * 3600
"""Above a year it is no delay: most likely an epoch."""

_SECOND_NS = 1_000_000_000
_NUMBER = re.compile(r"\d{1,20}(\.\d{1,20})?", re.ASCII)
_MONTHS = {
    name: n
    for n, name in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_CLOCK = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
_DATES = tuple(
    re.compile(form, re.ASCII)
    for form in (
        rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_CLOCK} GMT",
        rf"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_CLOCK} GMT",
        rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH} (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})",
    )
)


def stated_wait_ns(header: str | None, date: str | None) -> int | None:
    """How long the answer asks to wait, from its arrival on; 0 for `0` and for a date that has passed; None if absent.

    header, date: the raw values of Retry-After and Date.
    """
    text = (header or "").strip(" \t")
    if _NUMBER.fullmatch(text):
        seconds = float(text)
        return math.ceil(seconds * _SECOND_NS) if seconds <= LONGEST_S else None
    at_s, answered_s = epoch_s(text), epoch_s((date or "").strip(" \t"))
    if at_s is None or answered_s is None:
        return None
    return max(0, at_s - answered_s) * _SECOND_NS


def epoch_s(text: str) -> int | None:
    """Seconds since 1970 of an HTTP date in any of its three forms, else None."""
    match = next((found for form in _DATES if (found := form.fullmatch(text))), None)
    if match is None:
        return None
    year, month, day = int(match["year"]), _MONTHS[match["month"]], int(match["day"])
    if len(match["year"]) == 2:
        year += 1900 if year >= 70 else 2000
    hour, minute, second = int(match["h"]), int(match["m"]), int(match["s"])
    if year < 1 or not 1 <= day <= calendar.monthrange(year, month)[1] or hour > 23 or minute > 59 or second > 60:
        return None
    return calendar.timegm((year, month, day, hour, minute, second))
