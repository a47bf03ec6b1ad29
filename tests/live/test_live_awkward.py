"""The live driver against servers that misbehave: every call ends once, nothing is re-sent, the schedule is kept."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter

import pytest

from tests.live.awkward import OK, Connection, always, audit, drive, drop, never, serving

pytestmark = pytest.mark.live

STEADY = {"duration": "400ms", "drain": "400ms", "tenants": {"A": {"rate": "50/s"}, "B": {"rate": "50/s"}}}
PLANNED = 40
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD")


def recorded(folder, methods, path="/thing"):
    """A schedule file with a call of each method every 10 ms."""
    (folder / "schedule").mkdir()
    lines = [f'{{"due_ns":{i * 10_000_000},"method":"{method}","path":"{path}"}}' for i, method in enumerate(methods)]
    (folder / "schedule" / "a.jsonl").write_text("\n".join(lines) + "\n")
    return {"duration": "1s", "drain": "300ms", "tenants": {"A": {"recorded": {"file": "a.jsonl"}}}}


def chunked(*parts):
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = CHUNKED_HEAD + chunked(b"some", b"thing", b"")
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"


def test_read_and_dropped_is_sent_once_whatever_the_method(tmp_path):
    methods = METHODS * 6
    with serving(drop) as server:
        driven = drive(tmp_path, recorded(tmp_path, methods), server.url)
    audit(driven, len(methods), server.attempts())
    assert len(server.seen) == len(methods)
    assert Counter(seen.method for seen in server.seen) == Counter(methods)
    assert driven.outcomes() == {("failed", "connection_closed"): len(methods)}


def test_a_refusal_that_comes_as_a_success_is_a_refusal(tmp_path):
    body = b'{"outcome":"throttled","reason":"busy"}'
    shed = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with serving(always(shed)) as server:
        driven = drive(tmp_path, STEADY, server.url)
    audit(driven, PLANNED, server.attempts())
    assert driven.outcomes() == {("throttled", "busy"): PLANNED}


def test_dropped_on_a_kept_connection_is_not_sent_again(tmp_path):
    async def second_time_drop(connection: Connection) -> bool:
        if connection.served:
            return False
        await connection.answer(OK)
        return True

    methods = METHODS * 6
    with serving(second_time_drop) as server:
        driven = drive(tmp_path, recorded(tmp_path, methods), server.url)
    audit(driven, len(methods), server.attempts())
    assert len(server.seen) == len(methods)
    assert driven.outcomes()[("failed", "connection_closed")] > 5
    assert driven.outcomes()[("served", None)] > 5


def test_never_answered_does_not_stop_the_schedule(tmp_path):
    with serving(never) as server:
        driven = drive(tmp_path, STEADY, server.url)
    audit(driven, PLANNED, server.attempts())
    assert driven.outcomes() == {("open", "drain_limit"): PLANNED}
    late = driven.late_ms()
    assert late[len(late) // 2] < 20, "the schedule waited for answers"


def test_patience_hangs_up(tmp_path):
    with serving(never) as server:
        driven = drive(tmp_path, {**STEADY, "patience": "60ms"}, server.url)
    audit(driven, PLANNED, server.attempts())
    assert driven.outcomes() == {("abandoned", "patience"): PLANNED}
    assert all(row["done_ns"] - row["sent_ns"] >= 60_000_000 for row in driven.rows)


def test_without_a_listener_every_call_fails(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    driven = drive(tmp_path, STEADY, f"http://127.0.0.1:{port}")
    audit(driven, PLANNED, [])
    assert driven.outcomes() == {("failed", "connect_refused"): PLANNED}


def test_a_server_that_dies_half_way(tmp_path):
    with serving(always(OK), die_after=PLANNED // 2) as server:
        driven = drive(tmp_path, STEADY, server.url)
    audit(driven, PLANNED, server.attempts())
    outcomes = driven.outcomes()
    assert outcomes[("served", None)] >= PLANNED // 2 - 2
    assert outcomes[("failed", "connect_refused")] >= PLANNED // 2 - 2


def test_a_server_that_does_not_accept(tmp_path):
    """The kernel completes as many handshakes as fit its queue; the rest never get a connection."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        driven = drive(tmp_path, STEADY, f"http://127.0.0.1:{listening.getsockname()[1]}")
    audit(driven, PLANNED)
    assert driven.outcomes() == {("open", "drain_limit"): PLANNED}
    assert driven.late_ms()[PLANNED // 2] < 20


SMALL = (
    (OK, True, ("served", None)),
    (CHUNKED, True, ("served", None)),
    (INTERIM * 3 + OK, True, ("served", None)),
    (b"HTTP/1.1 204 No Content\r\n\r\n", True, ("served", None)),
    (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", False, ("served", None)),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", False, ("served", None)),
    (OK + b"HTTP/1.1 200 OK\r\n", True, ("served", None)),
    (OK + OK, True, ("served", None)),
    (b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", True, ("failed", "status_302")),
    (b"HTTP/1.1 304 Not Modified\r\n\r\n", True, ("failed", "status_304")),
    (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n\0\0", True, ("failed", "status_101")),
    (b"\0\1\2 what is this\r\n\r\n", True, ("failed", "bad_answer")),
    (b"HTTP/1.1 2000 OK\r\n\r\n", True, ("failed", "bad_answer")),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", True, ("failed", "bad_answer")),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive", False, ("failed", "connection_closed")),
    (CHUNKED[:-8], False, ("failed", "connection_closed")),
    (INTERIM, False, ("failed", "connection_closed")),
    (b"HTTP/1.1 200", False, ("failed", "connection_closed")),
)
LARGE = (
    (INTERIM * 5000, True, ("failed", "answer_too_large")),
    (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", True, ("failed", "answer_too_large")),
    (b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 20_000, True, ("failed", "answer_too_large")),
    (b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * (9 << 20), True, ("failed", "answer_too_large")),
    (CHUNKED_HEAD + b"1;" + b"x" * (17 << 20), True, ("failed", "answer_too_large")),
)


@pytest.mark.parametrize(("cases", "calls"), [(SMALL, 10), (LARGE, 2)], ids=["small", "large"])
def test_answers(tmp_path, cases, calls):
    """A tenant each, told apart by its token."""

    async def behave(connection: Connection) -> bool:
        answer, keep, _ = cases[int(connection.request.headers["authorization"].rpartition("-")[2])]
        await connection.answer(answer)
        return keep

    tenants = {str(i): {"rate": f"{calls * 5}/s"} for i in range(len(cases))}
    with serving(behave) as server:
        driven = drive(tmp_path, {"duration": "200ms", "drain": "10s", "tenants": tenants}, server.url)
    audit(driven, calls * len(cases), server.attempts())
    assert len(server.seen) == calls * len(cases)
    for i, (answer, _, outcome) in enumerate(cases):
        assert driven.outcomes(str(i)) == {outcome: calls}, answer[:200]


def test_a_body_that_drips_for_ever(tmp_path):
    async def drip(connection: Connection) -> None:
        await connection.answer(CHUNKED_HEAD)
        while True:
            await connection.answer(chunked(b"."))
            await asyncio.sleep(0.01)

    with serving(drip) as server:
        driven = drive(tmp_path, {**STEADY, "patience": "100ms"}, server.url)
    audit(driven, PLANNED, server.attempts())
    assert driven.outcomes() == {("abandoned", "patience"): PLANNED}


def test_head_has_no_body(tmp_path):
    with serving(always(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")) as server:
        driven = drive(tmp_path, recorded(tmp_path, ["HEAD"] * 10), server.url)
    audit(driven, 10, server.attempts())
    assert driven.outcomes() == {("served", None): 10}


def test_an_answer_before_the_request_is_finished(tmp_path):
    """The server answers and closes its side before it has read anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            for _ in range(5):
                accepted, _ = listening.accept()
                with accepted:
                    accepted.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    accepted.shutdown(socket.SHUT_WR)
                    while accepted.recv(65536):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        profile = recorded(tmp_path, ["GET"] * 5, "/" + "a" * 7000)
        driven = drive(tmp_path, profile, f"http://127.0.0.1:{listening.getsockname()[1]}")
        thread.join()
    audit(driven, 5)
    assert driven.outcomes() == {("failed", "status_413"): 5}


def test_connections_are_kept_per_tenant_and_never_shared(tmp_path):
    with serving(always(OK)) as server:
        driven = drive(tmp_path, STEADY, server.url)
    audit(driven, PLANNED, server.attempts())
    by_connection = {}
    for seen in server.seen:
        by_connection.setdefault(seen.number, set()).add(seen.headers["authorization"])
    assert all(len(tenants) == 1 for tenants in by_connection.values())
    assert server.accepted < PLANNED / 2, "connections are not reused"


def test_a_kept_connection_that_the_server_closed_is_not_used(tmp_path):
    async def close_soon(connection: Connection) -> bool:
        await connection.answer(OK)
        return False

    profile = {"duration": "400ms", "drain": "400ms", "tenants": {"A": {"rate": "50/s"}}}
    with serving(close_soon) as server:
        driven = drive(tmp_path, profile, server.url)
    audit(driven, 20, server.attempts())
    assert driven.outcomes() == {("served", None): 20}
    assert server.accepted == 20


def test_no_cookie_is_kept_and_nothing_is_followed(tmp_path):
    answer = b"HTTP/1.1 302 Found\r\nLocation: /other\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    with serving(always(answer)) as server:
        driven = drive(tmp_path, STEADY, server.url)
    audit(driven, PLANNED, server.attempts())
    assert {seen.path for seen in server.seen} == {"/service"}
    assert all("cookie" not in seen.headers for seen in server.seen)
