"""HTTP/1.1 over non-blocking sockets: one attempt is one physical request.

Callbacks of the gevent loop drive a C parser; there is no greenlet a call. Kept-alive connections are pooled per tenant
and never shared between tenants. It never re-sends, follows no redirect, keeps no cookie. A request moves to another
connection in one case only: the peer had closed a kept-alive one and the kernel accepted no byte of it (an immediate
EPIPE or ECONNRESET), so the server cannot have seen it.

Callbacks must neither block nor raise: what goes wrong ends the call, with a reason.
"""

from __future__ import annotations

import errno
import socket as plain
from _socket import SO_ERROR, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, socket
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from time import monotonic_ns
from typing import Any

from harness.ledger.call import Call
from harness.ledger.outcomes import DROPPED, FAILED
from harness.live.answer_parser import AnswerParser
from harness.live.pacing import Scheduler, Timeouts
from harness.live.requests import Target

IDLE_LIMIT_NS = 4_000_000_000
"""A connection idle for longer is not used again: most servers close theirs after 5 s or more, and a request that
crosses such a close on the wire is lost."""
PEEK_AFTER_NS = 100_000_000
"""One idle for longer than this is looked at for a close that the loop has not told of yet."""

_READ, _WRITE = 1, 2
_BUFFER = bytearray(64 * 1024)
_VIEW = memoryview(_BUFFER)
_NODELAY = (plain.IPPROTO_TCP, plain.TCP_NODELAY, 1)
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
GONE = (errno.EPIPE, errno.ECONNRESET)
_CONNECT_REASONS = {
    errno.ECONNREFUSED: (FAILED, "connect_refused"),
    errno.ETIMEDOUT: (FAILED, "connect_timeout"),
    errno.EADDRNOTAVAIL: (DROPPED, "no_local_port"),
}

Answered = Callable[[Call, AnswerParser, int], None]
"""(call, the answer until the call ends, now_ns absolute)"""
Ended = Callable[[Call, str, str, int], None]
"""(call, outcome, reason, now_ns absolute): it ended without an answer"""
Maker = Callable[["Pool", socket], "Connection"]
"""Plain, or with TLS (tls.py)."""


class Network:
    """What all connections of a trial share: target, loop, limits, and where ends are reported."""

    def __init__(
        self,
        loop: Any,
        scheduler: Scheduler,
        target: Target,
        limit: int,
        answered: Answered,
        ended: Ended,
        broke: Callable[[BaseException], None],
        parser: Callable[[], AnswerParser] = AnswerParser,
        keep_bodies: bool = False,
    ) -> None:
        """parser: of the answers of one connection. keep_bodies: of every answer, also a large one."""
        self.loop = loop
        self.parser = parser
        self.keep_bodies = keep_bodies
        self.make: Maker = Connection
        if target.tls is not None:
            from harness.live.tls import Handshakes  # which builds on this module

            self.make = Handshakes(target, scheduler).make
        self.address = target.address
        self.family = plain.AF_INET6 if target.ipv6 else plain.AF_INET
        self.limit = limit
        self.answered = answered
        self.ended = ended
        self.broke = broke
        self.open = 0
        self.pools: list[Pool] = []
        self.connecting: Timeouts[Connection] = Timeouts(
            scheduler, target.connect_timeout_ns, _not_connecting, Connection.give_up_connecting
        )

    def make_room(self) -> bool:
        """At the limit: closes idle connections of whichever tenant has them. False if all are busy."""
        for pool in self.pools:
            pool.close_idle(64)
            if self.open + 32 <= self.limit:
                break
        return self.open < self.limit

    def close_stale(self) -> None:
        """Closes what has been idle for too long; called now and then."""
        before = monotonic_ns() - IDLE_LIMIT_NS
        for pool in self.pools:
            while pool.idle and (oldest := next(iter(pool.idle))).idle_since_ns < before:
                oldest.close()


def _not_connecting(connection: Connection) -> bool:
    return not connection.connecting


