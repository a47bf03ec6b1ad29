"""Which addresses may be loaded, what answers there, and a stub that somebody else started.

A load tool can take a service down. Until there are guard rails for other hosts (an allow list, a maximum rate, an
abort rule), only this machine's own loopback addresses are accepted.
"""

from __future__ import annotations

import http.client
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from harness.target.errors import TargetError, TargetGone, TargetUnusable

_PROBE_S = 5.0
_ASK_S = 10.0
_KINDS = ("decisions", "arrivals", "effects")
"""Names of files are made of these, so what a target says of itself is not among them unless it is one of these."""
_LARGEST_ANSWER = 8 << 20
_EXAMPLE = "http://127.0.0.1:8080"


def loopback_url(url: str) -> str:
    """The URL without its trailing slash, if it is plain HTTP to a loopback host. Raises TargetError if it is not."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise TargetUnusable(f"{url!r} is not a URL ({error}); expected one such as {_EXAMPLE}") from None
    if parts.username is not None or parts.password is not None:
        raise TargetUnusable("a target's URL must not carry a user or a password: tokens come from the environment")
    if parts.scheme != "http" or not host:
        raise TargetUnusable(f"{url!r} is not a plain HTTP URL; expected one such as {_EXAMPLE}")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise TargetUnusable(f"{url!r} has characters that a URL cannot have; expected one such as {_EXAMPLE}")
    if parts.query or parts.fragment:
        raise TargetUnusable(f"{url!r} has a query or a fragment; leave them out")
    if not _is_loopback(host):
        raise TargetUnusable(
            f"{host!r} is not a loopback host: only 127.0.0.0/8, ::1 and localhost are accepted, because the guard "
            "rails for other hosts (allow list, maximum rate, abort rule) do not exist yet"
        )
    if port == 0:
        raise TargetUnusable(f"{url!r} has port 0, on which nothing can listen; expected one such as {_EXAMPLE}")
    return url.rstrip("/")


def probe(url: str) -> Literal["overload-stub", "other"]:
    """What answers at a loopback URL. Raises TargetError if nothing does."""
    try:
        _, _, answer = _exchange(loopback_url(url), "GET", "/healthz", None, _PROBE_S)
    except http.client.HTTPException:
        return "other"
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
def connect(url: str) -> Iterator[RemoteStub | None]:
    """A stub that runs already, or None for any other service. Raises TargetError if nothing answers."""
    yield RemoteStub(url) if probe(url) == "overload-stub" else None


class RemoteStub:
    """The control side of a stub at a loopback URL. Methods raise TargetGone when it does not answer as a stub does."""

    def __init__(self, url: str) -> None:
        self.url = loopback_url(url)
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

    def collect(self, folder: Path) -> None:
        """Appends the evidence since the epoch to the trial's folder, each kind to its own file."""
        for kind in self._kinds():
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
            status, headers, answer = _exchange(self.url, method, path, body, _ASK_S)
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


def _exchange(
    url: str, method: str, path: str, body: bytes | None, timeout_s: float
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Raises OSError or HTTPException."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout_s)
    try:
        connection.request(method, parts.path + path, body)
        response = connection.getresponse()
        return response.status, response.headers, response.read(_LARGEST_ANSWER)
    finally:
        connection.close()


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


__all__ = ["RemoteStub", "TargetError", "connect", "loopback_url", "probe"]
