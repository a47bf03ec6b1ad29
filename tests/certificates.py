"""Certificates for tests, made as they run, and the contexts of servers that show them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from harness.target.tls import Tls

NAME = "service.test"


class Authority:
    """A CA that nobody else trusts. Files are written into the folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.file = folder / f"{name}.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def issue(self, *names: str, expired: bool = False, stem: str = "server") -> tuple[Path, Path]:
        """Certificate chain and key."""
        now = datetime.now(UTC)
        until = now - timedelta(days=1) if expired else now + timedelta(days=30)
        made = self._authority.issue_cert(*names, not_before=now - timedelta(days=2), not_after=until)
        cert, key = self._folder / f"{stem}.pem", self._folder / f"{stem}.key"
        cert.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        return cert, key

    def tls(self, server_name: str | None = NAME) -> Tls:
        """What a caller needs that trusts this CA."""
        return Tls(ca=str(self.file), server_name=server_name)


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cafile=str(client_ca))
    return context
