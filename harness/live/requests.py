"""The bytes of a request: constant parts built once a tenant, the rest with one format.

Nothing that comes from a profile or a recording can end a header or add one: tokens and hosts are checked, paths are
percent-encoded, methods come from a list. A token is seen in the request and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlsplit

from harness.errors import BadInput
from harness.ledger.call import Call
from harness.profile.model import Claims
from harness.target.hosts import Address, accepted, addresses_of, reachable_first
from harness.target.tls import Tls, context_of
from harness.target.tls import from_json as tls_from_json
from harness.target.tokens import sendable
from harness.workload.claims import claimed_by

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
WITH_BODY = frozenset(("POST", "PUT", "PATCH"))
DEFAULT_METHOD = "POST"
DEFAULT_PATH = "/service"
PATH_LIMIT = 8000
BODY = b"{}"
CONNECT_TIMEOUT_NS = 5_000_000_000
_PATHS_KEPT = 4096
_PORTS = {"http": 80, "https": 443}


class BadTarget(BadInput):
    """The target, a token or a recording cannot be used; the message says which and what to do."""


class Unsendable(ValueError):
    """A recorded call that cannot be sent as it is."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where calls go. addresses: all that the host has; calls go to the first. host: as the header says it. path: of
    calls without one of their own. prefix: before recorded paths. base: before the paths of the capacity layer, which
    calls of runs have. tls: with https, else None. name: the URL's host, which the certificate is for."""

    addresses: tuple[Address, ...]
    host: str
    path: str
    prefix: str
    base: str = ""
    scheme: str = "http"
    tls: Tls | None = None
    name: str = ""
    connect_timeout_ns: int = CONNECT_TIMEOUT_NS
    """For the connection, and once more for the TLS handshake on it."""

    @property
    def address(self) -> Address:
        return self.addresses[0]

    @property
    def ipv6(self) -> bool:
        return ":" in self.address[0]


