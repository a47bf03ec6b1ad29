"""The bundled stub as a child process: started, waited for, asked, and stopped by whoever judges it.

The child holds the read end of a pipe whose write end stays here, so that it stops when this process is gone, however
that died. Never imports the service's own shell, and never signals a process that it did not start.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

from harness.target.errors import TargetGone, TargetUnusable
from harness.target.tls import ServerTls
from harness.target.url import RemoteStub
from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.config import to_json as capacity_to_json
from stub_service.config import SharedServiceConfig, to_json

READY_S = 20.0
_STOP_S = 5.0
_DYING_S = 2.0
_KEPT_LINES = 40
_KEPT_CHARS = 500


class StubProcess:
    """`with StubProcess(config, folder) as stub: ...stub.url...`

    config: a shared service; capacity: a controller with its dependencies; at least one of them. dependencies_only: no
    controller. evidence_dir: where the child writes decisions.jsonl and, with a capacity layer, arrivals.jsonl and
    effects.jsonl. tokens: tenant -> token, where they are not `token-<tenant>`;
    they travel in the environment only. port 0: any free one. tls: serve HTTPS with it; this side then asks its
    questions through a plain port of loopback that the child has for that.
    Raises TargetError when the child cannot start, does not become ready, or has died.
    """

    def __init__(
        self,
        config: SharedServiceConfig | None,
        evidence_dir: Path,
        *,
        capacity: CapacityConfig | None = None,
        dependencies_only: bool = False,
        defect: str | None = None,
        tokens: Mapping[str, str] | None = None,
        port: int = 0,
        tls: ServerTls | None = None,
    ) -> None:
        self.evidence_dir = evidence_dir
        self.port = 0
        self._scheme = "http" if tls is None else "https"
        self._output: deque[str] = deque(maxlen=_KEPT_LINES)
        self._scratch = tempfile.TemporaryDirectory(prefix="overload-stub-")
        config_file = Path(self._scratch.name) / "service.json"
        served = {
            "shared": to_json(config) if config is not None else None,
            "capacity": capacity_to_json(capacity) if capacity is not None else None,
        }
        config_file.write_bytes(orjson.dumps(served))
        command = [sys.executable, "-m", "stub_service", "--parent-pipe", "--port", str(port)]
        command += ["--config", str(config_file), "--evidence", str(evidence_dir)]
        if dependencies_only:
            command.append("--dependencies-only")
        if defect is not None:
            command += ["--defect", defect]
        if tls is not None:
            given = (("--tls-cert", tls.cert), ("--tls-key", tls.key), ("--tls-client-ca", tls.client_ca))
            command += [word for option, path in given if path is not None for word in (option, str(path))]
        self._command, self._tokens = command, dict(tokens or {})
        self._child: subprocess.Popen[bytes] | None = None
        self._remote: RemoteStub | None = None
        self._readers: list[threading.Thread] = []
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the child and waits until it serves."""
        environment = dict(os.environ)
        if self._tokens:
            environment["OVERLOAD_TOKENS"] = json.dumps(self._tokens)
        # A group of its own: Ctrl-C in the terminal reaches the parent, which then stops the child in order.
        try:
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                process_group=0,
            )
        except OSError as error:
            raise TargetUnusable(f"the stub cannot be started ({error.strerror})") from None
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        for stream, read in ((self._child.stdout, self._read_events), (self._child.stderr, self._read_complaints)):
            thread = threading.Thread(target=read, args=(stream,), daemon=True)
            thread.start()
            self._readers.append(thread)
        heard = self._ready.wait(READY_S)
        if not self.port:
            if heard:  # its standard output ended, so the child is ending, too
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._child.wait(_STOP_S)
            said = f"the stub {self._end_of_child() or f'was not ready within {READY_S:.0f} s'}"
            # One that refused what it was given says so and ends by itself; anything else befell it.
            raise TargetUnusable(said) if (self._child.returncode or 0) > 0 else TargetGone(said)
        self._scratch.cleanup()  # it has been read, and nobody takes it away if this process is killed

    def set_epoch(self, monotonic_ns: int) -> None:
        """The trial begins at this instant of CLOCK_MONOTONIC of this machine."""
        with self._control() as control:
            control.set_epoch(monotonic_ns)

    def health(self) -> dict[str, Any]:
        """What /healthz says, loop lag included."""
        with self._control() as control:
            return control.health()

    def metrics(self) -> str:
        with self._control() as control:
            return control.metrics()

    def collect(self, folder: Path) -> None:
        """Sees to it that the evidence is in the trial's folder. The rest of it follows when the child stops."""
        with self._control() as control:
            if folder.resolve() == self.evidence_dir.resolve():
                control.cursors()  # flushes
            else:
                control.collect(folder)

    def check_alive(self) -> None:
        """Raises TargetError if the child has died."""
        self._running()

    def stop(self) -> None:
        """Ends the child and waits for it: SIGTERM, then SIGKILL after some seconds. May be called again."""
        child, self._child = self._child, None
        if child is not None:
            _end(child)
        for reader in self._readers:
            reader.join(_STOP_S)
        self._readers.clear()
        if child is not None:
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        self._scratch.cleanup()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise TargetGone("the stub is not running")
        if self._child.poll() is not None:
            raise TargetGone(f"the stub {self._end_of_child()}")
        return self._child

    @contextlib.contextmanager
    def _control(self) -> Iterator[RemoteStub]:
        """Where a question fails because the child has died, says how it died."""
        self._running()
        assert self._remote is not None
        try:
            yield self._remote
        except TargetGone:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running().wait(_DYING_S)
            self._running()
            raise

    def _end_of_child(self) -> str | None:
        """How the child ended, with its last words; None if it runs."""
        if self._child is None or self._child.poll() is None:
            return None
        for reader in self._readers:
            reader.join(1.0)
        code = self._child.returncode
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        said = " / ".join(self._output)
        return f"{how}: {said}" if said else how

    def _read_events(self, stream: IO[bytes]) -> None:
        for line in _lines(stream):
            try:
                event = orjson.loads(line)
            except orjson.JSONDecodeError:
                self._output.append(line)
                continue
            if isinstance(event, dict) and event.get("event") == "ready":
                self.port = int(event["port"])
                self._remote = RemoteStub(f"http://127.0.0.1:{event.get('own_port', self.port)}")
                self._ready.set()
        self._ready.set()  # its standard output has ended: it is not going to be ready

    def _read_complaints(self, stream: IO[bytes]) -> None:
        self._output.extend(_lines(stream))


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """Lines as text, each cut to a bounded length, until the stream ends."""
    while line := stream.readline(_KEPT_CHARS * 4):
        if text := line.decode(errors="replace").strip():
            yield text[:_KEPT_CHARS]


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
