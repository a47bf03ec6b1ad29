"""TLS connections on a loop made of `select`: real handshakes over loopback, with a server that is stepped by hand."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

import pytest

from harness.ledger.call import Call
from harness.live import connections, tls
from harness.live.connections import Network, Pool
from harness.live.pacing import Scheduler
from harness.live.requests import target_of
from harness.target.tls import Tls
from tests.certificates import NAME, Authority, server_context
from tests.unit.test_live_connections import OK, REQUEST, SelectLoop, Silent, reset

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class ServerEnd:
    """The server's end of one connection: what it is asked to do, it tries until it need not wait; it never blocks."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.got = b""
        self.shaken = False
        self.alert: ssl.SSLError | None = None
        self.ended = False

    def step(self, most: int = 1 << 18) -> None:
        try:
            data = self.sock.recv(most)
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if data:
            self.incoming.write(data)
        elif data == b"":
            self.ended = True
        try:
            if not self.shaken:
                self.tls.do_handshake()
                self.shaken = True
            while piece := self.tls.read(1 << 16):
                self.got += piece
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.alert = self.alert or error
        self.flush()

    def say(self, data: bytes) -> None:
        self.tls.write(data)
        self.flush()

    def flush(self) -> None:
        if self.outgoing.pending:
            self.sock.setblocking(True)
            self.sock.sendall(self.outgoing.read())
            self.sock.setblocking(False)

    def goodbye(self) -> None:
        with suppress(ssl.SSLError):
            self.tls.unwrap()
        self.flush()


class Bench:
    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.loop = SelectLoop()
        self.ends: list[tuple] = []
        self.errors: list[BaseException] = []
        self.wakes: list = []
        self.sent = 0
        self.servers: list[ServerEnd] = []
        self.server_context = server_context(*authority.issue(NAME))
        self.network: Network

    def open(self, settings: Tls, **limits: int) -> None:
        port = self.listening.getsockname()[1]
        target = target_of("url", f"https://localhost:{port}/", tls=settings, **limits)
        self.scheduler = Scheduler(self.loop, self.errors.append, lambda loop, callback: Silent())
        self.network = Network(self.loop, self.scheduler, target, 100, self.answered, self.ended, self.errors.append)
        self.pool = Pool(self.network)

    def answered(self, call, answer, now_ns) -> None:
        self.ends.append((call.seq, answer.status, b"".join(answer.body or [])))

    def ended(self, call, outcome, reason, now_ns) -> None:
        self.ends.append((call.seq, outcome, reason))

    def send(self, request: bytes = REQUEST, pool: Pool | None = None) -> Call:
        call = Call("A", 0, self.sent, 0, 0, self.sent, None)
        self.sent += 1
        (pool or self.pool).send(call, request, connections.monotonic_ns())
        return call

    def accept(self) -> ServerEnd:
        def accepted() -> bool:
            try:
                sock, _ = self.listening.accept()
            except BlockingIOError:
                return False
            self.servers.append(ServerEnd(sock, self.server_context))
            return True

        self.until(accepted)
        return self.servers[-1]

    def until(self, condition, *servers: ServerEnd) -> None:
        for _ in range(2000):
            if condition():
                return
            self.loop.turn(0.001)
            for server in servers:
                server.step()
        raise AssertionError("nothing happened")

    def fails(self, reason: str, server: ServerEnd | None = None) -> None:
        server = server or self.accept()
        self.until(lambda: self.ends, server)
        assert self.ends == [(0, "failed", reason)]

    def asked(self, request: bytes = REQUEST) -> ServerEnd:
        """Sends a call on a new connection; the server that has read it."""
        self.send(request)
        server = self.accept()
        self.until(lambda: server.got == request, server)
        server.got = b""
        return server

    def one_answered(self) -> ServerEnd:
        server = self.asked()
        server.say(OK)
        ends = len(self.ends)
        self.until(lambda: len(self.ends) > ends, server)
        return server

    def close(self) -> None:
        for pool in self.network.pools:
            pool.close_idle(1000)
        for server in self.servers:
            server.sock.close()
        self.listening.close()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def bench(authority):
    made = Bench(authority)
    made.open(authority.tls())
    yield made
    made.close()
    assert made.errors == []
    assert made.network.open == 0
    assert made.loop.active == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_goes_out_once_and_its_connection_is_kept(bench, version):
    bench.server_context.maximum_version = VERSIONS[version]
    asked = []
    bench.server_context.sni_callback = lambda sock, name, context: asked.append(name)
    server = bench.one_answered()
    assert server.tls.version() == f"TLSv{version}"
    assert server.tls.selected_alpn_protocol() == "http/1.1"
    assert asked == [NAME]
    bench.send()
    bench.until(lambda: server.got, server)
    server.say(OK)
    bench.until(lambda: len(bench.ends) == 2, server)
    assert bench.ends == [(0, 200, b"ok"), (1, 200, b"ok")]
    assert server.got == REQUEST
    assert bench.network.open == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_resumed_within_its_tenant_only(bench, version):
    bench.server_context.maximum_version = VERSIONS[version]
    first = bench.one_answered()
    first.step()
    bench.pool.close_idle(1)
    assert not first.tls.session_reused
    again = bench.one_answered()
    assert again.tls.session_reused
    bench.pool = Pool(bench.network)
    assert not bench.one_answered().tls.session_reused
    assert [end[1] for end in bench.ends] == [200] * 3


