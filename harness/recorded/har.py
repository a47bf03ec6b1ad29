"""HAR files as recorded traffic: what a browser, a proxy or a test tool wrote down of HTTP calls, entry by entry.

Source: HTTP Archive 1.2 (W3C Web Performance draft, 2012) as Chrome, Firefox, Safari, mitmproxy and Charles write it.
A HAR is one JSON document, often with the answers' bodies in it. It is never held whole: its entries are cut out one by
one as they are read, and what is kept of one is its instant, method, path and query (not the host), status, time to the
first byte, and what names the tenant. An entry that never reached a server (from a cache, or `data:` and the like) is
set aside and counted.

Never keeps a credential: headers and cookies are only asked for the tenant (fields.tenant_getter hides secrets), and
parameters of a query that may be secrets lose their value. Never needs more memory than one entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from harness.recorded.errors import RecordedError
from harness.recorded.fields import without_secrets
from harness.recorded.formats import Fields, Format
from harness.recorded.lines import Unpacked

PEEK_BYTES = 4_096
MAX_ENTRY_BYTES = 64 << 20
MAX_BODY_CHARACTERS = 10_000
"""Of a body that is kept (JSON only): a row of a schedule holds at most 64 KiB, and a character may need six."""

_PIECE_BYTES = 1 << 18
_BEGIN = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"log"\s*:\s*\{')
_PLAIN = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
_IN_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_ENTRIES = re.compile(rb'"entries"\s*:\s*$')
_MOST_HEADERS = 1_000


def looks_like(begin: bytes) -> bool:
    """Whether a file that begins so is a HAR."""
    return _BEGIN.match(begin) is not None


def entry_format(bodies: bool) -> Format:
    """What parses one entry, as `entries` cuts them out."""
    too_long = f"longer than {MAX_ENTRY_BYTES >> 20} MiB"
    return Format("har", lambda entry: _fields(entry, bodies), too_long=too_long, entries=True)


def entries(unpacked: Unpacked) -> Iterator[bytes | None]:
    """Each entry's JSON text; None for one longer than MAX_ENTRY_BYTES. Raises RecordedError: with the number of the
    entry at which the file stops being a HAR."""
    name, number = unpacked.source.name, 0
    for kind, text in _Cutter().pieces(unpacked):
        if kind == "end":
            return
        number += 1
        if text is not None and not _is_object(text):
            raise RecordedError(f"{name}: entry {number}", "is no JSON object", "export the file again")
        yield text
    where = f"{name}: entry {number + 1}"
    if number:
        raise RecordedError(where, "the file ends before its list of entries does", "export or fetch it again")
    raise RecordedError(name, "no log.entries in it, or nothing whole there", "is it a HAR file, and complete?")


def _is_object(text: bytes) -> bool:
    # Parsed a second time by the format: a broken file must be told by its entry, whatever --max-broken allows.
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


class _Cutter:
    """Follows braces and quotes through the pieces of a document. Depths: 1 the document, 2 `log`, 3 its entries."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._depth = 0
        self._in_text = False
        self._inside = False
        self._begin = -1
        self._too_long = False

    def pieces(self, unpacked: Unpacked) -> Iterator[tuple[str, bytes | None]]:
        """("entry", text) for each, then ("end", None) once the list is closed; nothing more if the file just stops."""
        while piece := unpacked.read(_PIECE_BYTES):
            self._buffer += piece
            for found in self._scan():
                yield found
                if found[0] == "end":
                    return
            self._forget()

    def _scan(self) -> Iterator[tuple[str, bytes | None]]:
        buffer = self._buffer
        while True:
            if not self._past_text():
                return
            plain = _PLAIN.match(buffer, self._at)
            self._at = plain.end() if plain else self._at
            if self._at >= len(buffer):
                return
            mark = buffer[self._at]
            if mark == 0x22:  # a text that is not all here yet
                self._in_text = True
                self._at += 1
                continue
            yield from self._brace(mark)
            self._at += 1

    def _past_text(self) -> bool:
        if not self._in_text:
            return True
        rest = _IN_TEXT.match(self._buffer, self._at)
        self._at = rest.end() if rest else self._at
        if self._at >= len(self._buffer) or self._buffer[self._at] != 0x22:
            return False  # at the end, or at a backslash whose fellow is still to come
        self._in_text = False
        self._at += 1
        return True

    def _brace(self, mark: int) -> Iterator[tuple[str, bytes | None]]:
        if mark in b"{[":
            if self._inside and self._depth == 3:
                self._begin = self._at
            elif not self._inside and self._depth == 2 and mark == 0x5B:
                before = bytes(self._buffer[max(0, self._at - 64) : self._at])
                self._inside = _ENTRIES.search(before) is not None
            self._depth += 1
            return
        self._depth -= 1
        if self._inside and self._depth == 3:
            text = None if self._too_long else bytes(self._buffer[self._begin : self._at + 1])
            self._begin, self._too_long = -1, False
            yield "entry", text
        elif self._inside and self._depth == 2:
            yield "end", None

    def _forget(self) -> None:
        """Drops what is behind: all but the entry under way, which is given up once it is too long."""
        if self._begin >= 0 and self._at - self._begin > MAX_ENTRY_BYTES:
            self._too_long = True
        keep = self._begin if self._begin >= 0 and not self._too_long else max(0, self._at - 64)
        del self._buffer[:keep]
        self._at -= keep
        self._begin = self._begin if self._begin < 0 else 0


