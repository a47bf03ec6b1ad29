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

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from harness.ledger.call import Call
from harness.ledger.outcomes import DROPPED, FAILED
from harness.live.answers import TYPED_BODY_LIMIT
from harness.live.pacing import Scheduler, Timeouts
from harness.live.requests import Target

HEAD_LIMIT = 64 * 1024
"""Most bytes of status line and headers, interim answers and trailers included."""
BODY_LIMIT = 8 * 1024 * 1024
RAW_LIMIT = 2 * BODY_LIMIT
"""Bytes on the wire: endless chunk extensions are no way around the limit."""
CONNECT_TIMEOUT_NS = 5_000_000_000
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
_GONE = (errno.EPIPE, errno.ECONNRESET)
_CONNECT_REASONS = {
    errno.ECONNREFUSED: (FAILED, "connect_refused"),
    errno.ETIMEDOUT: (FAILED, "connect_timeout"),
    errno.EADDRNOTAVAIL: (DROPPED, "no_local_port"),
}

Answered = Callable[[Call, "Connection", int], None]
"""(call, its connection with the answer on it, now_ns absolute)"""
Ended = Callable[[Call, str, str, int], None]
"""(call, outcome, reason, now_ns absolute): it ended without an answer"""


class TooLarge(Exception):
    """The answer passed a limit."""


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
    ) -> None:
        self.loop = loop
        self.address = target.address
        self.family = plain.AF_INET6 if target.ipv6 else plain.AF_INET
        self.limit = limit
        self.answered = answered
        self.ended = ended
        self.broke = broke
        self.open = 0
        self.pools: list[Pool] = []
        self.connecting: Timeouts[Connection] = Timeouts(
            scheduler, CONNECT_TIMEOUT_NS, _not_connecting, Connection.give_up_connecting
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
    """The connections of one tenant. `idle` is last in, first out."""

    __slots__ = ("idle", "network")

    def __init__(self, network: Network) -> None:
        self.network = network
        self.idle: OrderedDict[Connection, None] = OrderedDict()
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
        Connection(self, sock).connect(call, request, now_ns)

    def close_idle(self, most: int) -> None:
        for connection in list(islice(self.idle, most)):
            connection.close()


class Connection:
    """One socket, carrying at most one call at a time. It is also the parser's protocol object."""

    __slots__ = (
        "_extra", "_fresh", "_keep", "_named_bytes", "_no_body", "_out", "_parser", "_pool", "_raw_bytes", "_reader",
        "_sock", "_until_eof", "_writer", "body", "body_bytes", "call", "complete", "connecting", "head_done",
        "idle_since_ns", "retry_after", "server_timing", "status",
    )  # fmt: skip

    def __init__(self, pool: Pool, sock: socket) -> None:
        self._pool = pool
        self._sock: socket | None = sock
        pool.network.open += 1
        self._parser: Any = None
        self._reader: Any = None
        self._writer: Any = None
        self._out: bytes | memoryview = b""
        self._fresh = True
        self.call: Call | None = None
        self.connecting = False
        self.idle_since_ns = 0
        self._extra = False
        self._reset()

    def _reset(self) -> None:
        """Ready for the next answer."""
        self.status = 0
        self.server_timing: bytes | None = None
        self.retry_after: bytes | None = None
        self.body: list[bytes] | None = None
        self.body_bytes = 0
        self.head_done = False
        self.complete = False
        self._raw_bytes = 0
        self._named_bytes = 0
        self._keep = False
        self._until_eof = True

    # Sending

    def connect(self, call: Call, request: bytes, now_ns: int) -> None:
        network = self._pool.network
        self._take(call)
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
            if error.errno in _GONE:
                return False
            raise
        self._take(call)
        if sent < len(request):
            self._out = memoryview(request)[sent:]
            self._watch_writes()
        return True

    def _take(self, call: Call) -> None:
        self.call = call
        call.driver = self
        self._no_body = call.method == "HEAD"
        if not self._fresh:
            self._reset()
        self._fresh = False

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
        self._parser = HttpResponseParser(self)
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
            if error.errno not in _GONE:
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
        self._raw_bytes += size
        try:
            self._parser.feed_data(_VIEW[:size])
        except HttpParserUpgrade:
            self.complete, self._keep, self.status = True, False, 101
        except HttpParserError as error:
            if not self.complete:
                self._not_an_answer(error)
                return
            self._keep = False
        if self.complete:
            self._answered()
        elif self._raw_bytes > (RAW_LIMIT if self.head_done else HEAD_LIMIT):
            self.fail("answer_too_large")

    def _not_an_answer(self, error: HttpParserError) -> None:
        cause = error.__context__
        if isinstance(error, HttpParserCallbackError) and not isinstance(cause, TooLarge):
            self._broke(error)
        else:
            self.fail("answer_too_large" if isinstance(cause, TooLarge) else "bad_answer")

    def _on_end_of_stream(self, reason: str) -> None:
        if self.call is None:
            self.close()
        elif self.head_done and self._until_eof and reason == "connection_closed":
            self._answered()
        else:
            self.fail(reason)

    def _answered(self) -> None:
        call, self.call = self.call, None
        assert call is not None
        call.driver = None
        now = monotonic_ns()
        if self._keep and not self._extra and not self._out:
            self.idle_since_ns = now
            self._pool.idle[self] = None
        else:
            self.close()
        self._pool.network.answered(call, self, now)

    # The parser's callbacks. on_message_begin after an answer means bytes that nobody asked for.

    def on_message_begin(self) -> None:
        if self.complete:
            self._extra = True

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name)
        self._named_bytes += size + len(value)
        if self._named_bytes > HEAD_LIMIT:
            raise TooLarge
        if self.head_done:
            return  # a trailer, or an answer that nobody asked for
        if size == 13 and name.lower() == b"server-timing":
            self.server_timing = value
        elif size == 11 and name.lower() == b"retry-after":
            self.retry_after = value
        elif size == 14:
            self._until_eof = self._until_eof and name.lower() != b"content-length"
        elif size == 17 and name.lower() == b"transfer-encoding":
            self._until_eof = self._until_eof and b"chunked" not in value.lower()

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status: int = self._parser.get_status_code()
        self.head_done = True
        if status < 200:
            return
        self.status = status
        if not 200 <= status < 300:
            self.body = []
        if self._no_body:
            # The C parser cannot be told that this was a HEAD: what follows would be taken for a body.
            self.complete = True

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self._extra = True
            return
        size = self.body_bytes = self.body_bytes + len(data)
        if self.body is not None:
            if size <= TYPED_BODY_LIMIT:
                self.body.append(data)
            else:
                self.body = None
        if size > BODY_LIMIT:
            raise TooLarge

    def on_message_complete(self) -> None:
        if self.complete:
            return
        if self.status:
            self.complete = True
            self._keep = self._parser.should_keep_alive()
        else:
            # An interim answer: the real one is still to come. Its bytes count towards the same limit.
            self.head_done = False
            self._until_eof = True

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
        self._reader = self._writer = self._parser = None
        self.connecting = False
        sock.close()
        self._pool.network.open -= 1
        self._pool.idle.pop(self, None)
