"""The normalised schedule: what a recorded tenant will send, one JSON Lines file a tenant, sorted by `due_ns`.

    {"due_ns": 1500000000, "cost": 27.0, "method": "POST", "path": "/a", "body": "{}"}

cost, method, path and body are left out where the recording does not have them. Written and read as a stream: neither
holds more than a few hundred rows of a tenant, whatever the length of the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path, PurePosixPath

import orjson

from harness.recorded.errors import RecordedError, printable
from harness.workload.callers import Arrival

FOLDER = "schedule"
MAX_TENANTS = 500
_ROWS = 512
_MAX_ROW_BYTES = 64 << 10


class ScheduleError(RecordedError):
    """A schedule file that cannot be used."""


def row(
    due_ns: int, cost: float = -1.0, method: str | None = None, path: str | None = None, body: str | None = None
) -> bytes:
    """One line of a schedule file."""
    fields: dict[str, object] = {"due_ns": due_ns}
    if cost >= 0:
        fields["cost"] = cost
    if method is not None:
        fields["method"] = method
    if path is not None:
        fields["path"] = path
    if body is not None:
        fields["body"] = body
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def file_name(place: int) -> str:
    return f"{place:04d}.jsonl"


class Writer:
    """Writes the schedules of many tenants at once with one file open at a time. `add` in order of due, per tenant."""

    def __init__(self, folder: Path, tenants: int) -> None:
        if tenants > MAX_TENANTS:
            raise ScheduleError(
                "",
                f"{tenants:,} tenants are more than the {MAX_TENANTS} that a trial can drive one by one",
                "keep the busiest and fold the rest into one: --top 20",
            )
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / file_name(place) for place in range(tenants)]
        for path in self._paths:
            path.write_bytes(b"")
        self._rows: list[list[bytes]] = [[] for _ in range(tenants)]

    def add(self, place: int, arrival: Arrival) -> None:
        rows = self._rows[place]
        rows.append(row(arrival.due_ns, arrival.cost, arrival.method, arrival.path, arrival.body))
        if len(rows) >= _ROWS:
            self._flush(place)

    def close(self) -> None:
        for place in range(len(self._paths)):
            self._flush(place)

    def _flush(self, place: int) -> None:
        with self._paths[place].open("ab") as file:
            file.writelines(self._rows[place])
        self._rows[place].clear()


def write(path: Path, arrivals: Iterable[Arrival]) -> int:
    """One tenant's schedule; returns the number of calls."""
    stream, count = iter(arrivals), 0
    with path.open("wb") as file:
        while rows := [row(a.due_ns, a.cost, a.method, a.path, a.body) for a in islice(stream, _ROWS)]:
            file.writelines(rows)
            count += len(rows)
    return count


def source(folder: Path, time_scale: float = 1.0) -> Callable[[str], Iterator[Arrival]]:
    """Opens schedule files of `folder` (a trial's folder, or its `schedule/`), due instants times `time_scale`.

    The returned function raises ScheduleError on a name that leaves the folder or is not there; its iterator raises it
    at the first row that is not one.
    """
    scale = Fraction(str(time_scale))

    def opened(file: str) -> Iterator[Arrival]:
        pure = PurePosixPath(file)
        if pure.is_absolute() or ".." in pure.parts or "\0" in file:
            raise ScheduleError(printable(file), "a schedule file lies inside its trial's folder", "give a plain name")
        places = [folder / file, folder / FOLDER / file]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise ScheduleError(str(places[0]), "no such schedule file", "write it with overload replay")
        return _rows_of(path, scale)

    return opened


def _rows_of(path: Path, scale: Fraction) -> Iterator[Arrival]:
    num, den = scale.numerator, scale.denominator
    last = line_no = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(_MAX_ROW_BYTES):
                line_no += 1
                arrival = _arrival(line, f"{path}:{line_no}")
                if arrival.due_ns < last:
                    raise ScheduleError(f"{path}:{line_no}", "due_ns is before that of the row above", "sort the rows")
                last = arrival.due_ns
                yield replace(arrival, due_ns=last * num // den)
    except OSError as error:
        raise ScheduleError(str(path), f"cannot be read ({error.strerror or error})") from None


def _arrival(line: bytes, where: str) -> Arrival:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ScheduleError(where, f"not JSON ({error})", "one object a line") from None
    due = fields.get("due_ns") if isinstance(fields, dict) else None
    if type(due) is not int or not 0 <= due < 2**62:
        raise ScheduleError(where, "due_ns is not a whole number of nanoseconds, 0 or more", "see docs/recorded.md")
    cost, method, path = fields.get("cost", -1.0), fields.get("method"), fields.get("path")
    if type(cost) not in (int, float):
        raise ScheduleError(where, "cost is not a number")
    body = fields.get("body")
    if not all(isinstance(text, str | None) for text in (method, path, body)):
        raise ScheduleError(where, "method, path and body are text")
    return Arrival(due, float(cost), method, path, body)