def test_closing_says_goodbye(bench):
    server = bench.one_answered()
    bench.pool.close_idle(1)
    bench.until(lambda: server.ended, server)
    assert server.alert is None


CERTIFICATES = {
    "tls_certificate_expired": lambda right, wrong: server_context(*right.issue(NAME, expired=True)),
    "tls_certificate_host_mismatch": lambda right, wrong: server_context(*right.issue("other.test")),
    "tls_certificate_unknown_issuer": lambda right, wrong: server_context(*wrong.issue(NAME)),
}


@pytest.mark.parametrize("reason", CERTIFICATES)
def test_a_certificate_that_is_no_good_is_named_and_the_server_told(bench, tmp_path, reason):
    bench.server_context = CERTIFICATES[reason](bench.authority, Authority(tmp_path, "wrong"))
    bench.send()
    server = bench.accept()
    bench.fails(reason, server)
    server.step()
    assert not server.got
    assert server.alert is not None
    assert "ALERT" in server.alert.reason


def test_a_self_signed_certificate_is_told_apart_and_may_be_trusted(bench, tmp_path):
    # A CA's own certificate is one that signs itself.
    own = bench.authority._authority
    key = tmp_path / "self.key"
    key.write_bytes(own.private_key_pem.bytes())
    bench.server_context = server_context(bench.authority.file, key)
    bench.open(Authority(tmp_path, "another").tls())
    bench.send()
    bench.fails("tls_certificate_self_signed")


def test_without_verification_any_certificate_is_taken(bench, tmp_path):
    bench.server_context = server_context(*Authority(tmp_path, "wrong").issue("other.test", expired=True))
    bench.open(Tls(verify=False))
    bench.one_answered()
    assert bench.ends == [(0, 200, b"ok")]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_certificate_is_shown(bench, authority, version):
    cert, key = authority.issue("caller.test", stem="caller")
    bench.server_context = server_context(*authority.issue(NAME), client_ca=authority.file)
    bench.server_context.maximum_version = VERSIONS[version]
    bench.open(Tls(str(authority.file), str(cert), str(key), NAME))
    server = bench.one_answered()
    assert server.tls.getpeercert()["subjectAltName"] == (("DNS", "caller.test"),)


@pytest.mark.parametrize(("version", "reason"), [("1.2", "tls_handshake"), ("1.3", "tls_client_certificate")])
def test_without_the_client_certificate_that_a_server_wants(bench, authority, version, reason):
    bench.server_context = server_context(*authority.issue(NAME), client_ca=authority.file)
    bench.server_context.maximum_version = VERSIONS[version]
    bench.send()
    server = bench.accept()
    bench.fails(reason, server)
    assert not server.got, "the server has read a request from a caller that it does not know"


