"""The lab's server: whom it answers, what it refuses, and that the page allows nothing from elsewhere."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner

from harness import checks
from harness.cli.lab import command
from harness.errors import BadInput
from harness.lab import run, server
from harness.lab.inputs import DEFAULTS
from harness.lab.page import page
from harness.profile.loader import from_document

Ask = Callable[[TestClient[Any, Any]], Awaitable[Any]]


class Here:
    """In the place of the pools: the work is done at once, in this process."""

    async def ask(self, which: str, work: Callable[..., bytes], *arguments: Any) -> bytes:
        return work(*arguments)

    def close(self) -> None:
        pass


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(server, "Pools", Here)
    monkeypatch.setattr(server.run, "run", lambda inputs: b'{"ran": true}')

    def ask(question: Ask) -> Any:
        async def whole() -> Any:
            async with TestClient(TestServer(server.app(), host="127.0.0.1")) as client:
                return await question(client)

        return asyncio.run(whole())

    return ask


async def post(client: Any, path: str = "/api/run", body: Any = None, **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"inputs": DEFAULTS} if body is None else body
    async with client.post(path, json=body, headers=named) as answer:
        text = await answer.text()
        return answer.status, (await answer.json() if answer.content_type == "application/json" else text)


def test_its_own_page_is_answered(asked):
    async def question(client):
        origin = f"http://127.0.0.1:{client.port}"
        return await post(client, Origin=origin, Sec_Fetch_Site="same-origin"), await post(client)

    assert asked(question) == ((200, {"ran": True}), (200, {"ran": True}))


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "127.0.0.1.evil.example:80"},
        {"Host": "192.168.1.7:8765"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)
def test_a_page_of_elsewhere_is_not(asked, headers):
    """DNS rebinding has another Host, a foreign page another Origin, and a browser says where a request comes from."""
    status, words = asked(lambda client: post(client, **headers))
    assert status == 403
    assert "the lab answers" in words


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1", "[::1]:9000", "LOCALHOST:1"])
def test_a_tunnel_to_this_machine_is_answered(asked, host):
    assert asked(lambda client: post(client, Host=host))[0] == 200


def test_only_json_of_a_bounded_size_is_taken(asked):
    async def question(client):
        made = []
        for body, kind in (
            (b'{"inputs": {}}', "text/plain"),
            (b"a=b", "application/x-www-form-urlencoded"),
            (b"{", "application/json"),
            (b"[]", "application/json"),
            (b'{"inputs": {"workers": 8}}', "application/json"),
            (b'{"inputs": {"workers": "' + b"8" * server.MOST_BYTES + b'"}}', "application/json"),
        ):
            async with client.post("/api/run", data=body, headers={"Content-Type": kind}) as answer:
                made.append(answer.status)
        return made

    assert asked(question) == [415, 415, 400, 400, 400, 413]


@pytest.mark.parametrize(
    "body",
    [
        {"from": 0},
        {"from": -1, "count": 1},
        {"from": 0, "count": 9},
        {"from": True, "count": 1},
        {"from": 199, "count": 2},
    ],
    ids=str,
)
def test_an_ensemble_is_bounded(asked, body):
    assert asked(lambda client: post(client, "/api/ensemble", {"inputs": DEFAULTS, **body}))[0] == 400


def test_a_setting_becomes_a_profile_that_loads(asked):
    inputs = {
        **DEFAULTS,
        "policy": "fair_queues",
        "tenant.0.weight": "3",
        "tenant.0.name": "shop: a #1",
        "budget": "on",
    }
    status, answer = asked(lambda client: post(client, "/api/profile", {"inputs": inputs}))
    assert status == 200
    document = yaml.safe_load(answer["yaml"])
    profile = from_document(document, checks=checks.PARAMETERS).profile
    assert profile.ordinary == ["shop: a #1", "B", "C"]
    wrong = asked(lambda client: post(client, "/api/profile", {"inputs": {**DEFAULTS, "seed": "x"}}))
    assert wrong[1]["errors"].keys() == {"seed"}


def test_nothing_may_be_loaded_from_elsewhere(asked):
    async def question(client):
        async with client.get("/") as answer:
            return answer.headers, await answer.text()

    headers, text = asked(question)
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert not re.search(r'(src|href)="(?!/assets/|#|data:,)', text)
    assert not re.search(r"\son\w+=|style=", text)


def test_every_part_is_served_and_no_other_file(asked):
    async def question(client):
        made = {}
        for name in (*server.ASSETS, "nothing.js", "..%2finputs.py", "%2e%2e/server.py", "uPlot.LICENSE"):
            async with client.get(f"/assets/{name}") as answer:
                made[name] = answer.status
        async with client.get("/api/run") as answer:
            made["get"] = answer.status
        return made

    found = asked(question)
    assert {status for name, status in found.items() if name in server.ASSETS} == {200}
    assert {status for name, status in found.items() if name not in server.ASSETS} == {404, 405}


def test_the_page_has_a_label_for_every_input():
    text = page()
    for id_ in re.findall(r'<(?:input|select)[^>]* id="([^"]+)"', text):
        assert f'for="{id_}"' in text or id_ == "file", id_


def test_runs_happen_in_processes_of_their_own_which_end_with_the_pools():
    async def whole() -> tuple[bytes, list[Any]]:
        pools = server.Pools()
        answer = await pools.ask("ensemble", run.run, {**DEFAULTS, "workers": "x"})
        processes = list(pools._pools["ensemble"]._processes.values())
        pools.close()
        await asyncio.to_thread(lambda: [process.join(20) for process in processes])
        return answer, processes

    answer, processes = asyncio.run(whole())
    assert answer.startswith(b'{"errors"')
    assert processes
    assert not any(process.is_alive() for process in processes)


def test_a_run_that_was_killed_is_told_of_and_the_next_one_goes_on():
    async def whole() -> tuple[bytes, bytes]:
        pools = server.Pools()
        try:
            killed = await pools.ask("ensemble", _end_yourself)
            return killed, await pools.ask("ensemble", run.refused, {})
        finally:
            pools.close()

    killed, after = asyncio.run(whole())
    assert b"ended from outside" in killed
    assert after == b'{"errors":{}}'


def _end_yourself() -> bytes:
    import os

    os._exit(9)


def test_a_port_that_is_taken_is_one_clear_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInput, match=r"cannot be taken .*--port"):
            command.main(["--no-open", "--port", str(taken.getsockname()[1])], standalone_mode=False)


def test_help_has_examples():
    text = CliRunner().invoke(command, ["--help"]).output
    assert "overload lab\n" in text
    assert "--no-open" in text


def test_the_lab_loads_neither_locust_nor_gevent():
    code = (
        "import sys, harness.lab.server, harness.cli.lab; print([m for m in ('gevent', 'locust') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
