"""Connections on a loop made of `select`: real sockets, one thread, no gevent."""

from __future__ import annotations

import resource
import select
import socket
import struct

import pytest

from harness.ledger.call import Call
from harness.live import connections
from harness.live.connections import Network, Pool
from harness.live.pacing import Scheduler
from harness.live.requests import target_of

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"


class Watcher:
    def __init__(self, loop, fd, events):
        self.loop, self.fd, self.events = loop, fd, events

    def start(self, callback):
        self.callback = callback
        self.loop.active.append(self)

    def stop(self):
        if self in self.loop.active:
            self.loop.active.remove(self)

    def close(self):
        self.stop()


class SelectLoop:
    def __init__(self):
        self.active = []

    def io(self, fd, events):
        return Watcher(self, fd, events)

    def turn(self, wait_s=0.1):
        readers = [w.fd for w in self.active if w.events == 1]
        writers = [w.fd for w in self.active if w.events == 2]
        readable, writable, _ = select.select(readers, writers, [], wait_s)
        for watcher in list(self.active):
            if watcher in self.active and watcher.fd in (readable if watcher.events == 1 else writable):
                watcher.callback()


class Silent:
    def arm(self, at_ns):
        pass

    def close(self):
        pass


class Bench:
    def __init__(self, limit=100):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.loop = SelectLoop()
        self.ends = []
        self.errors = []
        target = target_of("url", f"http://127.0.0.1:{self.listening.getsockname()[1]}/")
        scheduler = Scheduler(self.loop, self.errors.append, lambda loop, callback: Silent())
        self.network = Network(self.loop, scheduler, target, limit, self.answered, self.ended, self.errors.append)
        self.pool = Pool(self.network)
        self.served = []
        self.sent = 0

    def answered(self, call, answer, now_ns):
        self.ends.append((call.seq, answer.status))

    def ended(self, call, outcome, reason, now_ns):
        self.ends.append((call.seq, outcome, reason))

    def send(self, pool=None):
        call = Call("A", 0, self.sent, 0, 0, self.sent, None)
        self.sent += 1
        (pool or self.pool).send(call, REQUEST, connections.monotonic_ns())
        return call

    def accept(self):
        accepted, _ = self.listening.accept()
        self.served.append(accepted)
        return accepted

    def until(self, condition):
        for _ in range(100):
            if condition():
                return
            self.loop.turn()
        raise AssertionError("nothing happened")

    def one_answered(self):
        """Sends a call on a new connection and answers it; the server's end of the connection."""
        self.send()
        self.loop.turn()
        accepted = self.accept()
        assert accepted.recv(1000) == REQUEST
        accepted.send(OK)
        ends = len(self.ends)
        self.until(lambda: len(self.ends) > ends)
        return accepted

    def close(self):
        for pool in self.network.pools:
            pool.close_idle(1000)
        for accepted in self.served:
            accepted.close()
        self.listening.close()


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.close()
    assert made.errors == []
    assert made.network.open == 0
    assert made.loop.active == []


def reset(accepted):
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()


def test_a_connection_is_kept_and_used_again(bench):
    accepted = bench.one_answered()
    bench.send()
    assert accepted.recv(1000) == REQUEST
    accepted.send(OK)
    bench.until(lambda: len(bench.ends) == 2)
    assert bench.ends == [(0, 200), (1, 200)]
    assert bench.network.open == 1


def test_a_reset_seen_at_send_moves_the_request_since_no_byte_left(bench):
    reset(bench.one_answered())
    bench.send()  # before the loop could tell of the reset
    bench.loop.turn()
    second = bench.accept()
    assert second.recv(1000) == REQUEST
    second.send(OK)
    bench.until(lambda: len(bench.ends) == 2)
    assert bench.ends == [(0, 200), (1, 200)]


