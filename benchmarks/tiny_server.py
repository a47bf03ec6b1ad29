"""A server that does as little as one can: the other end of the generator's benchmarks, in a process of its own.

Answers every request with the same small 200, a Server-Timing header in it. `--stamps FILE` writes the kernel's receive
instants of all requests (SO_TIMESTAMPNS, CLOCK_REALTIME) instead of using uvloop: what a server reads in user space
carries its own wake-ups. Prints its port, ends when standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import selectors
import socket
import ssl
import struct
import sys
import threading
from array import array

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n"
    b"Server-Timing: queue;dur=0.01, service;dur=0.02\r\n\r\n"
    b'{"outcome":"served"}'
)
SO_TIMESTAMPNS = 35


class Answering(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(ANSWER)  # type: ignore[attr-defined]


async def serve(pem: str | None) -> None:
    loop = asyncio.get_running_loop()
    context = None
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
    server = await loop.create_server(Answering, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def serve_stamped(path: str) -> None:
    """One thread, one selector; a request is expected to come in one piece, as small ones over loopback do."""
    stamps = array("q")
    selector = selectors.DefaultSelector()
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listening.setblocking(False)
    selector.register(listening, selectors.EVENT_READ)
    over, tell = socket.socketpair()
    selector.register(over, selectors.EVENT_READ)
    threading.Thread(target=lambda: (sys.stdin.read(), tell.send(b".")), daemon=True).start()
    print(listening.getsockname()[1], flush=True)
    while True:
        for key, _ in selector.select():
            ready = key.fileobj
            if ready is over:
                with open(path, "wb") as file:
                    stamps.tofile(file)
                return
            if ready is listening:
                accepted, _ = listening.accept()
                accepted.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(accepted, selectors.EVENT_READ)
                continue
            data, ancillary, _, _ = ready.recvmsg(65536, 128)
            if not data:
                selector.unregister(ready)
                ready.close()
                continue
            for level, kind, value in ancillary:
                if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                    seconds, nanos = struct.unpack("qq", value[:16])
                    stamps.append(seconds * 1_000_000_000 + nanos)
            ready.send(ANSWER)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stamps", metavar="FILE")
    parser.add_argument("--tls", metavar="PEM", help="serve TLS with the certificate and key of this file")
    options = parser.parse_args()
    if options.stamps:
        serve_stamped(options.stamps)
    else:
        import uvloop

        uvloop.run(serve(options.tls))


if __name__ == "__main__":
    main()
