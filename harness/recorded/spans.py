"""Calls to dependencies out of what records them: traces (OTLP and Jaeger JSON), HAR files, a trial's arrivals.

Sources: OpenTelemetry protocol, JSON encoding (one ExportTraceServiceRequest a file or a line), and its semantic
conventions for HTTP, RPC, databases and messaging, old names and new; Jaeger's UI and query API export. Of a trace only
spans that call out count: kind client or producer. Statements of databases are never read: they hold data.

Never keeps a credential or a query of a URL. Raises RecordedError and nothing else, whatever the bytes are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from harness.recorded import har
from harness.recorded.downstream import Seen
from harness.recorded.errors import RecordedError, printable
from harness.recorded.lines import Source, Unpacked, lines
from harness.recorded.record import MAX_NAME
from harness.recorded.times import Clock

FORMATS = ("auto", "otlp", "jaeger", "har", "arrivals", "stand_in")
MAX_DOCUMENT_BYTES = 512 << 20
_PIECE_BYTES = 1 << 20
_CALLS_OUT = frozenset((3, 4, "3", "4", "SPAN_KIND_CLIENT", "SPAN_KIND_PRODUCER", "client", "producer"))
_PAGE = "(no page)"


def read_calls(source: Source, form: str, clock: Clock) -> tuple[list[Seen], str]:
    """(calls in order of time, what the file was read as). clock: of instants in a HAR that name no zone."""
    unpacked = Unpacked(source)
    if form == "har" or (form == "auto" and har.looks_like(unpacked.peek(har.PEEK_BYTES))):
        return _sorted(_of_har(unpacked, clock)), "har"
    found: list[Seen] = []
    read_as = ""
    for number, document in _documents(unpacked):
        kind = _kind(document) if form == "auto" else form
        parse = _PARSERS.get(kind)
        if parse is None:
            raise RecordedError(
                f"{source.name}:{number}",
                "neither a trace (OTLP or Jaeger JSON), nor a HAR, nor arrivals of a trial",
                "say --format, and is it the right file?",
            )
        read_as = kind
        try:
            found += parse(document)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            rule = f"not {kind} as it should be ({printable(repr(error), 100)})"
            raise RecordedError(f"{source.name}:{number}", rule, "export it again") from None
    if not read_as:
        raise RecordedError(source.name, "holds nothing", "is it the right file?")
    return _sorted(found), read_as


def _sorted(found: Iterable[Seen]) -> list[Seen]:
    return sorted(found, key=lambda one: one.at_ns)


def _documents(unpacked: Unpacked) -> Iterator[tuple[int, Any]]:
    """(number of the line at which it begins, JSON): the file as a whole, or line by line."""
    name = unpacked.source.name
    begin = unpacked.peek(har.PEEK_BYTES).lstrip()
    first = begin.partition(b"\n")[0].strip()
    if first.endswith(b"}") and _is_json(first):
        for number, line in enumerate(lines(unpacked), 1):
            if line is None:
                raise RecordedError(f"{name}:{number}", "a line is longer than 1 MiB", "export it as one document")
            if line.strip():
                yield number, _json(line, f"{name}:{number}")
        return
    pieces, size = [], 0
    while piece := unpacked.read(_PIECE_BYTES):
        size += len(piece)
        if size > MAX_DOCUMENT_BYTES:
            raise RecordedError(name, f"is larger than {MAX_DOCUMENT_BYTES >> 20} MiB", "export fewer traces at a time")
        pieces.append(piece)
    text = b"".join(pieces).removeprefix(b"\xef\xbb\xbf")
    if text.strip():
        try:
            yield 1, orjson.loads(text)
        except orjson.JSONDecodeError:
            # An exporter's lines may each be longer than what was looked at.
            for number, line in enumerate(text.splitlines(), 1):
                if line.strip():
                    yield number, _json(line, f"{name}:{number}")


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _json(text: bytes, where: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RecordedError(where, f"not JSON ({printable(str(error), 100)})", "is the file whole?") from None


def _kind(document: Any) -> str:
    if isinstance(document, dict):
        if "resourceSpans" in document or "resource_spans" in document:
            return "otlp"
        if isinstance(document.get("data"), list):
            return "jaeger"
        if "dependency" in document and "t_ns" in document:
            return "arrivals"
        if "arrival" in document and "t_ns" in document:
            return "stand_in"
    return ""


def _of_har(unpacked: Unpacked, clock: Clock) -> Iterator[Seen]:
    parse = har.entry_format(bodies=True).parse
    for number, entry in enumerate(har.entries(unpacked), 1):
        fields = parse(entry) if entry is not None else None
        where = f"{unpacked.source.name}: entry {number}"
        if fields is None:
            raise RecordedError(where, "has no request with a method and a URL, or is too long", "export it again")
        if ":aside" in fields:
            continue
        try:
            at_ns, _ = clock.read(fields["time"])
        except ValueError:
            raise RecordedError(where, "its startedDateTime is no time", "export the file again") from None
        took, status = fields["duration_ms"], fields["status"]
        known = isinstance(took, int | float) and not isinstance(took, bool) and 0 <= took < 1e12
        same = _digest(fields["method"], fields["host"], fields[":path"], fields.get(":body") or "")
        yield Seen(
            at_ns, _name(fields["host"]), _name(fields["method"]), fields[":path"].partition("?")[0],
            str(fields["page"] or _PAGE), same, int(took * 1e6) if known else -1, _bad(status) or status in (0, None),
        )  # fmt: skip


def _of_arrivals(row: Mapping[str, Any]) -> Iterator[Seen]:
    """A row of a trial's arrivals.jsonl."""
    operation = str(row["operation"])
    began, ended, status = int(row["t_ns"]), int(row.get("ended_ns") or row["t_ns"]), int(row.get("status") or 0)
    step, run = str(row.get("step") or ""), str(row.get("run") or "")
    yield Seen(
        began, _name(row["dependency"]), _name(operation), _name(row.get("tool") or ""), run,
        _digest(run, step, operation, str(row["dependency"])), ended - began, _bad(status) or status == 0,
        int(row.get("attempt") or 0),
    )  # fmt: skip