def _fields(text: bytes, bodies: bool) -> Fields | None:
    try:
        entry = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    request, answer = (_object(entry.get(key)) for key in ("request", "response"))
    url, method = request.get("url"), request.get("method")
    if not isinstance(url, str) or not isinstance(method, str):
        return None
    scheme, _, rest = url.partition("://")
    host, slash, path = _split(rest)
    took = _object(entry.get("timings")).get("wait")
    fields: Fields = {
        "time": entry.get("startedDateTime"),
        "method": method.upper(),
        "path": without_secrets(slash + path) if slash else "/",
        ":path": slash + path,
        "host": host,
        "status": answer.get("status"),
        "duration_ms": took if isinstance(took, int | float) and took >= 0 else entry.get("time"),
        "headers": {key.lower(): value for key, value in _pairs(request.get("headers"))},
        "cookies": dict(_pairs(request.get("cookies"))),
        "page": entry.get("pageref"),
    }
    if scheme.lower() not in ("http", "https") or _from_cache(entry, answer):
        fields[":aside"] = True
    if bodies:
        _keep_body(fields, _object(request.get("postData")))
    return fields


def _split(rest: str) -> tuple[str, str, str]:
    """`user:pass@host/a?b` -> ("host", "/", "a?b"): who is in a URL is a credential too."""
    cut = min((place for mark in "/?#" if (place := rest.find(mark)) >= 0), default=len(rest))
    host, path = rest[:cut].rpartition("@")[2], rest[cut:].partition("#")[0]
    return host.lower(), "/" if path else "", path.removeprefix("/")


def _from_cache(entry: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Chrome says where from; a status of 0 without anything sent is a call that was blocked or never left."""
    if entry.get("_fromCache") in ("memory", "disk", "prefetch"):
        return True
    return answer.get("status") == 0 and not entry.get("serverIPAddress") and not answer.get("_error")


def _keep_body(fields: Fields, posted: Mapping[str, Any]) -> None:
    body = posted.get("text")
    if not body:
        return
    kind = str(posted.get("mimeType") or "").lower()
    if isinstance(body, str) and len(body) <= MAX_BODY_CHARACTERS and "json" in kind:
        fields[":body"] = body
    else:
        fields[":body_left"] = True


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    """(name, value) of a list such as `headers`."""
    for one in value[:_MOST_HEADERS] if isinstance(value, list) else ():
        if isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("value"), str):
            yield one["name"], one["value"]
