"""Open logs in, records out: finds the format, reads in bounded memory, counts what it cannot read.

Raises RecordedError and nothing else, whatever the bytes are.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timezone, tzinfo
from itertools import chain
from random import Random
from typing import Any

from harness.recorded import fields as f
from harness.recorded import formats, har
from harness.recorded.account import Account
from harness.recorded.errors import RecordedError, printable
from harness.recorded.formats import Fields, Format
from harness.recorded.lines import Source, Unpacked, lines
from harness.recorded.record import NO_TENANT, Record
from harness.recorded.times import NS_PER_S, Clock

_SAMPLE_LINES = 50
_SAMPLE_BYTES = 4 << 20
_NAMES_KEPT = 100_000


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read. format: a name of formats.NAMES, or `nginx:` and a log_format string. roles: fields.parse_map.

    spread_seed: times that are good to a second are spread over it, drawn from this seed; None: left as they stand.
    names: what a tenant is called instead of what was read. bodies: keep what was sent, where it is text and not large.
    paths: read method and path too; without them a long log is read a third faster.
    """

    format: str = "auto"
    roles: Mapping[str, str] = field(default_factory=dict)
    tenant: str | None = None
    zone: tzinfo = timezone.utc  # noqa: UP017
    spread_seed: int | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    bodies: bool = False
    paths: bool = True


def read(sources: Sequence[Source], how: Reading, account: Account) -> Iterator[Record]:
    """All calls of all files, in the order of their lines; `place` counts them. Adds to the account."""
    rng = None if how.spread_seed is None else Random(f"{how.spread_seed}:spread")
    clock = Clock(how.zone)
    for source in sources:
        unpacked = Unpacked(source)
        is_har = how.format == "har" or (how.format == "auto" and har.looks_like(unpacked.peek(har.PEEK_BYTES)))
        numbered = enumerate(har.entries(unpacked) if is_har else lines(unpacked), 1)
        head = _head(numbered)
        if not any(line is None or line.strip() for _, line in head):
            raise RecordedError(source.name, "holds no entry" if is_har else "holds no lines", "is it the right file?")
        kind, skip = (har.entry_format(how.bodies), 0) if is_har else _format_of(source.name, head, how, clock)
        account.formats[source.name] = kind.name
        yield from _records(
            source.name, chain(head, numbered), skip, _Columns(kind, how, source, head), clock, rng, account
        )


class Growing:
    """The same for a log that grows: its format is found from the first lines that come, then kept."""

    def __init__(self, name: str, how: Reading, account: Account) -> None:
        self._source = Source(name, io.BytesIO(), None, name)
        self._how, self._account = how, account
        self._clock = Clock(how.zone)
        self._columns: _Columns | None = None
        self._skip = self._lines = 0

    def records(self, new: Iterable[bytes | None]) -> Iterator[Record]:
        """The calls on lines that were added. Raises RecordedError if the first that come are of no known format."""
        numbered = ((self._count(), line) for line in new)
        head: list[tuple[int, bytes | None]] = []
        if self._columns is None:
            head = _head(numbered)
            if not any(line and line.strip() for _, line in head):
                return
            kind, self._skip = _format_of(self._source.name, head, self._how, self._clock)
            self._account.formats[self._source.name] = kind.name
            self._columns = _Columns(kind, self._how, self._source, head)
        yield from _records(
            self._source.name, chain(head, numbered), self._skip, self._columns, self._clock, None, self._account
        )

    def _count(self) -> int:
        self._lines += 1
        return self._lines


def _head(numbered: Iterator[tuple[int, bytes | None]]) -> list[tuple[int, bytes | None]]:
    head: list[tuple[int, bytes | None]] = []
    size = 0
    for item in numbered:
        head.append(item)
        size += len(item[1] or b"")
        if len(head) >= _SAMPLE_LINES or size > _SAMPLE_BYTES:
            break
    return head


class _Columns:
    """Where in a line's fields everything is, settled once a file."""

    def __init__(self, kind: Format, how: Reading, source: Source, head: Sequence[tuple[int, bytes | None]]) -> None:
        source_name = source.name
        sample: Fields = {}
        for _, line in head:
            if line and (parsed := kind.parse(line)) is not None:
                sample = parsed | sample
        roles = how.roles
        self.kind = kind
        self.sample = sample
        time = f.role_getter("time", roles, sample)
        if time is None:
            raise RecordedError(
                source_name,
                f"read as {kind.name}, no field is the time (fields: {_named(sample)})",
                "name it: --map time=FIELD",
            )
        self.time = time
        self._require(source_name, roles, sample)
        self.status = f.role_getter("status", roles, sample)
        self.cost = f.role_getter("cost", roles, sample)
        self.queue = f.role_getter("queue_time", roles, sample)
        self.queue_unit_ns = f.queue_unit_ns(
            roles.get("queue_time") or ("queue_time_ms" if "queue_time_ms" in sample else "")
        )
        self.duration = f.role_getter("duration", roles, sample)
        self.duration_unit_ns = f.queue_unit_ns(f.duration_field(roles, sample))
        self.method = f.role_getter("method", roles, sample)
        self.path = f.role_getter("path", roles, sample)
        self.request = f.getter("request") if isinstance(sample.get("request"), str) else None
        choice = how.tenant
        if choice is None and "tenant" not in roles:
            choice = "remote_addr" if "remote_addr" in sample else "file"
        self.tenant, self.tenant_from = f.tenant_getter(choice, roles, source.tenant or source.name)
        self.names = how.names
        self._called: dict[Any, str] = {}
        self.of_path = self.tenant_from.startswith(("path:", "query:"))
        if not how.paths and not self.of_path:
            self.method = self.path = self.request = None
        if choice == "remote_addr" and "remote_addr" not in sample:
            raise RecordedError(
                "--tenant",
                f"{source_name} has no field remote_addr (fields: {_named(sample)})",
                "take field:NAME of one of them",
            )

    def called(self, value: Any) -> str:
        """The tenant's name; remembered, since a log names few of them often."""
        known = self._called.get(value) if type(value) is str else None
        if known is None:
            name = f.tenant_name(value)
            known = self.names.get(name, name)
            if type(value) is str and len(self._called) < _NAMES_KEPT:
                self._called[value] = known
        return known

    def _require(self, source_name: str, roles: Mapping[str, str], sample: Fields) -> None:
        """A column that every line must have, and none has, is a slip of the pen; JSON lines may differ."""
        for role, name in roles.items():
            if self.kind.columns and f.role_getter(role, {role: name}, sample)(sample) is None:  # type: ignore[misc]
                raise RecordedError(
                    "--map", f"{source_name} has no column for {role}={printable(name)} (columns: {_named(sample)})"
                )


