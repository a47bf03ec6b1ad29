"""`python -m stub_service`: reads its configuration, serves on one port, says so on standard output, stops cleanly.

Bad input gives one line on standard error and exit code 2; evidence that cannot be written ends it with code 1, because
a trial without its evidence would be believed wrongly.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import socket
import sys
import tempfile
from pathlib import Path

from stub_service import identity
from stub_service.admission.service import SharedService
from stub_service.capacity_shell import LayDefect
from stub_service.defects import registry as defects
from stub_service.serve import Layer, kinds, serve
from stub_service.served import BadInput, Served, read_served
from stub_service.tls import context_of


def main(arguments: list[str] | None = None) -> int:
    logging.basicConfig(level=logging.WARNING, format="stub: %(message)s")
    options = _options(arguments)
    try:
        served = read_served(options.config)
        if options.dependencies_only and served.capacity is None:
            raise BadInput("--dependencies-only needs a configuration with `capacity`")
        service, lay = lay_defect(options.defect, served)
        identify = identity.identify_by(identity.parse_tokens(os.environ.get(identity.VARIABLE)))
        tls = context_of(options.tls_cert, options.tls_key, options.tls_client_ca)
        listener = _listen(options.host, options.port)
        with contextlib.ExitStack() as stack:
            folder = options.evidence or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overload-stub-")))
            _make_folder(folder, served)
            layer = None
            if served.capacity is not None:
                layer = Layer(served.capacity, lay, not options.dependencies_only)
            return serve(listener, service, layer, identify, folder, options.parent_pipe, tls)
    except (BadInput, ValueError) as error:
        print(f"stub: {error}", file=sys.stderr)
        return 2


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stub_service", description="A service to be overloaded.")
    parser.add_argument("--config", type=Path, required=True, help="JSON of what is to be served")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one (default)")
    parser.add_argument("--evidence", type=Path, help="folder for the evidence (default: a temporary one)")
    parser.add_argument("--dependencies-only", action="store_true", help="serve no controller in front of them")
    parser.add_argument("--defect", help="a deliberate fault, by name")
    parser.add_argument("--tls-cert", type=Path, help="PEM file: serve TLS with this certificate (and its chain)")
    parser.add_argument("--tls-key", type=Path, help="its private key, if it is not in the same file")
    parser.add_argument("--tls-client-ca", type=Path, help="callers must show a certificate of this CA")
    parser.add_argument("--parent-pipe", action="store_true", help="stop when standard input ends")
    return parser.parse_args(arguments)


def lay_defect(name: str | None, served: Served) -> tuple[SharedService | None, LayDefect | None]:
    """The healthy shared service, with a defect of it laid over it; and how to lay one of the controller.

    Raises BadInput on a defect of a part that is not served, ValueError on an unknown name."""
    service = SharedService(served.shared) if served.shared is not None else None
    if name is None:
        return service, None
    defect = defects.named(name)
    if defect.part == defects.CAPACITY:
        if served.capacity is None:
            raise BadInput(f"--defect {name} is one of the capacity controller, which is not served here")
        return service, defect.lay
    if service is None or served.shared is None:
        raise BadInput(f"--defect {name} is one of the shared service, which is not served here")
    defect.lay(service, served.shared)
    return service, None


def _make_folder(folder: Path, served: Served) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind in kinds(served.capacity is not None):
            with (folder / f"{kind}.jsonl").open("ab"):
                pass
    except OSError as error:
        raise BadInput(f"--evidence {folder}: cannot be written ({error.strerror})") from None


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise BadInput(f"--port {port}: a port is between 0 and 65535")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise BadInput(f"cannot listen on {host} port {port}: {error.strerror}; --port 0 takes any free one") from None
    return listener


if __name__ == "__main__":
    sys.exit(main())
