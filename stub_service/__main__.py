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

import orjson

from stub_service import identity
from stub_service.admission.service import SharedService
from stub_service.config import SharedServiceConfig, from_json
from stub_service.defects import registry as defects
from stub_service.evidence import DECISIONS
from stub_service.serve import serve


class BadInput(Exception):
    """One sentence: what is wrong, and what to do."""


def main(arguments: list[str] | None = None) -> int:
    logging.basicConfig(level=logging.WARNING, format="stub: %(message)s")
    options = _options(arguments)
    try:
        config = read_config(options.config)
        service = build_service(config, options.defect)
        identify = identity.identify_by(identity.parse_tokens(os.environ.get(identity.VARIABLE)))
        listener = _listen(options.host, options.port)
        with contextlib.ExitStack() as stack:
            folder = options.evidence or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overload-stub-")))
            _make_folder(folder)
            return serve(listener, service, identify, folder, options.parent_pipe)
    except (BadInput, ValueError) as error:
        print(f"stub: {error}", file=sys.stderr)
        return 2


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stub_service", description="A shared service to be overloaded.")
    parser.add_argument("--config", type=Path, required=True, help="JSON of the shared service's configuration")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one (default)")
    parser.add_argument("--evidence", type=Path, help="folder for decisions.jsonl (default: a temporary one)")
    parser.add_argument("--defect", help="a deliberate fault, by name")
    parser.add_argument("--parent-pipe", action="store_true", help="stop when standard input ends")
    return parser.parse_args(arguments)


def read_config(path: Path) -> SharedServiceConfig:
    """Raises BadInput."""
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); give --config an existing JSON file") from None
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not JSON ({error.msg})") from None
    try:
        config = from_json(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{path}: not a configuration of the shared service ({error!r})") from None
    if problem := _problem(config):
        raise BadInput(f"{path}: {problem}")
    return config


def _problem(config: SharedServiceConfig) -> str | None:
    instants = [at for at, _ in config.workers]
    if not instants or instants[0] != 0 or instants != sorted(set(instants)):
        return "workers must be [[from_ns, count], ...], the first from 0, in order"
    if any(count < 0 for _, count in config.workers):
        return "workers: a count cannot be negative"
    times = config.service_time
    if times.distribution != "recorded_cost" and times.mean_ns <= 0:
        return "service_time.mean_ns must be above zero"
    if min(times.sigma, times.base_ns, times.per_unit_ns, times.cap_ns, times.load_slope) < 0:
        return "service_time: no part of it can be negative"
    if min(config.admission.queue, config.admission.queue_per_tenant, config.admission.cap) < 0:
        return "admission: no bound can be negative"
    if config.admission.policy == "tenant_cap" and config.admission.cap < 1:
        return "admission.cap must be at least 1: with 0 nothing would ever start"
    return None


def build_service(config: SharedServiceConfig, defect: str | None) -> SharedService:
    """The healthy service, with a defect laid over it if one is named. Raises ValueError on an unknown name."""
    service = SharedService(config)
    if defect is not None:
        defects.lay(defect, service, config)
    return service


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / DECISIONS).open("ab"):
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