def _named(sample: Mapping[str, object]) -> str:
    names = [printable(name, 40) for name in sample]
    return ", ".join(names[:15]) + (", …" if len(names) > 15 else "") if names else "none"


def _records(
    name: str,
    numbered: Iterable[tuple[int, bytes | None]],
    skip: int,
    columns: _Columns,
    clock: Clock,
    rng: Random | None,
    account: Account,
) -> Iterator[Record]:
    parse, place = columns.kind.parse, account.read
    for line_no, line in numbered:
        account.lines += 1
        if line is None:
            account.add_broken(name, line_no, columns.kind.too_long, None, columns.kind.entries)
            continue
        if not line or line.isspace():
            account.blank += 1
            continue
        if line_no == skip:
            account.header += 1
            continue
        found = parse(line)
        if found is None:
            account.add_broken(name, line_no, f"not a line of {columns.kind.name}", line, columns.kind.entries)
            continue
        if ":aside" in found:
            account.aside += 1
            continue
        account.bodies_left += ":body_left" in found
        try:
            t_ns, grain_ns = clock.read(columns.time(found))
        except ValueError:
            account.add_broken(name, line_no, "no time that can be read", line, columns.kind.entries)
            continue
        if rng is not None and grain_ns == NS_PER_S:
            t_ns += int(rng.random() * NS_PER_S)
        record = _record(t_ns, place, found, columns)
        if record.tenant == NO_TENANT:
            account.without_tenant += 1
        place += 1
        account.read = place
        yield record


def _record(t_ns: int, place: int, found: Fields, columns: _Columns) -> Record:
    method = columns.method(found) if columns.method else None
    path = columns.path(found) if columns.path else None
    if columns.request and (method is None or path is None):
        verb, target = f.split_request(columns.request(found))
        method, path = method or verb, path or target
    if columns.of_path:
        found.setdefault(":path", path)
    return Record(
        t_ns,
        place,
        columns.called(columns.tenant(found)),
        f.status_of(columns.status(found)) if columns.status else 0,
        f.cost_of(columns.cost(found)) if columns.cost else -1.0,
        f.queue_ns_of(columns.queue(found), columns.queue_unit_ns) if columns.queue else -1,
        f.method_of(method) if method is not None else None,
        f.path_of(path) if path is not None else None,
        f.duration_ns_of(columns.duration(found), columns.duration_unit_ns) if columns.duration else -1,
        found.get(":body"),
    )


def _format_of(name: str, head: Sequence[tuple[int, bytes | None]], how: Reading, clock: Clock) -> tuple[Format, int]:
    """(format, number of the header line or 0). Raises RecordedError that names what was tried."""
    content = [(line_no, line) for line_no, line in head if line and not line.isspace()]
    wanted = how.format
    if wanted.startswith("nginx:"):
        return formats.log_format(wanted[6:], "nginx log_format"), 0
    if wanted in formats.LOG_FORMATS:
        return formats.log_format(formats.LOG_FORMATS[wanted], wanted), 0
    if wanted == "jsonl":
        return formats.json_lines(), 0
    if wanted not in formats.NAMES:
        raise RecordedError(
            "--format", f"'{printable(wanted)}' is not known", f"known: {', '.join(formats.NAMES)}, nginx:…"
        )
    if wanted == "csv":
        return _csv(name, content)
    tried: list[str] = []
    for kind, skip in _candidates(content):
        rows = [line for line_no, line in content if line_no != skip]
        good = sum(kind.parse(line) is not None for line in rows)
        if good and 2 * good >= len(rows):
            return kind, skip
        tried.append(f"{kind.name} {good} of {len(rows)}")
    first = f" The first: {printable(formats.decode(content[0][1][:400]))}" if content else ""
    raise RecordedError(
        name,
        f"no known log format (lines that fit: {', '.join(tried) or 'none, all are too long'}).{first}",
        "say --format, or --format 'nginx:<your log_format string>'",
    )


def _candidates(content: Sequence[tuple[int, bytes]]) -> Iterator[tuple[Format, int]]:
    yield formats.json_lines(), 0
    for known, text in formats.LOG_FORMATS.items():
        yield formats.log_format(text, known), 0
    if content:
        delimiter, columns = formats.csv_columns(content[0][1])
        yield formats.csv_rows(delimiter, columns), content[0][0]


def _csv(name: str, content: Sequence[tuple[int, bytes]]) -> tuple[Format, int]:
    delimiter, columns = formats.csv_columns(content[0][1]) if content else (",", ())
    if not columns:
        raise RecordedError(
            name, "the first line is no CSV header (names, each once, none empty or a number)", "add one"
        )
    return formats.csv_rows(delimiter, columns), content[0][0]
