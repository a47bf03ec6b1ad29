"""`--metrics-port`: what a command knows, served to Prometheus on loopback while it runs. Nothing is pushed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import click

from harness.errors import BadInput
from harness.report.prometheus import TrialMetrics
from stub_service.exposition import OPENMETRICS, TEXT, Family, text, wants_openmetrics

if TYPE_CHECKING:
    from harness.profile.loader import Loaded
    from harness.trial import Progress

Source = Callable[[], Sequence[Family]]
"""What there is to tell, whenever somebody asks: from another thread."""
Tell = Callable[[Source], None]
"""Takes what is to be asked from now on."""
Meter = Callable[["Loaded", "Progress"], "Progress"]
"""Has the metrics of a trial follow its progress."""
TIMEOUT_S = 10.0
"""Of a client that connects and asks for nothing."""

metrics_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics on 127.0.0.1 meanwhile; 0: a free port. docs/metrics.md names them.",
)


@contextlib.contextmanager
def metering(port: int | None) -> Iterator[Meter]:
    """Of the trials of a command, one after another; None: nobody is told."""
    if port is None:
        yield lambda loaded, on_progress: on_progress
        return
    with served(port) as tell:

        def meter(loaded: Loaded, on_progress: Progress) -> Progress:
            metrics = TrialMetrics(loaded.profile, loaded.variant)
            tell(metrics.families)

            def heard(event: dict[str, Any]) -> None:
                metrics.add(event)
                on_progress(event)

            return heard

        yield meter


@contextlib.contextmanager
def served(port: int) -> Iterator[Tell]:
    """Serves what it is told to at /metrics, in a thread that ends with the block. Raises BadInput."""
    newest: list[Source] = [tuple]

    class Handler(BaseHTTPRequestHandler):
        timeout = TIMEOUT_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self._say(404, "text/plain", b"see /metrics\n")
                return
            openmetrics = wants_openmetrics(self.headers.get("Accept"))
            self._say(200, OPENMETRICS if openmetrics else TEXT, text(newest[0](), openmetrics))

        def _say(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing: standard error is for people."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that hung up is no news."""

    try:
        server = Server(("127.0.0.1", port), Handler)
    except OSError as error:
        raise BadInput(f"--metrics-port {port}: cannot be opened ({error.strerror}); give another, or 0") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    click.echo(f"metrics at http://127.0.0.1:{server.server_port}/metrics", err=True)

    def tell(source: Source) -> None:
        newest[0] = source

    try:
        yield tell
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
