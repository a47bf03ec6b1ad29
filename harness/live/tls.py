"""TLS on the connections of a trial: records sealed and opened in memory (OpenSSL's memory BIOs), sockets as without.

    connecting -> handshake -> open: the request is sealed once, and leaves as any other bytes do

Nothing blocks: what OpenSSL wants to read is waited for by the watcher that reads, and what it wants to write goes out
with the one that writes. That a kernel accepted no byte of a request can be told, since its bytes are ours until then:
so the rule of connections.py on moving a request holds here, too. No early data (it may be replayed: RFC 8446, section
8), no renegotiation. A session is resumed within its tenant only.

An answer that only the end of the stream ends is whole if the server said goodbye (RFC 9112 section 9.8).
"""

from __future__ import annotations

import ssl
from _socket import socket
from contextlib import suppress
from time import monotonic_ns
from typing import Any

from harness.ledger.call import Call
from harness.live import connections
from harness.live.connections import Connection, Pool
from harness.live.pacing import Scheduler, Timeouts
from harness.live.requests import Target
from harness.target import tls as reasons
from harness.target.tls import context_of, name_of, reason_of

_PIECE = 64 * 1024
"""Of a request, sealed at a time; and of sealed bytes, read at a time."""
_MOST_UNSENT = 1 << 20
"""Of what TLS has to say itself, to a server that keeps asking and never reads."""
_SEALED = bytearray(_PIECE)
_SEALED_VIEW = memoryview(_SEALED)
_OPENED = bytearray(_PIECE)
_OPENED_VIEW = memoryview(_OPENED)
_WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Handshakes:
    """What the TLS connections of a trial share: one context, the server's name, the limit."""

    def __init__(self, target: Target, scheduler: Scheduler) -> None:
        """Raises BadInput if the target's files cannot be used."""
        assert target.tls is not None
        self.context = context_of(target.tls, target.name)
        self.name = name_of(target.tls, target.name)
        self.waiting: Timeouts[TlsConnection] = Timeouts(
            scheduler, target.connect_timeout_ns, _not_shaking, TlsConnection.give_up_handshake
        )

    def make(self, pool: Pool, sock: socket) -> TlsConnection:
        return TlsConnection(pool, sock, self)


def _not_shaking(connection: TlsConnection) -> bool:
    return not connection.shaking


