"""How logs are named and read on the command line: the options that `replay` and `learn` share."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click
from rich.console import Console

from harness.profile.units import parse_duration, parse_rate
from harness.recorded import formats
from harness.recorded.errors import RecordedError, printable
from harness.recorded.fields import parse_map, tenant_name
from harness.recorded.lines import Source
from harness.recorded.prepare import Bound
from harness.recorded.reader import Reading
from harness.recorded.times import Clock, zone_of
from harness.report.progress import CountProgress

Command = Callable[..., Any]
_READ_BYTES = 1 << 18


if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # older releases of click have no type parameter there
    ParamType = click.ParamType


class Parsed(ParamType):
    """An option whose text a function reads; its ValueError or RecordedError becomes the message."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except RecordedError as error:
            self.fail(f"{error.rule}; {error.remedy}" if error.remedy else error.rule, param, ctx)
        except ValueError as error:
            self.fail(f"'{printable(value, 80)}': {error}", param, ctx)


def _speed(text: str) -> Fraction:
    try:
        speed = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError("expected a number above 0, such as 4 or 0.5") from None
    if not Fraction(1, 1_000_000) <= speed <= 1_000_000:
        raise ValueError("a speed lies between 0.000001 and 1000000")
    return speed


def _renamed(text: str) -> tuple[str, str]:
    """`VALUE=NAME`; the value may hold `=`."""
    value, equals, name = text.rpartition("=")
    if not equals or not value or tenant_name(name) != name:
        raise ValueError("expected VALUE=NAME, a name that prints on one line")
    return value, name


DURATION = Parsed("duration", parse_duration)
RATE = Parsed("rate", parse_rate)
SPEED = Parsed("factor", _speed)


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """What the shared options say. begin, end: text of --from and --to, read once the zone is known."""

    logs: tuple[Path, ...]
    format: str
    roles: dict[str, str]
    tenant: str | None
    zone: tzinfo
    spread: bool
    begin: Bound | None
    end: Bound | None
    squeeze_ns: int | None
    top: int | None
    max_broken: float

    names: dict[str, str] = field(default_factory=dict)
    bodies: bool = False

    def reading(self, spread_seed: int | None, paths: bool = True) -> Reading:
        """spread_seed: None: times stay as they stand. paths: whether method and path are wanted."""
        seed = spread_seed if self.spread else None
        return Reading(self.format, self.roles, self.tenant, self.zone, seed, self.names, self.bodies, paths)


def reading_options(command: Command) -> Command:
    """Adds the options; the command gets one argument `reading: ReadingOptions` for them."""

    def wrapped(**given: Any) -> Any:
        zone = given.pop("zone")
        begin, end = (_bound(given.pop(name), option, zone) for name, option in (("begin", "--from"), ("end", "--to")))
        names = ("logs", "format", "tenant", "spread", "squeeze_ns", "top", "max_broken", "bodies")
        own = {name: given.pop(name) for name in names}
        own["names"] = dict(given.pop("names"))
        reading = ReadingOptions(**own, roles=given.pop("roles"), zone=zone, begin=begin, end=end)
        return command(reading=reading, **given)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


_OPTIONS: list[Callable[[Command], Command]] = [
    click.argument(
        "logs", nargs=-1, required=True, metavar="LOG...",
        type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    ),
    click.option("--format", default="auto", show_default=True, metavar="NAME",
                 help=f"{', '.join(formats.NAMES)}, or 'nginx:<your log_format string>'."),
    click.option("--map", "roles", type=Parsed("map", parse_map), default="", metavar="ROLE=FIELD,...",
                 help="Which field is what: time, tenant, status, cost, path, method, queue_time, duration. "
                      "E.g. time=ts,tenant=auth.sub,duration=took:ms"),
    click.option("--tenant", metavar="FIELD",
                 help="Who is charged: remote_addr, user, file, host, header:x-tenant, cookie:NAME, query:NAME, "
                      "field:NAME or path:N. Credentials become a digest."),
    click.option("--tenant-name", "names", multiple=True, type=Parsed("VALUE=NAME", _renamed),
                 help="Call the tenant that was read as VALUE by this name. Several may share one. Repeatable."),
    click.option("--bodies/--no-bodies", default=False, show_default=True,
                 help="Keep request bodies that a HAR has, where they are text and not large."),
    click.option("--zone", type=Parsed("zone", zone_of), default="UTC", show_default=True,
                 help="Zone of times that name none: UTC, +02:00, Europe/Berlin."),
    click.option("--from", "begin", metavar="TIME",
                 help="Leave out what is earlier: a time, or a duration after the first call (10m)."),
    click.option("--to", "end", metavar="TIME", help="Leave out what is not earlier: a time, or a duration (1h)."),
    click.option("--squeeze-gaps", "squeeze_ns", type=DURATION, metavar="DURATION",
                 help="A silence longer than this, in the log's time, becomes this long."),
    click.option("--top", type=click.IntRange(1, 499), metavar="N",
                 help="Keep the N busiest tenants, fold the others into one tenant 'rest'."),
    click.option("--spread/--no-spread", default=True, show_default=True,
                 help="Spread calls over the second that the log rounded them to (seeded)."),
    click.option("--max-broken", type=click.FloatRange(0, 1), default=0.05, show_default=True, metavar="SHARE",
                 help="Give up if more than this share of the lines cannot be read."),
]  # fmt: skip


def _bound(text: str | None, option: str, zone: tzinfo) -> Bound | None:
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        return Bound(parse_duration(text), True)
    with contextlib.suppress(ValueError):
        return Bound(Clock(zone).read(text)[0], False)
    raise RecordedError(
        option, f"'{printable(text, 80)}' is no time", "write 2015-05-17T10:05:00, 17/May/2015:10:05:00 +0000 or 10m"
    )


@contextlib.contextmanager
def opened(logs: Sequence[Path]) -> Iterator[list[Source]]:
    """The files, open; `-` is standard input. Each is named by its file name, or by its whole path if two share one."""
    stems = [_stem(path) for path in logs]
    counts = Counter(stems)
    with contextlib.ExitStack() as stack:
        sources = []
        for path, stem in zip(logs, stems, strict=True):
            name = stem if counts[stem] == 1 else str(path)
            if str(path) == "-":
                sources.append(Source("standard input", cast(BinaryIO, sys.stdin.buffer), None, "stdin"))
                continue
            try:
                file = stack.enter_context(path.open("rb", buffering=0))
                size = os.fstat(file.fileno()).st_size
            except OSError as error:
                raise RecordedError(str(path), f"cannot be read ({error.strerror})", "") from None
            told = stack.enter_context(CountProgress(f"reading {path.name}, KiB", size >> 10, Console(file=sys.stderr)))
            sources.append(Source(str(path), io.BufferedReader(_Told(file, told), _READ_BYTES), size, name))
        yield sources


class _Told(io.RawIOBase):
    """A file that tells how far it has been read, in KiB."""

    def __init__(self, file: io.FileIO, told: CountProgress) -> None:
        self._file = file
        self._told = told

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        read = self._file.readinto(buffer)
        self._told((read or 0) >> 10)
        return read


def _stem(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).stem