def _of_stand_in(row: Mapping[str, Any]) -> Iterator[Seen]:
    """A row of what arrived at `overload serve`: a workflow is a client, told apart by its credential's digest."""
    began, done, status = int(row["t_ns"]), row.get("done_ns"), row.get("status")
    who, method, path = str(row.get("identity") or ""), _name(row.get("method") or ""), str(row.get("path") or "")
    same = _digest(who, method, path, str(row.get("operation") or ""), str(row.get("body") or ""))
    took = int(done) - began if isinstance(done, int) else -1
    bad = _bad(status) or row.get("answer") in ("failed", "reset", "hang")
    yield Seen(began, "(stand-in)", method, path.partition("?")[0][:2_048], who, same, took, bad)


def _of_otlp(document: Mapping[str, Any]) -> Iterator[Seen]:
    for resource in document.get("resourceSpans") or document.get("resource_spans") or ():
        scopes = resource.get("scopeSpans") or resource.get("scope_spans")
        for scope in scopes or resource.get("instrumentationLibrarySpans") or ():
            for span in scope.get("spans") or ():
                if span.get("kind") in _CALLS_OUT:
                    yield _otlp_span(span)


def _otlp_span(span: Mapping[str, Any]) -> Seen:
    tags = {str(one["key"]): _otlp_value(one.get("value") or {}) for one in span.get("attributes") or ()}
    began = int(span.get("startTimeUnixNano") or span.get("start_time_unix_nano") or 0)
    ended = int(span.get("endTimeUnixNano") or span.get("end_time_unix_nano") or began)
    status = span.get("status") or {}
    failed = status.get("code") in (2, "2", "STATUS_CODE_ERROR")
    trace, parent = (str(span.get(key) or span.get(other) or "") for key, other in
                     (("traceId", "trace_id"), ("parentSpanId", "parent_span_id")))  # fmt: skip
    return _span(tags, str(span.get("name") or ""), trace, parent, began, ended - began, failed)


