"""TLS of the stub: the context that it serves with, made from PEM files before it listens.

It speaks TLS 1.2 or newer and HTTP/1.1. With a CA for clients, a caller without a certificate of it is refused in the
handshake. A key that asks for a passphrase is refused, never asked for.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from stub_service.served import BadInput


def context_of(cert: Path | None, key: Path | None, client_ca: Path | None) -> ssl.SSLContext | None:
    """None without a certificate: plain HTTP. Raises BadInput."""
    if cert is None:
        if key is not None or client_ca is not None:
            raise BadInput("--tls-key and --tls-client-ca say how to serve TLS; give its certificate, too: --tls-cert")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for option, path in (("--tls-cert", cert), ("--tls-key", key), ("--tls-client-ca", client_ca)):
        if path is not None and not path.is_file():
            raise BadInput(f"{option} {path}: there is no such file; give a PEM file")
    try:
        context.load_cert_chain(cert, key, lambda: b"")
    except OSError as error:  # SSLError is one
        pair = f"--tls-cert {cert}" + (f" --tls-key {key}" if key is not None else "")
        raise BadInput(
            f"{pair}: not a certificate with its private key, unlocked, in PEM form ({_why(error)}); give both, or one "
            "file that holds both"
        ) from None
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cafile=str(client_ca))
        except OSError as error:
            raise BadInput(f"--tls-client-ca {client_ca}: no certificate in PEM form ({_why(error)})") from None
    return context


def _why(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or "unreadable"
    return str(reason).replace("_", " ").lower()