def target_of(
    kind: str,
    url: str,
    *,
    tls: Tls | None = None,
    allowed_hosts: Collection[str] = (),
    connect_timeout_ns: int = CONNECT_TIMEOUT_NS,
) -> Target:
    """Looks the host up and reads the files of `tls`. Raises BadInput. Accepted are loopback and the allowed hosts."""
    try:
        parts = urlsplit(url)
        given_port = parts.port
    except ValueError as error:
        raise BadTarget(f"target {url!r} is not a URL ({error}); give one such as http://127.0.0.1:8000/path") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise BadTarget(f"target {url!r} is not an http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise BadTarget("the target URL holds credentials; give tokens in OVERLOAD_TOKENS instead")
    if given_port == 0:
        raise BadTarget(
            f"target {url!r} has port 0, on which nothing can listen; give one such as http://127.0.0.1:8000/path"
        )
    name, port = parts.hostname, given_port or _PORTS[parts.scheme]
    if not accepted(name, allowed_hosts):
        raise BadTarget(
            f"target host {name!r} is not loopback, nor on the allow list; only 127.0.0.0/8, ::1, localhost and the "
            "hosts of that list are accepted"
        )
    if not name.isascii() or not name.isprintable() or " " in name:
        raise BadTarget(f"target host {name!r} has characters that no header can carry; give it in ASCII (xn--...)")
    if parts.scheme == "https":
        tls = tls or Tls()
        context_of(tls, name)
    elif tls is not None:
        raise BadTarget(f"target {url!r} is plain HTTP, but there are settings for TLS; give an https:// URL")
    given = parts.path if kind != "stub" or parts.path != "/" else ""
    path = encode_path(given + ("?" + parts.query if parts.query else "")) if given else ""
    host = f"[{name}]" if ":" in name else name
    host = host if port == _PORTS[parts.scheme] else f"{host}:{port}"
    return Target(
        addresses_of(name, port),
        host,
        path or DEFAULT_PATH,
        DEFAULT_PATH if kind == "stub" else "",
        encode_path(parts.path).rstrip("/") if given else "",
        parts.scheme,
        tls,
        name,
        connect_timeout_ns,
    )


def target_in_manifest(document: Mapping[str, Any]) -> Target:
    """The `target` of a trial's manifest, of its addresses the first that accepts in front. Raises BadInput."""
    hosts, timeout_ns = document.get("allowed_hosts", []), document.get("connect_timeout_ns", CONNECT_TIMEOUT_NS)
    tls, wrong = None, None
    try:
        tls = tls_from_json(document["tls"]) if document.get("tls") is not None else None
    except ValueError:
        wrong = "tls"
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        wrong = "allowed_hosts"
    if type(timeout_ns) is not int or timeout_ns < 1:
        wrong = "connect_timeout_ns"
    if wrong:
        raise BadTarget(f"the manifest's target.{wrong} is not what it should be; was it edited?")
    kind, url = document["kind"], document["url"]
    return reached(target_of(kind, url, tls=tls, allowed_hosts=hosts, connect_timeout_ns=timeout_ns))


def reached(target: Target) -> Target:
    """Before a trial: where a host has several addresses, calls go to the first that accepts a connection."""
    return replace(target, addresses=reachable_first(target.addresses))


def encode_path(path: str) -> str:
    """A request target in visible ASCII that begins with a slash. What is encoded already stays so."""
    path = path if path.startswith("/") else "/" + path
    path = path.partition("#")[0]
    encoded = quote(path, safe="/%:?&=+,;@!$'()*~[]-._|^`{}\"\\<>", errors="replace")
    if len(encoded) > PATH_LIMIT:
        raise Unsendable("path_too_long")
    return encoded


def decimal_ms(ns: int) -> str:
    """Milliseconds without an exponent and without a needless fraction."""
    whole, rest = divmod(ns, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


class Requests:
    """The requests of one tenant: `of(call)` gives the bytes."""

    __slots__ = (
        "_base", "_claims", "_id", "_paths", "_plain", "_prefix", "_rest", "_rest_body", "_rest_run", "_tool_path",
        "_tools",
    )  # fmt: skip

    def __init__(
        self,
        tenant: str,
        index: int,
        target: Target,
        token: str | None,
        queue_deadline_ns: int | None,
        claims: Claims | None = None,
    ) -> None:
        named = token is not None
        token = token if token is not None else f"token-{tenant}"
        if not sendable(token):
            where = "in OVERLOAD_TOKENS" if named else "(its name makes the token; give one in OVERLOAD_TOKENS)"
            raise BadTarget(
                f"the token of tenant {tenant!r} {where} is empty or has characters that no header can carry"
            )
        lines = [f"Host: {target.host}", f"Authorization: Bearer {token}", "User-Agent: overload", "Accept: */*"]
        if queue_deadline_ns is not None:
            lines.append(f"Overload-Queue-Deadline-Ms: {decimal_ms(queue_deadline_ns)}")
        self._claims = claims
        self._id = b"%d." % index
        last = b"\r\nOverload-Call: " + self._id
        self._rest = "\r\n".join(lines).encode() + last
        lines.append("Content-Type: application/json")
        self._base = target.base
        self._rest_run = "\r\n".join(lines).encode() + b"\r\nContent-Length: "
        lines.append(f"Content-Length: {len(BODY)}")
        self._rest_body = "\r\n".join(lines).encode() + last
        self._plain = f"{DEFAULT_METHOD} {target.path} HTTP/1.1\r\n".encode() + self._rest_body
        self._prefix = target.prefix
        self._paths: dict[tuple[str, str], bytes] = {}
        path, question, query = target.path.partition("?")
        self._tool_path = (path.rstrip("/"), question + query)
        self._tools: dict[tuple[str, str], bytes] = {}

    def of(self, call: Call) -> bytes:
        """Raises Unsendable for a recorded call that HTTP cannot carry."""
        if call.action is not None:
            return self._of_run(call)
        if call.tool is not None:
            head = self._to_tool(call.method or DEFAULT_METHOD, call.tool)
        else:
            head = self._plain if call.method is None and call.path is None else self._recorded(call)
        seq, attempt = call.seq, call.attempt
        if call.cost < 0:
            tail = b"%b%d\r\nOverload-Attempt: %b%d.%d\r\nOverload-Round: %d\r\n%b\r\n%b"
            return tail % (head, seq, self._id, seq, attempt, call.round, self._claim(call), self._body(call))
        tail = b"%b%d\r\nOverload-Attempt: %b%d.%d\r\nOverload-Round: %d\r\nOverload-Cost: %b\r\n%b\r\n%b"
        cost = _decimal(call.cost)
        return tail % (head, seq, self._id, seq, attempt, call.round, cost, self._claim(call), self._body(call))

    def _of_run(self, call: Call) -> bytes:
        body, path = call.body or b"", encode_path(self._base + (call.path or "/"))
        begin = f"{call.method or DEFAULT_METHOD} {path} HTTP/1.1\r\n".encode("ascii")
        form = b"%b%b%d\r\nOverload-Call: %b%d\r\nOverload-Attempt: %b%d.1\r\nOverload-Round: %d\r\n\r\n%b"
        own, seq = self._id, call.seq
        return form % (begin, self._rest_run, len(body), own, seq, own, seq, call.round, body)

    def _claim(self, call: Call) -> bytes:
        """A line that says that the call is somebody else's, where its tenant claims so."""
        if self._claims is None:
            return b""
        return f"{self._claims.header}: {quote(claimed_by(call, self._claims), safe='')}\r\n".encode()

    @staticmethod
    def _body(call: Call) -> bytes:
        if call.body is not None:
            return call.body
        return BODY if (call.method or DEFAULT_METHOD) in WITH_BODY else b""

    def _recorded(self, call: Call) -> bytes:
        if call.body is not None:
            return self._with_own_body(call, call.body)
        key = (call.method or DEFAULT_METHOD, call.path or "/")
        head = self._paths.get(key)
        if head is None:
            head = self._head(key[0], self._prefix + encode_path(key[1]))
            if len(self._paths) >= _PATHS_KEPT:
                self._paths.clear()
            self._paths[key] = head
        return head

    def _with_own_body(self, call: Call, body: bytes) -> bytes:
        method, path = call.method or DEFAULT_METHOD, encode_path(self._prefix + encode_path(call.path or "/"))
        if method not in WITH_BODY:
            raise Unsendable("unsendable_body")
        form = b"%b %b HTTP/1.1\r\n%b%d\r\nOverload-Call: %b"
        return form % (method.encode("ascii"), path.encode("ascii"), self._rest_run, len(body), self._id)

    def _to_tool(self, method: str, tool: str) -> bytes:
        """A tool is a part of the path below that of other calls."""
        head = self._tools.get((method, tool))
        if head is None:
            path, query = self._tool_path
            head = self._tools[method, tool] = self._head(method, f"{path}/{tool}{query}")
        return head

    def _head(self, method: str, path: str) -> bytes:
        if method not in METHODS:
            raise Unsendable("unsendable_method")
        line = f"{method} {encode_path(path)} HTTP/1.1\r\n".encode("ascii")
        return line + (self._rest_body if method in WITH_BODY else self._rest)


def _decimal(cost: float) -> bytes:
    if not math.isfinite(cost):
        raise Unsendable("unsendable_cost")
    return b"%d" % cost if cost == int(cost) else f"{cost:.9f}".rstrip("0").encode()
