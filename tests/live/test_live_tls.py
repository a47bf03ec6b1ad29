"""The live driver over TLS, as a process: every call ends once, nothing is re-sent, connections are kept; and a whole
trial with the stub behind TLS, its books balanced."""

from __future__ import annotations

import socket
import ssl
from collections import Counter
from http.client import HTTPException

import pytest

from harness import checks, trial
from harness.ledger.audit import audit as audit_of
from harness.profile.loader import load
from harness.simulate.service import shared_service
from harness.target.errors import TargetUnusable
from harness.target.stub import StubProcess
from harness.target.tls import ServerTls, Tls
from harness.target.url import Endpoint, connect, probe
from tests.certificates import NAME, Authority, server_context
from tests.conftest import ROOT
from tests.live.awkward import OK, always, audit, drive, drop, serving
from tests.live.test_live_awkward import METHODS, PLANNED, STEADY, recorded

pytestmark = pytest.mark.live


@pytest.fixture
def authority(tmp_path):
    folder = tmp_path / "certificates"
    folder.mkdir()
    return Authority(folder)


def test_read_and_dropped_is_sent_once_whatever_the_method(tmp_path, authority):
    methods = METHODS * 6
    with serving(drop, tls=server_context(*authority.issue(NAME))) as server:
        driven = drive(tmp_path, recorded(tmp_path, methods), server.url, tls=authority.tls())
    audit(driven, len(methods), server.attempts())
    assert Counter(seen.method for seen in server.seen) == Counter(methods)
    assert driven.outcomes() == {("failed", "connection_closed"): len(methods)}


def test_connections_are_kept_per_tenant_and_never_shared(tmp_path, authority):
    asked = []
    context = server_context(*authority.issue(NAME))
    context.sni_callback = lambda sock, name, context: asked.append(name)
    with serving(always(OK), tls=context) as server:
        slowly = {"duration": "2s", "drain": "2s", "tenants": {"A": {"rate": "10/s"}, "B": {"rate": "10/s"}}}
        driven = drive(tmp_path, slowly, server.url, tls=authority.tls())
    audit(driven, PLANNED, server.attempts())
    assert driven.outcomes() == {("served", None): PLANNED}
    by_connection = {}
    for seen in server.seen:
        by_connection.setdefault(seen.number, set()).add(seen.headers["authorization"])
    assert all(len(tenants) == 1 for tenants in by_connection.values())
    assert server.accepted < PLANNED / 2, "connections are not reused"
    assert set(asked) == {NAME}


def test_large_answers_through_many_records(tmp_path, authority):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 20) + bytes(1 << 20)
    with serving(always(answer), tls=server_context(*authority.issue(NAME))) as server:
        driven = drive(tmp_path, {**STEADY, "drain": "10s"}, server.url, tls=authority.tls())
    audit(driven, PLANNED, server.attempts())
    assert driven.outcomes() == {("served", None): PLANNED}


def test_a_certificate_that_has_expired_sends_nothing(tmp_path, authority):
    with serving(always(OK), tls=server_context(*authority.issue(NAME, expired=True))) as server:
        driven = drive(tmp_path, STEADY, server.url, tls=authority.tls())
    audit(driven, PLANNED, [])
    assert driven.outcomes() == {("failed", "tls_certificate_expired"): PLANNED}
    assert not server.seen


def test_a_handshake_that_is_never_answered_has_its_own_end(tmp_path, authority):
    with socket.create_server(("127.0.0.1", 0), backlog=PLANNED + 1) as listening:
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        profile = {**STEADY, "drain": "10s"}
        driven = drive(tmp_path, profile, url, tls=authority.tls(), connect_timeout_ns=50_000_000)
    audit(driven, PLANNED, [])
    assert driven.outcomes() == {("failed", "tls_timeout"): PLANNED}


def test_a_whole_trial_over_tls_balances_its_books(tmp_path, authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))  # what this machine trusts, for all three processes
    loaded = load(ROOT / "profiles" / "steady.yaml", time_scale=0.1, checks=checks.PARAMETERS)
    cert, key = authority.issue("127.0.0.1")
    with StubProcess(shared_service(loaded.profile), tmp_path, tls=ServerTls(cert, key)) as stub:
        assert stub.url.startswith("https://")
        judged = trial.run(loaded, trial.new_folder(tmp_path, "tls"), stub.url)
    books = audit_of(judged.trial, loaded.profile)
    assert books.contradictions == ()
    assert books.calls == sum(sum(phases.values()) for phases in judged.trial.manifest["plan"].values())
    assert not any("caller's side alone" in note for note in books.notes), "the service's evidence is missing"


@pytest.mark.parametrize("wanted", ["nothing", "a certificate"])
def test_the_control_side_speaks_tls_and_says_what_is_wrong(tmp_path, authority, wanted):
    loaded = load(ROOT / "profiles" / "steady.yaml", checks=checks.PARAMETERS)
    cert, key = authority.issue(NAME)
    server = ServerTls(cert, key, authority.file if wanted == "a certificate" else None)
    caller = [str(path) for path in authority.issue("caller.test", stem="caller")]
    with StubProcess(shared_service(loaded.profile), tmp_path, tls=server) as stub:
        right = Tls(str(authority.file), *caller, server_name=NAME)
        with connect(stub.url, right) as remote:
            assert remote is not None
            remote.set_epoch(1)
            assert remote.health()["running"] == 0
        for wrong, says in (
            (Tls(), "its certificate is signed by a CA that is not trusted; give that one as `ca`"),
            (Tls(str(authority.file)), "its certificate is for another host; give the name in it as `server_name`"),
        ):
            with pytest.raises(TargetUnusable) as told:
                probe(stub.url, wrong)
            assert str(told.value) == f"no TLS with {stub.url}: {says}"
        if wanted == "a certificate":
            # It closes; some servers also say why, in an alert.
            with pytest.raises((ssl.SSLError, HTTPException)):
                Endpoint(stub.url, authority.tls()).exchange("GET", "/healthz", None, 10.0)
        assert stub.health()["running"] == 0, "its own side needs no certificate"