def _otlp_value(value: Mapping[str, Any]) -> Any:
    return next((value[key] for key in ("stringValue", "intValue", "boolValue", "doubleValue") if key in value), None)


def _of_jaeger(document: Mapping[str, Any]) -> Iterator[Seen]:
    for trace in document["data"]:
        for span in trace.get("spans") or ():
            tags = {str(tag["key"]): tag.get("value") for tag in span.get("tags") or ()}
            if tags.get("span.kind") not in _CALLS_OUT:
                continue
            references = span.get("references") or ()
            parent = next((str(one.get("spanID")) for one in references if one.get("refType") == "CHILD_OF"), "")
            failed = tags.get("error") in (True, "true") or tags.get("otel.status_code") == "ERROR"
            began, took = int(span["startTime"]) * 1_000, int(span.get("duration") or 0) * 1_000
            trace_id = str(span.get("traceID") or trace.get("traceID") or "")
            yield _span(tags, str(span.get("operationName") or ""), trace_id, parent, began, took, failed)


def _span(
    tags: Mapping[str, Any], name: str, trace: str, parent: str, began_ns: int, took_ns: int, failed: bool
) -> Seen:
    url = _text(tags, "url.full", "http.url")
    host, path = _of_url(url)
    dependency = _text(tags, "peer.service") or _address(tags) or host or _text(
        tags, "http.host", "rpc.service", "messaging.system", "db.system.name", "db.system"
    )  # fmt: skip
    method = _text(tags, "http.request.method", "http.method", "rpc.method", "db.operation.name", "db.operation")
    method = method or _text(tags, "messaging.operation.name", "messaging.operation")
    shown = _text(tags, "url.template", "http.route") or path or _text(tags, "url.path", "http.target", "rpc.service")
    shown = shown or _text(tags, "db.collection.name", "db.sql.table", "messaging.destination.name") or name
    status = _text(tags, "http.response.status_code", "http.status_code")
    resent = _text(tags, "http.request.resend_count", "http.resend_count")
    same = _digest(parent, dependency, method, url or _text(tags, "url.path", "http.target") or shown)
    return Seen(
        began_ns, _name(dependency or name or "(unknown)"), _name(method), shown.partition("?")[0][:2_048], trace, same,
        max(0, took_ns), failed or _bad(status), int(resent) + 1 if resent.isdigit() and int(resent) else 0,
    )  # fmt: skip


def _address(tags: Mapping[str, Any]) -> str:
    host = _text(tags, "server.address", "net.peer.name", "network.peer.address", "net.peer.ip")
    port = _text(tags, "server.port", "net.peer.port")
    return f"{host}:{port}" if host and port not in ("", "80", "443") else host


def _text(tags: Mapping[str, Any], *names: str) -> str:
    """The first of these attributes that is there."""
    return next((str(value) for name in names if (value := tags.get(name)) not in (None, "")), "")


def _of_url(url: str) -> tuple[str, str]:
    rest = url.partition("://")[2]
    host, slash, path = rest.partition("/")
    return host.partition("?")[0].rpartition("@")[2].lower(), slash + path.partition("?")[0].partition("#")[0]


def _bad(status: Any) -> bool:
    """A refusal or a failure of the server."""
    text = str(status)
    return text.isdigit() and len(text) == 3 and (text == "429" or text >= "500")


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _name(value: Any) -> str:
    return printable(str(value), MAX_NAME)


_PARSERS: dict[str, Callable[[Any], Iterator[Seen]]] = {
    "otlp": _of_otlp,
    "jaeger": _of_jaeger,
    "arrivals": _of_arrivals,
    "stand_in": _of_stand_in,
}
