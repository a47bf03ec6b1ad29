"""What goes wrong in the dependencies, and when: a plain object that is asked with `now_ns`.

Faults of the door (`outage`, `retry_after`) are answered at once and no worker is touched; those of the work (`error`,
`hang`, `commit_then_timeout`, `slow`) happen to a call that a worker has taken. Of several that apply, the first in
order decides; factors of `slow` multiply. A fault without an operation happens to all of them, read-backs included; but
only a write can be committed, so `commit_then_timeout` happens to writes alone. Windows are half open, [from, to).

`retry_after` is sent as it stands, whatever it is, but for dates, which have to be made when they are sent:
`{date+2}` is the IMF-fixdate two seconds after the answer's own Date (RFC 9110, 5.6.7), `{rfc850+2}` and `{asctime-1}`
are the two obsolete forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from stub_service.capacity.config import Fault
from stub_service.capacity.ports import READ, READBACK, WRITE

OUTAGE, RETRY_AFTER = "outage", "retry_after"
ERROR, HANG, COMMIT_THEN_TIMEOUT, SLOW = "error", "hang", "commit_then_timeout", "slow"
DOOR = (OUTAGE, RETRY_AFTER)
KINDS = (*DOOR, ERROR, HANG, COMMIT_THEN_TIMEOUT, SLOW)
OPERATIONS = (READ, WRITE, READBACK)

_DATE = re.compile(r"\{(date|rfc850|asctime)([+-]\d{1,9})\}", re.ASCII)
# Whatever the locale says.
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class Work:
    """What happens to a call at a worker. fault: the deciding one, if any; factor: of the service time."""

    fault: Fault | None = None
    factor: float = 1.0

    @property
    def name(self) -> str | None:
        return self.fault.kind if self.fault is not None else SLOW if self.factor != 1.0 else None


_WELL = Work()


class Faults:
    """All dependencies' faults, with how often each has happened."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.replace(faults)

    def replace(self, faults: Iterable[Fault]) -> None:
        """Other faults from now on; none of them has happened yet."""
        self.configured = tuple(faults)
        self.restart()

    def restart(self) -> None:
        """The same faults, as if none had happened."""
        self.happened = [0] * len(self.configured)
        self._door: dict[str, list[int]] = {}
        self._work: dict[str, list[int]] = {}
        for place, fault in enumerate(self.configured):
            (self._door if fault.kind in DOOR else self._work).setdefault(fault.dependency, []).append(place)

    def ever(self, dependency: str) -> bool:
        """Whether anything may go wrong with it at all."""
        return dependency in self._door or dependency in self._work

    def at_door(self, dependency: str, operation: str, now_ns: int) -> Fault | None:
        """The fault that answers a call which arrives now, counted as happened."""
        for place in self._door.get(dependency, ()):
            if self._applies(place, operation, now_ns):
                self.happened[place] += 1
                return self.configured[place]
        return None

    def out(self, dependency: str, operation: str, now_ns: int) -> Fault | None:
        """An outage that meets a call which had been waiting for a worker, counted as happened."""
        for place in self._door.get(dependency, ()):
            if self.configured[place].kind == OUTAGE and self._applies(place, operation, now_ns):
                self.happened[place] += 1
                return self.configured[place]
        return None

    def at_work(self, dependency: str, operation: str, now_ns: int) -> Work:
        """What happens to a call that a worker takes now, counted as happened."""
        places = self._work.get(dependency)
        if places is None:
            return _WELL
        deciding, factor = None, 1.0
        for place in places:
            fault = self.configured[place]
            if not self._applies(place, operation, now_ns) or (fault.kind != SLOW and deciding is not None):
                continue
            self.happened[place] += 1
            if fault.kind == SLOW:
                factor *= fault.factor
            else:
                deciding = fault
        return Work(deciding, factor)

    def _applies(self, place: int, operation: str, now_ns: int) -> bool:
        fault = self.configured[place]
        if not fault.from_ns <= now_ns < fault.to_ns or (fault.times and self.happened[place] >= fault.times):
            return False
        if fault.kind == COMMIT_THEN_TIMEOUT:
            return operation == WRITE and fault.operation in ("", WRITE)
        return fault.operation in ("", operation)


def problem(fault: Fault, dependencies: Iterable[str]) -> str | None:
    """What is wrong with a fault, in one sentence; None if nothing is."""
    names = tuple(dependencies)
    if fault.dependency not in names:
        return f"dependency '{fault.dependency}' is not known (known: {', '.join(names)})"
    if fault.kind not in KINDS:
        return f"kind '{fault.kind}' is not known (known: {', '.join(KINDS)})"
    if fault.operation not in ("", *OPERATIONS):
        return f"operation '{fault.operation}' is not known (known: {', '.join(OPERATIONS)}; left out: all)"
    if fault.kind == COMMIT_THEN_TIMEOUT and fault.operation not in ("", WRITE):
        return "commit_then_timeout happens to writes only"
    if not 0 <= fault.from_ns < fault.to_ns:
        return "from_ns must be 0 or more, and below to_ns"
    if fault.times < 0:
        return "times cannot be negative (0: as often as it is met)"
    if not 0 < fault.factor <= 1000:
        return "factor must be above 0 and at most 1000"
    if fault.status and not 400 <= fault.status <= 599:
        return "status must be between 400 and 599"
    if not fault.retry_after.isascii() or not fault.retry_after.isprintable():
        # Header values beyond ASCII are sent as Latin-1 by some and refused by others: not a form worth judging here.
        return "retry_after must be printable ASCII"
    return None


def retry_after(raw: str, epoch_s: int) -> str:
    """The header's value for an answer whose Date is `epoch_s`: `raw`, with its dates filled in."""
    return _DATE.sub(lambda found: _FORMS[found[1]](epoch_s + int(found[2])), raw) if "{" in raw else raw


def imf_fixdate(epoch_s: int) -> str:
    """`Sun, 06 Nov 1994 08:49:37 GMT`"""
    at = _utc(epoch_s)
    return f"{_DAYS[at.weekday()][:3]}, {at.day:02} {_MONTHS[at.month - 1]} {at.year:04} {at:%H:%M:%S} GMT"


def rfc850_date(epoch_s: int) -> str:
    """`Sunday, 06-Nov-94 08:49:37 GMT`"""
    at = _utc(epoch_s)
    return f"{_DAYS[at.weekday()]}, {at.day:02}-{_MONTHS[at.month - 1]}-{at.year % 100:02} {at:%H:%M:%S} GMT"


def asctime_date(epoch_s: int) -> str:
    """`Sun Nov  6 08:49:37 1994`"""
    at = _utc(epoch_s)
    return f"{_DAYS[at.weekday()][:3]} {_MONTHS[at.month - 1]} {at.day:2} {at:%H:%M:%S} {at.year:04}"


_FORMS = {"date": imf_fixdate, "rfc850": rfc850_date, "asctime": asctime_date}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
"""Years 1 to 9999, beyond which there is no such date."""


def _utc(epoch_s: int) -> datetime:
    return _EPOCH + timedelta(seconds=min(max(epoch_s, _FIRST_S), _LAST_S))
