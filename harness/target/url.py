"""Which URLs may be loaded, what answers there, and a stub that somebody else started; over HTTP or HTTPS.

A load tool can take a service down: only this machine's own loopback addresses are accepted, and the hosts that the
guard rails allow. A host's addresses are looked up once, not with every question: it stays the same machine.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from harness.target.errors import TargetError, TargetGone, TargetUnusable
from harness.target.hosts import Address, accepted, addresses_of
from harness.target.tls import Tls, context_of, name_of, words_of

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_PROBE_S = 5.0
_ASK_S = 10.0
_KINDS = ("decisions", "arrivals", "effects", "stalls")
"""Names of files are made of these, so what a target says of itself is not among them unless it is one of these."""
_LARGEST_ANSWER = 8 << 20
_EXAMPLE = "http://127.0.0.1:8080"


def accepted_url(url: str, allowed_hosts: Collection[str] = ()) -> str:
    """The URL without its trailing slash, if it is HTTP or HTTPS to a host that may be loaded. Else TargetError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise TargetUnusable(f"{url!r} is not a URL ({error}); expected one such as {_EXAMPLE}") from None
    if parts.username is not None or parts.password is not None:
        raise TargetUnusable("a target's URL must not carry a user or a password: tokens come from the environment")
    if parts.scheme not in ("http", "https") or not host:
        raise TargetUnusable(f"{url!r} is not an HTTP URL; expected one such as {_EXAMPLE}")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise TargetUnusable(f"{url!r} has characters that a URL cannot have; expected one such as {_EXAMPLE}")
    if parts.query or parts.fragment:
        raise TargetUnusable(f"{url!r} has a query or a fragment; leave them out")
    if not accepted(host, allowed_hosts):
        raise TargetUnusable(
            f"{host!r} is not a loopback host, nor on the target's allow list: only 127.0.0.0/8, ::1, localhost and "
            "the hosts of that list are accepted; if you may load it, describe it in a target file with `allow` and "
            "`limits` (overload target init)"
        )
    if port == 0:
        raise TargetUnusable(f"{url!r} has port 0, on which nothing can listen; expected one such as {_EXAMPLE}")
    return url.rstrip("/")


