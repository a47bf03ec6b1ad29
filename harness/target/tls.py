"""TLS to a target: what a person may set, the context made from it, and what went wrong in words.

A context speaks TLS 1.2 or newer, HTTP/1.1 only (ALPN, RFC 7301), and never renegotiates. With a CA file of its own it
trusts that file alone, else what this machine trusts (SSL_CERT_FILE says otherwise). Files are read here, before
anything is sent; a key that asks for a passphrase is refused, never asked for. Reasons are a fixed list: nothing that a
peer or a certificate says enters a ledger.
"""

from __future__ import annotations

import ssl
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from harness.target.errors import TargetUnusable

HANDSHAKE, CLIENT_CERTIFICATE, CERTIFICATE = "tls_handshake", "tls_client_certificate", "tls_certificate"
TIMEOUT, CLOSED = "tls_timeout", "tls_closed"
ERROR, TRUNCATED = "tls_error", "tls_truncated"

WORDS = {
    HANDSHAKE: "the TLS handshake failed: does it speak TLS there, in version 1.2 or newer?",
    CLIENT_CERTIFICATE: "it refuses the client certificate, or wants one; give `cert` and `key`",
    CERTIFICATE: "its certificate is not valid",
    "tls_certificate_expired": "its certificate has expired",
    "tls_certificate_not_yet_valid": "its certificate is not valid yet; are the clocks right?",
    "tls_certificate_self_signed": "its certificate is self-signed; give it, or the CA, as `ca`",
    "tls_certificate_unknown_issuer": "its certificate is signed by a CA that is not trusted; give that one as `ca`",
    "tls_certificate_host_mismatch": "its certificate is for another host; give the name in it as `server_name`",
    "tls_certificate_revoked": "its certificate has been revoked",
    "tls_certificate_wrong_purpose": "its certificate is not one for servers",
}
_VERIFY_CODES = {  # X509_V_ERR_... of OpenSSL's x509_vfy.h
    2: "unknown_issuer",
    9: "not_yet_valid",
    10: "expired",
    18: "self_signed",
    19: "unknown_issuer",
    20: "unknown_issuer",
    21: "unknown_issuer",
    23: "revoked",
    26: "wrong_purpose",
    62: "host_mismatch",
    64: "host_mismatch",
}
_OUR_CERTIFICATE = (
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_",  # expired, required, revoked, unknown
    "ALERT_UNKNOWN_CA",
    "ALERT_UNSUPPORTED_CERTIFICATE",
)
_LARGEST_FILE = 4 << 20


@dataclass(frozen=True, slots=True)
class Tls:
    """ca, cert, key: PEM files. The key may be in the cert file. server_name: instead of the URL's host, asked for
    (SNI) and looked for in the certificate. verify: false takes any certificate."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    verify: bool = True

    def to_json(self) -> dict[str, Any]:
        """For a manifest. Names of files; nothing of what is in them."""
        return asdict(self)


def from_json(document: Any) -> Tls:
    """What `to_json` made. Raises ValueError."""
    if not isinstance(document, dict) or not set(document) <= {field.name for field in fields(Tls)}:
        raise ValueError("not settings for TLS")
    texts = all(value is None or isinstance(value, str) for key, value in document.items() if key != "verify")
    if not texts or not isinstance(document.get("verify", True), bool):
        raise ValueError("not settings for TLS")
    return Tls(**document)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What the bundled stub serves TLS with. client_ca: callers must show a certificate that it signed."""

    cert: Path
    key: Path | None = None
    client_ca: Path | None = None


def context_of(tls: Tls, host: str) -> ssl.SSLContext:
    """For one target; `host` is the URL's. Raises TargetUnusable: which file, what is wrong, what to do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if not tls.verify:
        if tls.ca is not None:
            raise TargetUnusable("tls: `verify: false` and a `ca` contradict each other; leave one of them out")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is not None:
        _load_ca(context, tls.ca)
    else:
        context.load_default_certs()
    if tls.cert is not None:
        _load_own(context, tls.cert, tls.key)
    elif tls.key is not None:
        raise TargetUnusable(f"tls: a `key` ({tls.key}) without its certificate; give `cert`, too")
    _check_name(context, tls, host)
    return context


def name_of(tls: Tls, host: str) -> str:
    """The name that is asked for and must be in the certificate."""
    return tls.server_name if tls.server_name is not None else host


def reason_of(error: ssl.SSLError) -> str:
    """Why a handshake failed: one of a fixed list."""
    if isinstance(error, ssl.SSLCertVerificationError):
        which = _VERIFY_CODES.get(error.verify_code)
        return f"{CERTIFICATE}_{which}" if which else CERTIFICATE
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return CLOSED
    return CLIENT_CERTIFICATE if refuses_ours(error) else HANDSHAKE


def refuses_ours(error: ssl.SSLError) -> bool:
    """An alert about the client certificate. With TLS 1.3 it comes when the client's handshake is over already."""
    said = getattr(error, "reason", None) or ""  # only errors of OpenSSL's own have one
    return any(alert in said for alert in _OUR_CERTIFICATE)


def words_of(error: ssl.SSLError) -> str:
    """The same for a person."""
    return WORDS.get(reason_of(error), "it closed the connection in the TLS handshake; does it speak TLS there?")


def _load_ca(context: ssl.SSLContext, ca: str) -> None:
    _readable("ca", ca)
    try:
        context.load_verify_locations(cafile=ca)
    except (ssl.SSLError, OSError):
        raise TargetUnusable(f"tls: ca {ca}: holds no certificate in PEM form; give the CA's certificate") from None


def _load_own(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    _readable("cert", cert)
    if key is not None:
        _readable("key", key)
    asked = False

    def passphrase() -> bytes:
        nonlocal asked
        asked = True
        return b""

    try:
        context.load_cert_chain(cert, key, passphrase)
    except (ssl.SSLError, OSError) as error:
        which = f"tls: cert {cert}" + (f" with key {key}" if key is not None else "")
        if asked:
            problem = "the key is locked by a passphrase; give one without (openssl pkey -in KEY -out PLAIN)"
        elif "MISMATCH" in (getattr(error, "reason", None) or ""):
            problem = "the key is not the certificate's; give the pair that belongs together"
        else:
            problem = (
                "not a certificate and its private key in PEM form; give `cert`, and `key` if it is in another file"
            )
        raise TargetUnusable(f"{which}: {problem}") from None


def _readable(what: str, name: str) -> None:
    """A plain file of a sane size: a pipe or a device could keep us for ever."""
    path = Path(name)
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise TargetUnusable(f"tls: {what} {name}: not a file; give a PEM file")
        if size > _LARGEST_FILE:
            raise TargetUnusable(f"tls: {what} {name}: {size} bytes are no PEM file; is it the right one?")
        with path.open("rb"):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no name of a file"
        raise TargetUnusable(f"tls: {what} {name!r}: cannot be read ({why}); give an existing PEM file") from None


def _check_name(context: ssl.SSLContext, tls: Tls, host: str) -> None:
    name = name_of(tls, host)
    try:
        context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
    except (ValueError, ssl.SSLError):  # UnicodeError is a ValueError
        raise TargetUnusable(f"tls: {name!r} is not a name that a certificate can have; give `server_name`") from None