def test_a_client_certificate_of_another_ca_is_refused(bench, authority, tmp_path):
    cert, key = Authority(tmp_path, "wrong").issue("caller.test", stem="caller")
    bench.server_context = server_context(*authority.issue(NAME), client_ca=authority.file)
    bench.open(Tls(str(authority.file), str(cert), str(key), NAME))
    bench.send()
    bench.fails("tls_client_certificate")


def test_a_server_that_is_silent_in_the_handshake(bench):
    bench.open(bench.authority.tls(), connect_timeout_ns=1)
    bench.network.connecting._after_ns = 60_000_000_000  # the connection itself has time
    bench.send()
    bench.accept()
    bench.until(lambda: bench.scheduler.run() or bench.ends)
    assert bench.ends == [(0, "failed", "tls_timeout")]


@pytest.mark.parametrize("after_the_hello", [False, True])
@pytest.mark.parametrize("how", [socket.socket.close, reset])
def test_a_server_that_closes_in_the_handshake(bench, how, after_the_hello):
    bench.send()
    server = bench.accept()
    bench.loop.turn()
    if after_the_hello:
        server.flush = lambda: None
        bench.until(lambda: server.outgoing.pending, server)
        server.sock.sendall(server.outgoing.read(500))
        bench.loop.turn()
    how(server.sock)
    bench.until(lambda: bench.ends)
    assert bench.ends == [(0, "failed", "tls_closed")]


def test_a_server_that_speaks_no_tls(bench):
    bench.send()
    server = bench.accept()
    server.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    bench.until(lambda: bench.ends)
    assert bench.ends == [(0, "failed", "tls_handshake")]


def test_old_versions_are_not_spoken(bench):
    bench.server_context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        bench.server_context.maximum_version = ssl.TLSVersion.TLSv1_1
    bench.send()
    bench.fails("tls_handshake")


def test_records_that_come_byte_by_byte(bench):
    server = bench.asked()
    server.tls.write(OK)
    for byte in server.outgoing.read():
        server.sock.sendall(bytes([byte]))
        bench.loop.turn(0.01)
    assert bench.ends == [(0, 200, b"ok")]


def test_large_bodies_both_ways_through_many_records(bench):
    big = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (4 << 20) + bytes(4 << 20)
    bench.send(big)
    server = bench.accept()
    bench.until(lambda: len(server.got) >= len(big), server)
    assert server.got == big
    server.tls.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 20))
    for _ in range(64):
        server.tls.write(b"x" * (1 << 14))
    pending = memoryview(server.outgoing.read())
    while not bench.ends:
        if pending:
            with suppress(BlockingIOError):
                pending = pending[server.sock.send(pending) :]
        bench.loop.turn(0.001)
    assert bench.ends[0][:2] == (0, 200)
    assert len(bench.pool.idle) == 1


def test_a_request_larger_than_the_room_on_a_kept_connection(bench):
    server = bench.one_answered()
    big = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (8 << 20) + bytes(8 << 20)
    bench.send(big)
    bench.until(lambda: len(server.got) >= len(big), server)
    assert server.got == big
    server.say(OK)
    bench.until(lambda: len(bench.ends) == 2)
    assert bench.ends[1] == (1, 200, b"ok")


def test_an_answer_before_the_request_is_read_ends_the_connection(bench):
    big = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (8 << 20) + bytes(8 << 20)
    bench.send(big)
    server = bench.accept()
    bench.until(lambda: server.got, server)
    server.say(OK)
    bench.until(lambda: bench.ends)
    assert bench.ends == [(0, 200, b"ok")]
    assert bench.network.open == 0


UNTIL_THE_END = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end"


