"""Which hosts may be called, and where they are. Names are looked up once, before anything is sent.

A host is accepted if it is this machine's own loopback, by address or as `localhost`, or if it is on the list that the
guard rails give, letter for letter. A name that is on no list is not looked up to see whether it happens to lead here:
what a name leads to may change.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from ipaddress import ip_address

from harness.target.errors import TargetUnusable

Address = tuple[str, int]
CONNECT_S = 2.0
_LOCALHOST = ("127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def accepted(host: str, allowed_hosts: Collection[str]) -> bool:
    """Loopback, or on the list; upper and lower case are one."""
    return is_loopback(host) or host.lower() in {allowed.lower() for allowed in allowed_hosts}


def addresses_of(host: str, port: int) -> tuple[Address, ...]:
    """All addresses of a host, those first that this machine prefers. Raises TargetUnusable if it has none."""
    if host.lower() == "localhost":  # RFC 6761: never asked of anybody
        return tuple((ip, port) for ip in _LOCALHOST)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "not a name"
        raise TargetUnusable(f"host {host!r} cannot be found ({why}); check its name, or give an address") from None
    kinds = (socket.AF_INET, socket.AF_INET6)
    return tuple(dict.fromkeys((str(at[0]), port) for family, _, _, _, at in found if family in kinds))


def reachable_first(addresses: tuple[Address, ...], timeout_s: float = CONNECT_S) -> tuple[Address, ...]:
    """The same, the first that accepts a connection in front: one that leads nowhere must not cost every call its
    time. Nothing is sent. A single address is left as it is, and so are several of which none accepts."""
    if len(addresses) > 1:
        for address in addresses:
            try:
                socket.create_connection(address, timeout_s).close()
            except OSError:
                continue
            return (address, *(other for other in addresses if other != address))
    return addresses
