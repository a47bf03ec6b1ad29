"""Workers of a trial, started as on another machine: they know the master's address and their own tokens."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

from tests.conftest import ROOT


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def join(port, name, tokens=None):
    environment = {**os.environ, "OVERLOAD_TOKENS": json.dumps(tokens or {})}
    command = [sys.executable, "-m", "harness", "worker", "--master", f"127.0.0.1:{port}", "--name", name]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
