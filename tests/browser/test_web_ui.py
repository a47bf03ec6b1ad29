"""Locust's own web page in a real Chromium: the tabs show the tenants and phases of the trial that runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from harness.simulate.service import shared_service
from harness.target.stub import StubProcess
from tests.browser.chromium import BINARY, visit
from tests.conftest import ROOT
from tests.live.driving import loaded
from tests.live.stub_client import PATIENCE_S
from tests.real.services import free_ports

pytestmark = [pytest.mark.browser, pytest.mark.skipif(BINARY is None, reason="no Chromium here")]

RUN = (sys.executable, "-m", "harness", "run", "p.yaml", "--web-ui")
HOSTILE = "<img src=x onerror=alert(1)>"
PROFILE = f"""
name: page
duration: 60s
phases: {{calm: [0s, 1s], burst: [1s, 59s]}}
patience: 500ms
service: {{workers: 2, service_time: 20ms, admission: {{policy: shared_fifo, queue: 5}}}}
tenants:
  A: {{rate: 5/s}}
  "{HOSTILE}": {{rate: 5/s}}
  D:
    rate: [5/s, {{from: 1s, to: 59s, rate: 120/s}}]
    replans: {{calls: 1, after: 100ms, rounds: 1}}
ordinary: [A]
"""
OPEN = """
(async () => {
  const pause = ms => new Promise(on => setTimeout(on, ms));
  const wait = async look => {
    for (let n = 0; n < 400; n++) { const found = look(); if (found) return found; await pause(50) }
    throw new Error(document.body.innerText)
  };
  const tabs = () => [...document.querySelectorAll('[role=tab]')];
  (await wait(() => tabs().find(tab => tab.innerText.trim().toLowerCase() == %r))).click();
  await wait(() => [...document.querySelectorAll('td')].some(cell => cell.innerText == %r));
  await pause(%d);
  return [...document.querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.innerText.trim()));
})()
"""


def rows_of(table):
    """By their first cell."""
    return {row[0]: dict(zip(table[0], row, strict=True)) for row in table[1:]}


@contextlib.contextmanager
def running(command, folder):
    """A command with the web page; yields (its process, the page's URL)."""
    said = folder / "said.txt"
    with said.open("wb") as file:
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        child = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield child, said
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def told(child, said: Path, words: str) -> str:
    """The rest of the line that has these words, once it is there."""
    end = time.monotonic() + 60
    while time.monotonic() < end and child.poll() is None:
        for line in said.read_text().splitlines():
            if words in line:
                return line.partition(words)[2].strip()
        time.sleep(0.05)
    raise AssertionError(said.read_text())


def ask(url, data=None, **headers):
    """(status, body)."""
    asked = urllib.request.Request(url, data, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def begun(url):
    """Waits until the page is there, and the runaway has run away for a while."""
    end, due = time.monotonic() + 60, 0
    while time.monotonic() < end:
        with contextlib.suppress(urllib.error.URLError):
            stats = json.loads(ask(url + "stats/requests")[1])
            due = sum(row["due"] for row in stats["extended_stats"][0]["data"] if row["tenant"] == "D")
        if due > 200:
            return
        time.sleep(0.2)
    raise AssertionError(due)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_tabs_show_tenants_and_phases_while_a_trial_runs(tmp_path, workers):
    """In one process, and in a master of two workers."""
    (tmp_path / "p.yaml").write_text(PROFILE)
    command = [*RUN, "--web-port", "0", "--workers", str(workers)]
    with running(command, tmp_path) as (child, said):
        url = told(child, said, "Locust's web page at ")
        assert url.startswith("http://127.0.0.1:")
        begun(url)
        seen = visit(url, (OPEN % ("tenants", "D", 2500), OPEN % ("phases", "burst", 0)))
        tenants, phases = map(rows_of, seen.values)
        assert set(tenants) == {"A", "D", HOSTILE}
        assert [next(iter(tenants)), *phases] == ["D", "calm", "burst"]  # the busiest first, and in order of time
        assert int(tenants["D"]["Offered"]) > 10 * int(tenants["A"]["Offered"]) > 0
        assert int(tenants["D"]["Re-plans"]) > 0
        assert 0 < float(tenants["D"]["Re-plan share, %"]) <= 50
        assert (tenants["A"][""], tenants["D"][""]) == ("ordinary", "")
        assert (phases["calm"][""], phases["burst"][""]) == ("over", "now")
        assert int(phases["burst"]["Re-plans"]) > 0
        assert float(phases["calm"]["Re-plan share, %"]) < float(phases["burst"]["Re-plan share, %"])
        assert seen.faults == []
        assert not [asked for asked in seen.requests if not asked.startswith((url, "data:", "blob:"))]
        only_a_stop_is_taken(url)
        assert child.wait(60) == 4  # stopped by somebody: INVALID
    assert "interrupted" in said.read_text()


def only_a_stop_is_taken(url):
    assert ask(url + "swarm", b"user_count=50&spawn_rate=50")[0] == 403
    assert ask(url + "user", b"{}")[0] == 403
    assert ask(url + "stats/reset", b"")[0] == 403
    assert ask(url + "stop", b"", Origin="http://elsewhere.example")[0] == 403
    assert ask(url, Host="elsewhere.example")[0] == 403
    assert ask(url + "stop", b"")[0] == 200


def test_under_locust_s_own_command(tmp_path):
    (tmp_path / "p.yaml").write_text(PROFILE)
    (port,) = free_ports(1)
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    with StubProcess(shared_service(loaded(tmp_path / "p.yaml").profile), evidence) as stub:
        command = [sys.executable, "-m", "locust", "-f", str(ROOT / "harness/live/locustfile.py"), "--host", stub.url]
        command += ["--overload-profile", "p.yaml", "--autostart", "--web-port", str(port)]
        with running(command, tmp_path):
            url = f"http://127.0.0.1:{port}/"
            begun(url)
            seen = visit(url, (OPEN % ("tenants", "D", 0),))
            assert set(rows_of(seen.values[0])) == {"A", "D", HOSTILE}
            with pytest.raises(OSError):
                socket.create_connection(("127.0.0.2", port), 5)


def test_a_taken_port_is_said_before_anything_is_sent(tmp_path):
    (tmp_path / "p.yaml").write_text(PROFILE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*RUN, "--web-port", port], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 2
    assert f"--web-port {port}: cannot be opened (that port is taken); give another, or 0" in done.stderr
    assert "Traceback" not in done.stderr