class Endpoint:
    """A URL, where it leads, and how it is asked: one connection a question."""

    def __init__(self, url: str, tls: Tls | None = None, allowed_hosts: Collection[str] = ()) -> None:
        """Raises TargetUnusable: a URL that is not accepted, a host without an address, TLS files that are no good."""
        self.url = accepted_url(url, allowed_hosts)
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        self._base, self._host = parts.path, parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context: ssl.SSLContext | None = None
        if parts.scheme == "https":
            tls = tls or Tls()
            self._context, self._name = context_of(tls, self._host), name_of(tls, self._host)
        elif tls is not None:
            raise TargetUnusable(f"{url!r} is plain HTTP, but there are settings for TLS; give an https:// URL")
        self._addresses = addresses_of(self._host, self._port)

    def exchange(
        self, method: str, path: str, body: bytes | None, timeout_s: float, headers: Mapping[str, str] = NO_HEADERS
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request, sent once. Raises OSError (SSLError is one) or HTTPException."""
        connection = (
            http.client.HTTPConnection(self._host, self._port)
            if self._context is None
            else http.client.HTTPSConnection(self._host, self._port, context=self._context)
        )
        try:
            connection.sock = self._connected(timeout_s)
            connection.request(method, self._base + path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read(_LARGEST_ANSWER)
        finally:
            connection.close()

    def _connected(self, timeout_s: float) -> socket.socket:
        """To the first address that accepts."""
        sock = _connected_to(self._addresses, timeout_s)
        if self._context is None:
            return sock
        try:
            return self._context.wrap_socket(sock, server_hostname=self._name)
        except BaseException:
            sock.close()
            raise


def _connected_to(addresses: tuple[Address, ...], timeout_s: float) -> socket.socket:
    first: OSError | None = None
    for address in addresses:
        try:
            return socket.create_connection(address, timeout_s)
        except OSError as error:
            first = first or error
    raise first or OSError("no address")


def probe(url: str, tls: Tls | None = None, allowed_hosts: Collection[str] = ()) -> Literal["overload-stub", "other"]:
    """What answers at a URL. Raises TargetError if nothing does."""
    endpoint = Endpoint(url, tls, allowed_hosts)
    try:
        _, _, answer = endpoint.exchange("GET", "/healthz", None, _PROBE_S)
    except http.client.HTTPException:
        return "other"
    except ssl.SSLError as error:
        raise TargetUnusable(f"no TLS with {url}: {words_of(error)}") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise TargetUnusable(f"nothing answers at {url} ({why}); start the service first") from None
    try:
        document = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return "other"
    ours = isinstance(document, dict) and document.get("service") == "overload-stub"
    return "overload-stub" if ours else "other"


@contextmanager
def connect(url: str, tls: Tls | None = None, allowed_hosts: Collection[str] = ()) -> Iterator[RemoteStub | None]:
    """A stub that runs already, or None for any other service. Raises TargetError if nothing answers."""
    ours = probe(url, tls, allowed_hosts) == "overload-stub"
    yield RemoteStub(url, tls, allowed_hosts) if ours else None


class RemoteStub:
    """The control side of a stub at a URL. Methods raise TargetGone when it does not answer as a stub does."""

    def __init__(self, url: str, tls: Tls | None = None, allowed_hosts: Collection[str] = ()) -> None:
        self._endpoint = Endpoint(url, tls, allowed_hosts)
        self.url = self._endpoint.url
        self._cursors: dict[str, int] = {}

    def set_epoch(self, monotonic_ns: int) -> None:
        """The trial begins at this instant of CLOCK_MONOTONIC of this machine. Earlier evidence is not collected."""
        self._cursors = self.cursors()
        self.ask("POST", "/epoch", orjson.dumps({"monotonic_ns": monotonic_ns}))

    def health(self) -> dict[str, Any]:
        """What /healthz says, loop lag included."""
        _, answer = self.ask("GET", "/healthz")
        try:
            document = orjson.loads(answer)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict) or document.get("service") != "overload-stub":
            raise TargetGone(f"{self.url} no longer answers as a stub does")
        return document

    def metrics(self) -> str:
        return self.ask("GET", "/metrics")[1].decode()

    def set_faults(self, faults: list[dict[str, Any]]) -> None:
        """Replaces the faults of the stub's dependencies."""
        self.ask("POST", "/faults", orjson.dumps({"faults": faults}))

    def cursors(self) -> dict[str, int]:
        """How far each kind of evidence has come: kind -> bytes. It is flushed by this."""
        return {kind: _cursor_of(self.ask("GET", f"/evidence?cursor=end&kind={kind}")[0]) for kind in self._kinds()}

    def collect(self, folder: Path, but: str | None = None) -> None:
        """Appends the evidence since the epoch to the trial's folder, each kind to its own file, `but` that one."""
        for kind in self._kinds():
            if kind == but:
                continue
            with (folder / f"{kind}.jsonl").open("ab") as file:
                while True:
                    headers, lines = self.ask("GET", f"/evidence?kind={kind}&cursor={self._cursors.get(kind, 0)}")
                    if not lines:
                        break
                    file.write(lines)
                    self._cursors[kind] = _cursor_of(headers)

    def _kinds(self) -> list[str]:
        """Decisions, and what reached the dependencies if the stub has some."""
        told = self.health().get("evidence", [])
        return [kind for kind in _KINDS if kind in told]

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[http.client.HTTPMessage, bytes]:
        """One exchange that must succeed."""
        try:
            status, headers, answer = self._endpoint.exchange(method, path, body, _ASK_S)
        except (OSError, http.client.HTTPException) as error:
            raise TargetGone(f"{self.url} did not answer {method} {path}: {error!r}") from None
        if status != 200:
            raise TargetGone(f"{self.url} answered {method} {path} with {status}: {answer[:200]!r}")
        return headers, answer


def _cursor_of(headers: http.client.HTTPMessage) -> int:
    cursor = headers.get("Overload-Cursor", "")
    if not (cursor.isascii() and cursor.isdigit()):
        raise TargetGone(f"the stub's evidence came with the cursor {cursor[:40]!r}, which is not a number")
    return int(cursor)


__all__ = ["Endpoint", "RemoteStub", "TargetError", "accepted_url", "connect", "probe"]