class TlsConnection(Connection):
    """`_out` are sealed bytes that the kernel has not taken; `_rest` is what of the request is not yet sealed."""

    __slots__ = ("_handshakes", "_incoming", "_outgoing", "_proved", "_rest", "_said_goodbye", "_tls", "shaking")

    def __init__(self, pool: Pool, sock: socket, handshakes: Handshakes) -> None:
        super().__init__(pool, sock)
        self._handshakes = handshakes
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._rest: memoryview = memoryview(b"")
        self._said_goodbye = self._proved = self.shaking = False

    # The handshake

    def _connected(self) -> bool:
        if not super()._connected():
            return False
        self._rest, self._out = memoryview(self._out), b""
        shared = self._handshakes
        self._tls = shared.context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=shared.name, session=self._pool.session
        )
        self.shaking = True
        shared.waiting.add(self, monotonic_ns())
        self._shake_hands()
        return False

    def _shake_hands(self) -> bool:
        """One step. True: done, and the request is on its way."""
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except _WANTS:
            self._write()
            return False
        except ssl.SSLError as error:
            self._send_last()  # the alert
            self.fail(reason_of(error))
            return False
        self.shaking = False
        self._write()
        return self._sock is not None

    def give_up_handshake(self) -> None:
        self.fail(reasons.TIMEOUT)

    # Sending

    def send_again(self, call: Call, request: bytes) -> bool:
        assert self._sock is not None
        assert self._tls is not None
        rest = memoryview(request)
        try:
            if self._out or self._outgoing.pending:
                raise ssl.SSLError("it has not taken what went before")
            rest = rest[self._tls.write(rest[:_PIECE]) :]
            sealed = self._outgoing.read()
            sent = self._sock.send(sealed)
        except BlockingIOError:
            sent = 0
        except ssl.SSLError:  # an OSError, too, but never one of the socket's: nothing has left
            self.close()
            return False
        except OSError as error:
            self.close()
            if error.errno in connections.GONE:
                return False
            raise
        self._take(call, request)
        self._out, self._rest = sealed[sent:], rest
        if self._out or rest:
            self._watch_writes()
        return True

    def _write(self) -> None:
        """Sends what is sealed, at most one piece more of the request, and watches for room if some is left."""
        assert self._sock is not None
        out = self._out or self._outgoing.read() or self._seal()
        try:
            sent = self._sock.send(out) if out else 0
        except BlockingIOError:
            sent = 0
        except OSError as error:
            # What the server has answered before it closed may still be waiting to be read.
            self._out = out
            self._stop_writer()
            if error.errno not in connections.GONE:
                self.fail("write_failed")
            return
        self._out = memoryview(out)[sent:]
        if not out or not (self._out or self._outgoing.pending or (self._rest and not self.shaking)):
            self._stop_writer()
        elif self._writer is None:
            self._watch_writes()

    def _seal(self) -> bytes:
        """Nothing, where TLS must read first: then reading calls for the next try."""
        if self._rest and not self.shaking:
            assert self._tls is not None
            with suppress(*_WANTS):
                self._rest = self._rest[self._tls.write(self._rest[:_PIECE]) :]
        return self._outgoing.read()

    def _stop_writer(self) -> None:
        if self._writer is not None:
            super()._stop_writer()

    # Reading

    def usable(self, now_ns: int) -> bool:
        """Whatever waits to be read is looked at: tickets are no reason to close, anything else is."""
        if now_ns - self.idle_since_ns > connections.IDLE_LIMIT_NS:
            return False
        self._on_readable()
        return self._sock is not None

    def _on_readable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            try:
                size = sock.recv_into(_SEALED)
            except BlockingIOError:
                return
            except OSError:
                self._on_torn("connection_reset")
                return
            if not size:
                self._on_torn("connection_closed")
                return
            self._incoming.write(_SEALED_VIEW[:size])
            if not self.shaking or self._shake_hands():
                self._open()
        except Exception as error:
            self._broke(error)

    def _open(self) -> None:
        """Opens every record that has arrived: what comes behind an answer is seen before its connection is kept."""
        incoming, answer = self._incoming, self._answer
        tls: Any = self._tls  # typeshed has `read` return bytes, also where it fills a buffer
        while True:
            try:
                size = tls.read(_PIECE, _OPENED)
            except _WANTS:
                break
            except ssl.SSLZeroReturnError:
                size = 0
            except ssl.SSLError as error:
                self._on_bad_record(error)
                return
            if not size:
                self._said_goodbye = True
                break
            if self.call is None:
                self.close()  # talking out of turn
                return
            reason = answer.feed(_OPENED_VIEW[:size])
            if reason is not None:
                self.fail(reason)
                return
            if not incoming.pending and not tls.pending():
                break
        self._opened()

    def _opened(self) -> None:
        if self._outgoing.pending > _MOST_UNSENT:
            self.fail(reasons.ERROR)
        elif self._writer is None and (self._outgoing.pending or self._rest):
            self._write()
        if self._sock is None:
            return
        if self.call is not None and self._answer.complete:
            if not self._proved and self._tls is not None:
                # By now the tickets of TLS 1.3 have come, which follow its handshake.
                self._proved, self._pool.session = True, self._tls.session
            self._answered()
        elif self._said_goodbye:
            self._on_end_of_stream("connection_closed")

    def _on_bad_record(self, error: ssl.SSLError) -> None:
        self._send_last()
        refused = not self._proved and not self._answer.status and reasons.refuses_ours(error)
        self.fail(reasons.CLIENT_CERTIFICATE if refused else reasons.ERROR)

    def _on_torn(self, reason: str) -> None:
        """The connection ended below TLS."""
        if self.shaking:
            self.fail(reasons.CLOSED)
        elif self.call is not None and reason == "connection_closed" and self._answer.end():
            self.fail(reasons.TRUNCATED)
        else:
            self._on_end_of_stream("connection_reset" if self.call is None else reason)

    def _may_carry_more(self) -> bool:
        return not (self._out or self._rest or self._said_goodbye)

    # Ends

    def _send_last(self) -> None:
        """What TLS has to say before a close, if there is room for it at once."""
        if self._sock is not None and not self._out and self._outgoing.pending:
            try:
                self._sock.send(self._outgoing.read())
            except OSError:
                return

    def close(self) -> None:
        if self._sock is not None and self._tls is not None and not self.shaking:
            with suppress(ssl.SSLError, ValueError):  # it would wait for theirs, which nobody needs
                self._tls.unwrap()  # our goodbye: without one the session could not be resumed
            self._send_last()
        self.shaking = False
        super().close()