def test_a_close_crossing_the_request_fails_it_and_nothing_is_sent_again(bench):
    bench.one_answered().close()
    bench.send()  # the kernel takes it, though the server is gone
    bench.until(lambda: len(bench.ends) == 2)
    assert bench.ends[1][:2] == (1, "failed")
    assert bench.ends[1][2] in ("connection_closed", "connection_reset")
    bench.listening.setblocking(False)
    with pytest.raises(BlockingIOError):
        bench.listening.accept()


def test_a_close_that_the_loop_told_of_is_not_run_into(bench):
    bench.one_answered().close()
    bench.until(lambda: not bench.pool.idle)
    assert bench.network.open == 0


def test_one_idle_for_long_is_looked_at_before_it_is_used(bench, monkeypatch):
    bench.one_answered().close()
    monkeypatch.setattr(connections, "PEEK_AFTER_NS", -1)
    call = bench.send()
    bench.loop.turn()
    assert bench.accept().recv(1000) == REQUEST
    call.driver.detach()


def test_one_idle_for_too_long_is_not_used(bench, monkeypatch):
    bench.one_answered()
    monkeypatch.setattr(connections, "IDLE_LIMIT_NS", -1)
    monkeypatch.setattr(connections, "PEEK_AFTER_NS", -1)
    call = bench.send()
    bench.loop.turn()
    assert bench.accept().recv(1000) == REQUEST
    call.driver.detach()


def test_stale_connections_are_swept(bench, monkeypatch):
    bench.one_answered()
    bench.network.close_stale()
    assert bench.network.open == 1
    monkeypatch.setattr(connections, "IDLE_LIMIT_NS", -1)
    bench.network.close_stale()
    assert bench.network.open == 0


def test_bytes_that_nobody_asked_for_close_the_connection(bench):
    accepted = bench.one_answered()
    accepted.send(OK)
    bench.until(lambda: not bench.pool.idle)
    assert bench.ends == [(0, 200)]


def test_at_the_limit_a_call_is_dropped_with_a_reason(bench):
    bench.network.limit = 1
    call = bench.send()
    bench.send()
    assert bench.ends == [(1, "dropped", "connection_limit")]
    call.driver.detach()


def test_at_the_limit_idle_connections_of_others_make_room(bench):
    bench.network.limit = 1
    bench.one_answered()
    call = bench.send(Pool(bench.network))
    assert bench.ends == [(0, 200)]
    assert not bench.pool.idle
    call.driver.detach()


def test_without_descriptors_a_call_is_dropped_with_a_reason(bench):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        bench.send()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert bench.ends == [(0, "dropped", "no_descriptor")]


def test_a_request_that_does_not_fit_is_written_bit_by_bit(bench):
    big = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (8 << 20) + bytes(8 << 20)
    bench.pool.send(Call("A", 0, 0, 0, 0, 0, None), big, connections.monotonic_ns())
    bench.loop.turn()
    accepted = bench.accept()
    accepted.setblocking(False)
    received = 0
    while received < len(big):
        bench.loop.turn(0)
        try:
            received += len(accepted.recv(1 << 20))
        except BlockingIOError:
            continue
    accepted.send(OK)
    bench.until(lambda: bench.ends)
    assert bench.ends == [(0, 200)]
    assert len(bench.pool.idle) == 1


def test_hanging_up_closes_and_ends_nothing_by_itself(bench):
    call = bench.send()
    bench.loop.turn()
    accepted = bench.accept()
    assert call.driver.detach() is call
    assert accepted.recv(1000) in (REQUEST, b"")
    assert bench.ends == []


def test_an_error_of_our_own_ends_the_call(bench, monkeypatch):
    monkeypatch.setattr(connections.Connection, "_feed", lambda self, size: 1 / 0)
    bench.send()
    bench.loop.turn()
    accepted = bench.accept()
    accepted.send(OK)
    bench.until(lambda: bench.ends)
    assert bench.ends == [(0, "failed", "driver_error")]
    assert [type(error) for error in bench.errors] == [ZeroDivisionError]
    bench.errors.clear()