def test_an_answer_that_the_end_of_the_stream_ends_needs_a_goodbye(bench):
    server = bench.asked()
    server.say(UNTIL_THE_END)
    server.goodbye()
    bench.until(lambda: bench.ends)
    server = bench.asked()
    server.say(UNTIL_THE_END)
    server.sock.close()
    bench.until(lambda: len(bench.ends) == 2)
    assert bench.ends == [(0, 200, b"until the end"), (1, "failed", "tls_truncated")]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (ServerEnd.goodbye, "connection_closed"),
        (lambda server: server.sock.close(), "connection_closed"),
        (lambda server: reset(server.sock), "connection_reset"),
        (lambda server: server.sock.sendall(b"\x17\x03\x03\x00\x20" + bytes(32)), "tls_error"),
    ],
)
def test_ends_in_the_middle_of_an_answer(bench, how, reason):
    server = bench.asked()
    server.say(OK[:-1])
    bench.loop.turn()
    how(server)
    bench.until(lambda: bench.ends)
    assert bench.ends == [(0, "failed", reason)]


def test_a_goodbye_behind_an_answer_ends_the_connection(bench):
    server = bench.asked()
    server.tls.write(OK)
    server.goodbye()
    bench.until(lambda: bench.ends)
    assert bench.ends == [(0, 200, b"ok")]
    assert bench.network.open == 0


def test_what_comes_behind_an_answer_ends_the_connection(bench):
    server = bench.asked()
    server.tls.write(OK)
    server.tls.write(OK)
    server.flush()
    bench.until(lambda: bench.ends)
    assert bench.ends == [(0, 200, b"ok")]
    assert bench.network.open == 0


def test_bytes_that_nobody_asked_for_close_the_connection(bench):
    bench.one_answered().say(OK)
    bench.until(lambda: not bench.pool.idle)
    assert bench.network.open == 0


def test_tickets_on_an_idle_connection_do_not_close_it(bench, monkeypatch):
    monkeypatch.setattr(connections, "PEEK_AFTER_NS", -1)
    server = bench.one_answered()
    server.step()
    bench.send()
    bench.until(lambda: server.got == REQUEST, server)
    server.say(OK)
    bench.until(lambda: len(bench.ends) == 2)
    assert bench.ends[1] == (1, 200, b"ok")


def test_one_idle_for_long_that_was_closed_is_not_used(bench, monkeypatch):
    bench.one_answered().goodbye()
    monkeypatch.setattr(connections, "PEEK_AFTER_NS", -1)
    bench.send()
    server = bench.accept()
    bench.until(lambda: server.got == REQUEST, server)
    server.say(OK)
    bench.until(lambda: len(bench.ends) == 2)
    assert len(bench.servers) == 2


def test_a_reset_seen_at_send_moves_the_request_since_no_byte_left(bench):
    reset(bench.one_answered().sock)
    bench.send()  # before the loop could tell of the reset
    server = bench.accept()
    bench.until(lambda: server.got == REQUEST, server)
    server.say(OK)
    bench.until(lambda: len(bench.ends) == 2)
    assert bench.ends[1] == (1, 200, b"ok")


def test_a_close_crossing_the_request_fails_it_and_nothing_is_sent_again(bench):
    bench.one_answered().sock.close()
    bench.send()  # the kernel takes it, though the server is gone
    bench.until(lambda: len(bench.ends) == 2)
    assert bench.ends[1][:2] == (1, "failed")
    assert bench.ends[1][2] in ("connection_closed", "connection_reset")
    with pytest.raises(BlockingIOError):
        bench.listening.accept()


def test_hanging_up_in_the_handshake_ends_nothing_by_itself(bench):
    call = bench.send()
    bench.accept()
    bench.loop.turn()
    assert call.driver.detach() is call
    assert bench.ends == []


def test_an_error_of_our_own_ends_the_call(bench, monkeypatch):
    monkeypatch.setattr(tls.TlsConnection, "_open", lambda self: 1 / 0)
    bench.send()
    server = bench.accept()
    bench.until(lambda: bench.ends, server)
    assert bench.ends == [(0, "failed", "driver_error")]
    assert [type(error) for error in bench.errors] == [ZeroDivisionError]
    bench.errors.clear()