class Pool:
    """The connections of one tenant. `idle` is last in, first out. session: of TLS, to be resumed."""

    __slots__ = ("idle", "network", "session")

    def __init__(self, network: Network) -> None:
        self.network = network
        self.idle: OrderedDict[Connection, None] = OrderedDict()
        self.session: Any = None
        network.pools.append(self)

    def send(self, call: Call, request: bytes, now_ns: int) -> None:
        """Sends at once, on a kept connection or a new one. It ends through `answered` or `ended`, now or later."""
        while self.idle:
            connection = self.idle.popitem()[0]
            if now_ns - connection.idle_since_ns > PEEK_AFTER_NS and not connection.usable(now_ns):
                connection.close()
            elif connection.send_again(call, request):
                return
        self._connect(call, request, now_ns)

    def _connect(self, call: Call, request: bytes, now_ns: int) -> None:
        network = self.network
        if network.open >= network.limit and not network.make_room():
            network.ended(call, DROPPED, "connection_limit", now_ns)
            return
        try:
            sock = socket(network.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR:
                network.ended(call, DROPPED, "no_descriptor", now_ns)
                return
            raise
        network.make(self, sock).connect(call, request, now_ns)

    def close_idle(self, most: int) -> None:
        for connection in list(islice(self.idle, most)):
            connection.close()


class Connection:
    """One socket, carrying at most one call at a time."""

    __slots__ = (
        "_answer", "_out", "_pool", "_reader", "_sock", "_writer", "call", "connecting", "idle_since_ns",
    )  # fmt: skip

    def __init__(self, pool: Pool, sock: socket) -> None:
        self._pool = pool
        self._sock: socket | None = sock
        pool.network.open += 1
        self._answer = pool.network.parser()
        self._reader: Any = None
        self._writer: Any = None
        self._out: bytes | memoryview = b""
        self.call: Call | None = None
        self.connecting = False
        self.idle_since_ns = 0

    # Sending

    def connect(self, call: Call, request: bytes, now_ns: int) -> None:
        network = self._pool.network
        self._take(call, request)
        self._out = request
        sock = self._sock
        assert sock is not None
        sock.setsockopt(*_NODELAY)
        code = sock.connect_ex(network.address)
        if code in (0, errno.EINPROGRESS):
            self.connecting = True
            self._writer = network.loop.io(sock.fileno(), _WRITE)
            self._writer.start(self._on_writable)
            network.connecting.add(self, now_ns)
        else:
            self._connect_failed(code)

    def usable(self, now_ns: int) -> bool:
        """Looks whether the peer has closed this idle connection, or sent something that nobody asked for."""
        assert self._sock is not None
        if now_ns - self.idle_since_ns > IDLE_LIMIT_NS:
            return False
        try:
            self._sock.recv(1, plain.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def send_again(self, call: Call, request: bytes) -> bool:
        """Sends on a kept-alive connection. False: it was gone, and not one byte was accepted by the kernel."""
        assert self._sock is not None
        try:
            sent = self._sock.send(request)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close()
            if error.errno in GONE:
                return False
            raise
        self._take(call, request)
        if sent < len(request):
            self._out = memoryview(request)[sent:]
            self._watch_writes()
        return True

    def _take(self, call: Call, request: bytes) -> None:
        self.call = call
        call.driver = self
        self._answer.reset(request.startswith(b"HEAD "), call.action is not None or self._pool.network.keep_bodies)

    def _watch_writes(self) -> None:
        assert self._sock is not None
        self._writer = self._pool.network.loop.io(self._sock.fileno(), _WRITE)
        self._writer.start(self._on_writable)

    def _on_writable(self) -> None:
        try:
            if self.connecting and not self._connected():
                return
            self._write()
        except Exception as error:
            self._broke(error)

    def _connected(self) -> bool:
        assert self._sock is not None
        code = self._sock.getsockopt(SOL_SOCKET, SO_ERROR)
        self.connecting = False
        if code:
            self._connect_failed(code)
            return False
        self._reader = self._pool.network.loop.io(self._sock.fileno(), _READ)
        self._reader.start(self._on_readable)
        return True

    def _write(self) -> None:
        assert self._sock is not None
        try:
            sent = self._sock.send(self._out)
        except BlockingIOError:
            return
        except OSError as error:
            # What the server has answered before it closed may still be waiting to be read.
            self._stop_writer()
            if error.errno not in GONE:
                self.fail("write_failed")
            return
        self._out = memoryview(self._out)[sent:]
        if not self._out:
            self._stop_writer()

    def _stop_writer(self) -> None:
        self._writer.stop()
        self._writer.close()
        self._writer = None

    def _connect_failed(self, code: int) -> None:
        outcome, reason = _CONNECT_REASONS.get(code, (FAILED, "connect_failed"))
        if code in _NO_DESCRIPTOR:
            outcome, reason = DROPPED, "no_descriptor"
        self._end(outcome, reason)

    def give_up_connecting(self) -> None:
        self._end(FAILED, "connect_timeout")

    # Reading

    def _on_readable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            try:
                size = sock.recv_into(_BUFFER)
            except BlockingIOError:
                return
            except OSError:
                self._on_end_of_stream("connection_reset")
                return
            if self.call is None:
                self.close()  # closed by the server, or talking out of turn
            elif size:
                self._feed(size)
            else:
                self._on_end_of_stream("connection_closed")
        except Exception as error:
            self._broke(error)

    def _feed(self, size: int) -> None:
        answer = self._answer
        reason = answer.feed(_VIEW[:size])
        if reason is not None:
            self.fail(reason)
        elif answer.complete:
            self._answered()

    def _on_end_of_stream(self, reason: str) -> None:
        if self.call is None:
            self.close()
        elif reason == "connection_closed" and self._answer.end():
            self._answered()
        else:
            self.fail(reason)

    def _answered(self) -> None:
        call, self.call = self.call, None
        assert call is not None
        call.driver = None
        now = monotonic_ns()
        if self._answer.reusable and self._may_carry_more():
            self.idle_since_ns = now
            self._pool.idle[self] = None
        else:
            self.close()
        self._pool.network.answered(call, self._answer, now)

    def _may_carry_more(self) -> bool:
        """A request that the server answered before it had read all of it leaves a rest behind."""
        return not self._out

    # Ends

    def fail(self, reason: str) -> None:
        self._end(FAILED, reason)

    def _end(self, outcome: str, reason: str) -> None:
        call = self.detach()
        if call is not None:
            self._pool.network.ended(call, outcome, reason, monotonic_ns())

    def detach(self) -> Call | None:
        """Takes the call off and closes: whoever asks for this ends the call."""
        call, self.call = self.call, None
        if call is not None:
            call.driver = None
        self.close()
        return call

    def _broke(self, error: Exception) -> None:
        self._pool.network.broke(error)
        self._end(FAILED, "driver_error")

    def close(self) -> None:
        sock, self._sock = self._sock, None
        if sock is None:
            return
        for watcher in (self._reader, self._writer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._reader = self._writer = None
        self._answer.close()
        self.connecting = False
        sock.close()
        self._pool.network.open -= 1
        self._pool.idle.pop(self, None)
