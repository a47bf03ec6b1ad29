"""Which addresses may be loaded, and what answers there.

A load tool can take a service down. Until there are guard rails for other hosts (an allow list, a rate limit, an abort
rule), only this machine's own loopback addresses are accepted.
"""

from __future__ import annotations

import http.client
import ipaddress
from typing import Literal
from urllib.parse import urlsplit

import orjson

from harness.target.errors import TargetError

_PROBE_S = 5.0
_LARGEST_ANSWER = 64 << 10


def loopback_url(url: str) -> str:
    """The URL without its trailing slash, if it is plain HTTP to a loopback host. Raises TargetError if it is not."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise TargetError(f"'{url}' is not a URL ({error}); expected one such as http://127.0.0.1:8080") from None
    if parts.scheme != "http" or not host:
        raise TargetError(f"'{url}' is not a plain HTTP URL; expected one such as http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None:
        raise TargetError("a URL must not carry a user or a password: tokens come from the environment")
    if parts.query or parts.fragment:
        raise TargetError(f"'{url}' has a query or a fragment; give the address that calls are sent to without them")
    if not _is_loopback(host):
        raise TargetError(
            f"'{host}' is not a loopback host: only 127.0.0.0/8, ::1 and localhost are accepted, because the guard "
            "rails for other hosts (allow list, maximum rate, abort rule) do not exist yet"
        )
    if port == 0:
        raise TargetError(f"'{url}' has port 0, which nothing can listen on")
    return url.rstrip("/")


def probe(url: str) -> Literal["overload-stub", "other"]:
    """What answers at a loopback URL. Raises TargetError if nothing does."""
    parts = urlsplit(loopback_url(url))
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_PROBE_S)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse().read(_LARGEST_ANSWER)
    except http.client.HTTPException:
        return "other"
    except OSError as error:
        raise TargetError(f"nothing answers at {url} ({error.strerror or error}); is the service started?") from None
    finally:
        connection.close()
    try:
        document = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return "other"
    ours = isinstance(document, dict) and document.get("service") == "overload-stub"
    return "overload-stub" if ours else "other"


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
