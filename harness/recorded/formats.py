"""Log formats: one line of text in, its named fields out.

Apache and nginx access logs (common, combined, combined_timed, or any nginx `log_format` string), JSON Lines, and CSV
with a header. Field names are nginx's (`remote_addr`, `time_local`, `http_x_tenant`) or the log's own.

Sources: nginx ngx_http_log_module, Apache mod_log_config, RFC 4180 (without line ends inside quotes: a line is a call).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from harness.recorded.errors import RecordedError

Fields = dict[str, Any]
Parse = Callable[[bytes], Fields | None]
"""None: the line is not of this format."""

COMMON = '$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent'
COMBINED = COMMON + ' "$http_referer" "$http_user_agent"'
LOG_FORMATS = {
    "combined_timed": COMBINED + " $request_time $upstream_response_time",
    "combined": COMBINED,
    "common": COMMON,
}
NAMES = ("auto", "jsonl", *LOG_FORMATS, "csv", "har")

_VARIABLE = re.compile(r"\$\{?([a-z][a-z0-9_]{0,63})\}?")
_QUOTED = r'((?:[^"\\]|\\.)*)'


@dataclass(frozen=True, slots=True)
class Format:
    """A format that is ready to parse. columns: the fields that every line has; empty where lines may differ.
    too_long: what is said of a line that was not even read. entries: not lines but parts of a document, which may hold
    credentials and are never shown."""

    name: str
    parse: Parse
    columns: tuple[str, ...] = ()
    too_long: str = "longer than 1 MiB"
    entries: bool = False


def decode(line: bytes) -> str:
    """UTF-8; bytes that are not become lone surrogates, so that two odd names remain two (fields.tenant_name)."""
    return line.decode("utf-8", "surrogateescape")


def json_lines() -> Format:
    def parse(line: bytes) -> Fields | None:
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None
        return fields if isinstance(fields, dict) else None

    return Format("jsonl", parse)


def log_format(text: str, name: str) -> Format:
    """An nginx `log_format` string as a parser; what follows on a line is ignored after a space. Raises RecordedError.

    Each variable reaches up to the character that follows it, so that no line can make the match go back and forth.
    """
    names: list[str] = []
    pattern, at = "", 0
    for match in _VARIABLE.finditer(text):
        if match[1] in names:
            raise RecordedError("--format", f"${match[1]} stands there twice", "name each variable once")
        if names and match.start() == at:
            raise RecordedError("--format", f"nothing between ${names[-1]} and ${match[1]}", "put a space between them")
        before, after = text[at : match.start()], text[match.end() : match.end() + 1]
        pattern += re.escape(before) + _reach(before, after, match[1])
        names.append(match[1])
        at = match.end()
    if not names:
        raise RecordedError(
            "--format", "no variables in it", 'write nginx:$remote_addr [$time_local] "$request" $status'
        )
    compiled = re.compile(pattern + re.escape(text[at:]) + r"(?: .*)?", re.DOTALL)
    columns = tuple(names)

    def parse(line: bytes) -> Fields | None:
        found = compiled.fullmatch(decode(line))
        return None if found is None else dict(zip(columns, found.groups(), strict=True))

    return Format(name, parse, columns)


def _reach(before: str, after: str, variable: str) -> str:
    if before.endswith('"') and after == '"':
        return _QUOTED
    if variable == "remote_user":  # the one unquoted field that may hold spaces: `frank of sales [`
        return r"([^\[\]\"]*)"
    if variable == "upstream_response_time":  # `0.01, 0.02` when there were several
        return r"([0-9.,: -]*)"
    return rf"([^{re.escape(after)}]*)" if after else r"(\S*)"


def csv_columns(header: bytes) -> tuple[str, tuple[str, ...]]:
    """(delimiter, column names) of a header line; no names if it cannot be one."""
    text = decode(header)
    delimiter = max(",;\t", key=text.count)
    names = tuple(name.strip() for name in _cells(text, delimiter) or ())
    usable = names and all(names) and len(set(names)) == len(names) and not any(n[0].isdigit() for n in names)
    return delimiter, names if usable and all(name.isprintable() for name in names) else ()


def csv_rows(delimiter: str, columns: Sequence[str]) -> Format:
    width = len(columns)

    def parse(line: bytes) -> Fields | None:
        text = decode(line)
        cells = text.split(delimiter) if '"' not in text else _cells(text, delimiter)
        return dict(zip(columns, cells, strict=True)) if cells is not None and len(cells) == width else None

    return Format("csv", parse, tuple(columns))


def _cells(text: str, delimiter: str) -> list[str] | None:
    try:
        rows = list(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None
