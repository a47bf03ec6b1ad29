"""What may be wrong with TLS settings: told before anything is sent, with file, problem and remedy."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from harness.errors import BadInput
from harness.target.tls import WORDS, Tls, context_of, reason_of, words_of
from harness.target.url import Endpoint
from stub_service import served
from stub_service.tls import context_of as served_context
from tests.certificates import NAME, Authority


@pytest.fixture
def files(tmp_path, monkeypatch):
    """`ca.pem`, `server.pem` with `server.key`, and what is no good, in the current folder."""
    monkeypatch.chdir(tmp_path)
    authority = Authority(tmp_path)
    authority.issue(NAME)
    Authority(tmp_path, "other").issue(NAME, stem="other")
    Path("junk.pem").write_text("junk")
    key = serialization.load_pem_private_key(Path("server.key").read_bytes(), None)
    lock = serialization.BestAvailableEncryption(b"secret")
    Path("locked.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    )
    Path("large.pem").write_bytes(bytes(5 << 20))
    Path("folder").mkdir()


PAIR = "not a certificate and its private key in PEM form; give `cert`, and `key` if it is in another file"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            Tls(ca="none.pem"),
            "tls: ca 'none.pem': cannot be read (No such file or directory); give an existing PEM file",
        ),
        (Tls(ca="folder"), "tls: ca folder: not a file; give a PEM file"),
        (Tls(ca="/dev/zero"), "tls: ca /dev/zero: not a file; give a PEM file"),
        (Tls(ca="a\0b"), "tls: ca 'a\\x00b': cannot be read (no name of a file); give an existing PEM file"),
        (Tls(ca="large.pem"), "tls: ca large.pem: 5242880 bytes are no PEM file; is it the right one?"),
        (Tls(ca="junk.pem"), "tls: ca junk.pem: holds no certificate in PEM form; give the CA's certificate"),
        (Tls(ca="server.key"), "tls: ca server.key: holds no certificate in PEM form; give the CA's certificate"),
        (Tls(cert="server.pem"), f"tls: cert server.pem: {PAIR}"),
        (Tls(cert="junk.pem", key="server.key"), f"tls: cert junk.pem with key server.key: {PAIR}"),
        (
            Tls(cert="server.pem", key="other.key"),
            "tls: cert server.pem with key other.key: the key is not the certificate's; give the pair that belongs "
            "together",
        ),
        (Tls(key="server.key"), "tls: a `key` (server.key) without its certificate; give `cert`, too"),
        (
            Tls(ca="ca.pem", verify=False),
            "tls: `verify: false` and a `ca` contradict each other; leave one of them out",
        ),
        (Tls(server_name=""), "tls: '' is not a name that a certificate can have; give `server_name`"),
        (Tls(server_name=".a"), "tls: '.a' is not a name that a certificate can have; give `server_name`"),
        (Tls(server_name="a" * 70), f"tls: '{'a' * 70}' is not a name that a certificate can have; give `server_name`"),
    ],
)
def test_settings_that_cannot_be_used(files, settings, message):
    with pytest.raises(BadInput) as told:
        context_of(settings, "localhost")
    assert str(told.value) == message


def test_a_locked_key_is_never_asked_for(files):
    with pytest.raises(BadInput, match="the key is locked by a passphrase; give one without"):
        context_of(Tls(cert="server.pem", key="locked.key"), "localhost")


def test_settings_that_can_be_used(files):
    context = context_of(Tls("ca.pem", "server.pem", "server.key"), "127.0.0.1")
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context_of(Tls(verify=False), "::1").verify_mode is ssl.CERT_NONE


def test_plain_http_has_no_use_for_them():
    with pytest.raises(BadInput, match="is plain HTTP, but there are settings for TLS; give an https:// URL"):
        Endpoint("http://127.0.0.1", Tls())


def test_reasons_are_a_fixed_list_and_each_has_words():
    unknown = ssl.SSLCertVerificationError()
    unknown.verify_code = 9999
    assert reason_of(unknown) == "tls_certificate"
    protocol = ssl.SSLError(1, "whatever a peer says")
    assert reason_of(protocol) == "tls_handshake"
    assert words_of(protocol) == WORDS["tls_handshake"]
    assert reason_of(ssl.SSLEOFError()) == "tls_closed"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((None, "server.key", None), "--tls-key and --tls-client-ca say how to serve TLS; give its certificate, too: "
         "--tls-cert"),
        (("none.pem", None, None), "--tls-cert none.pem: there is no such file; give a PEM file"),
        (("server.pem", "other.key", None), "--tls-cert server.pem --tls-key other.key: not a certificate with its "
         "private key, unlocked, in PEM form (key values mismatch); give both, or one file that holds both"),
        (("server.pem", "server.key", "junk.pem"), "--tls-client-ca junk.pem: no certificate in PEM form "
         "(no certificate or crl found)"),
    ],
)  # fmt: skip
def test_what_the_stub_cannot_serve_with(files, names, message):
    with pytest.raises(served.BadInput) as told:
        served_context(*(Path(name) if name is not None else None for name in names))
    assert str(told.value) == message
