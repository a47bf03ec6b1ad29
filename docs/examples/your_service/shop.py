"""A small service in front of three dependencies, which tries again by itself (docs/your_service.md, section 8).

    python docs/examples/your_service/shop.py --port 8086 --dependencies http://127.0.0.1:9000 --attempts 2

It passes on the headers that it gets, as a proxy does. Standard library only; for loopback and for looking at.
"""

from __future__ import annotations

import argparse
import http.client
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP = {"host", "connection", "content-length", "transfer-encoding"}


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    dependencies = "127.0.0.1:9000"
    attempts = 2
    timeout_s = 1.0

    def do_GET(self) -> None:
        status, body = 502, b"{}"
        for _ in range(self.attempts):
            status, body = self.asked()
            if status < 500:
                break
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def asked(self) -> tuple[int, bytes]:
        """One attempt at the dependency that the path names."""
        connection = http.client.HTTPConnection(self.dependencies, timeout=self.timeout_s)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        try:
            connection.request("GET", self.path, headers={**headers, "Via": "1.1 shop"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 504, b"{}"
        finally:
            connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: every call would be a line."""


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("--port", type=int, default=8086)
    told.add_argument("--dependencies", default="http://127.0.0.1:9000")
    told.add_argument("--attempts", type=int, default=2)
    given = told.parse_args()
    Shop.dependencies, Shop.attempts = urlsplit(given.dependencies).netloc, given.attempts
    server = ThreadingHTTPServer(("127.0.0.1", given.port), Shop)
    print(f"serving at http://127.0.0.1:{given.port}, {Shop.attempts} attempts a call; Ctrl-C ends it", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("stopping")


if __name__ == "__main__":
    main()
