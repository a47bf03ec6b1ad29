"""The shared service over real HTTP: who is charged, what callers are told, and what the evidence says of it."""

from __future__ import annotations

import contextlib
import itertools
import re
import time

import pytest

from harness.target.stub import StubProcess
from tests.live.stub_client import MS, Caller, audit, config, rows, wait_for

pytestmark = [pytest.mark.live, pytest.mark.untimed]


def test_tenant_comes_from_the_token_and_headers_are_ignored(tmp_path):
    with StubProcess(config(), tmp_path) as stub, Caller(stub) as caller:
        answer = caller.ask("A", X_Tenant="B", Overload_Tenant="B", Overload_Call="0.0")
        assert (answer.status, answer.json) == (200, {"outcome": "served", "reason": None, "tenant": "A"})
        for path in ("/service/", "/service/v1/chat?x=%2F", "/service?a=b"):
            assert caller.ask("A", path, "POST", Content_Length=0).status == 200
    assert {row["tenant"] for row in rows(tmp_path)} == {"A"}


def test_unknown_tokens_are_401_and_never_reach_admission(tmp_path):
    with StubProcess(config(), tmp_path, tokens={"A": "s3cret"}) as stub, Caller(stub) as caller:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic dG9rZW4tQTo="},
            {"Authorization": "Bearer token-A"},  # A has a token of its own, so this guess is not A
            {"Authorization": "Bearer token-"},
            {"Authorization": "Bearer token-" + "x" * 300},
        ):
            answer = caller.ask(None, **headers)
            assert (answer.status, answer.json) == (401, {"error": "unknown_token"})
        assert caller.ask(None, Authorization="bearer s3cret").json["tenant"] == "A"
        assert caller.ask("B").json["tenant"] == "B"
        assert "overload_stub_unauthenticated_total 6" in stub.metrics()
    assert "s3cret" not in (tmp_path / "decisions.jsonl").read_text()


@pytest.mark.parametrize(("policy", "reason"), [("shared_fifo", "queue_full"), ("fair_queues", "tenant_queue_full")])
def test_a_full_queue_is_429_with_retry_after_and_a_typed_body(tmp_path, policy, reason):
    with StubProcess(config(policy, service_ms=20_000), tmp_path) as stub, contextlib.ExitStack() as stack:
        callers = [stack.enter_context(Caller(stub)) for _ in range(3)]
        for place, caller in enumerate(callers):
            caller.send("A", Overload_Call=f"0.{place}", Overload_Attempt=f"0.{place}.1", Overload_Round=place)
            if place < 2:
                wait_for(stub, lambda health, n=place + 1: health["running"] + health["waiting"] == n)
        refused = callers[2].answer()
        assert refused.status == 429
        assert refused.headers["retry-after"] == "20"
        assert refused.json == {"outcome": "throttled", "reason": reason, "tenant": "A", "retry_after_s": 20}
        assert refused.timing_ms == (0, 0)
        stub.stop()
    assert audit(tmp_path) == {"0.0": "failed", "0.1": "failed", "0.2": "throttled"}  # two were open when it stopped
    (row,) = [row for row in rows(tmp_path) if row["outcome"] == "throttled"]
    del row["t_ns"]
    assert row == {
        "call": "0.2", "attempt_id": "0.2.1", "tenant": "A", "round": 2, "outcome": "throttled", "reason": reason,
        "status": 429, "waiting": 1, "running": 1, "workers": 1,
    }  # fmt: skip


def test_server_timing_is_what_happened(tmp_path):
    with StubProcess(config(queue=9, service_ms=60), tmp_path) as stub, Caller(stub) as first, Caller(stub) as second:
        stub.set_epoch(time.monotonic_ns())
        began = time.monotonic_ns()
        first.send("A", Overload_Call="0.0")
        wait_for(stub, lambda health: health["running"] == 1)
        second.send("B", Overload_Call="1.0")
        told = [first.answer().timing_ms, second.answer().timing_ms]
        ended = time.monotonic_ns()
    served = {row["call"]: row for row in rows(tmp_path) if row["outcome"] == "served"}
    started = {row["call"]: row for row in rows(tmp_path) if row["outcome"] == "started"}
    for (queue_ms, service_ms), call in zip(told, ("0.0", "1.0"), strict=True):
        row = served[call]
        assert row["service_ns"] == row["t_ns"] - started[call]["t_ns"]
        assert (queue_ms, service_ms) == (round(row["queue_wait_ns"] / MS, 3), round(row["service_ns"] / MS, 3))
        assert service_ms >= 0.85 * 60  # a worker freed late is made up for by at most a tenth
    (queue_a, service_a), (queue_b, service_b) = told
    assert queue_a == 0 < queue_b <= service_a
    assert queue_b + service_b + queue_a <= (ended - began) / MS
    assert service_a + service_b <= (ended - began) / MS


def test_queue_deadline_expires_a_waiting_call_at_its_time(tmp_path):
    with StubProcess(config(service_ms=20_000), tmp_path) as stub, Caller(stub) as first, Caller(stub) as second:
        first.send("A", Overload_Call="0.0", Overload_Queue_Deadline_Ms=1)  # starts at once: its deadline is void
        wait_for(stub, lambda health: health["running"] == 1)
        second.send("B", Overload_Call="1.0", Overload_Queue_Deadline_Ms="200.5")
        answer = second.answer()
        assert (answer.status, answer.json["outcome"], answer.json["reason"]) == (504, "expired", "queue_deadline")
        queue_ms, service_ms = answer.timing_ms
        assert 200.5 <= queue_ms < 2 * 200.5
        assert service_ms == 0
        assert stub.health()["waiting"] == 0
    assert audit(tmp_path) == {"0.0": "failed", "1.0": "expired"}  # 0.0 still ran when the stub was stopped


def test_a_call_that_starts_in_time_is_not_expired(tmp_path):
    with StubProcess(config(service_ms=50, queue=3), tmp_path) as stub, Caller(stub) as first, Caller(stub) as second:
        first.send("A", Overload_Call="0.0")
        second.send("A", Overload_Call="0.1", Overload_Queue_Deadline_Ms=10_000)
        assert [first.answer().status, second.answer().status] == [200, 200]


def test_a_caller_that_hangs_up_leaves_the_queue_at_once(tmp_path):
    with StubProcess(config(queue=5, service_ms=20_000), tmp_path) as stub, Caller(stub) as running:
        running.send("A", Overload_Call="0.0")
        wait_for(stub, lambda health: health["running"] == 1)
        waiting = [Caller(stub).send("B", Overload_Call=f"1.{place}") for place in range(3)]
        assert wait_for(stub, lambda health: health["waiting"] == 3)["tenants_waiting"] == 1
        for caller in waiting:
            caller.hang_up()
        left = wait_for(stub, lambda health: health["waiting"] == 0)
        assert (left["running"], left["tenants_waiting"]) == (1, 0)
    assert audit(tmp_path) == {"0.0": "failed", "1.0": "cancelled", "1.1": "cancelled", "1.2": "cancelled"}
    cancelled = [row for row in rows(tmp_path) if row["outcome"] == "cancelled"]
    assert [row["waiting"] for row in cancelled] == [2, 1, 0]
    assert all(row["reason"] == "caller_gone" and row["queue_wait_ns"] > 0 for row in cancelled)


def test_a_running_call_keeps_its_worker_though_its_caller_is_gone(tmp_path):
    with StubProcess(config(queue=5, service_ms=300), tmp_path) as stub, Caller(stub) as second:
        first = Caller(stub).send("A", Overload_Call="0.0")
        wait_for(stub, lambda health: health["running"] == 1)
        first.hang_up()
        queue_ms, _ = second.ask("B", Overload_Call="1.0").timing_ms
    assert audit(tmp_path) == {"0.0": "served", "1.0": "served"}
    last = {row["call"]: row for row in rows(tmp_path)}
    assert last["0.0"]["reason"] == "caller_gone"
    assert "status" not in last["0.0"]
    assert last["0.0"]["service_ns"] >= 0.85 * 300 * MS
    started = next(row for row in rows(tmp_path) if row["call"] == "1.0" and row["outcome"] == "started")
    assert started["t_ns"] >= last["0.0"]["t_ns"]
    assert queue_ms > 0


def test_workers_come_and_go_at_instants_of_the_epoch(tmp_path):
    stub_config = config(service_ms=40, queue=500, changes=((150, 3), (400, 1)))
    with StubProcess(stub_config, tmp_path) as stub, contextlib.ExitStack() as stack:
        stub.set_epoch(time.monotonic_ns())
        callers = [stack.enter_context(Caller(stub)).send("A", Overload_Call=f"0.{n}") for n in range(40)]
        assert {caller.answer().status for caller in callers} == {200}
        assert stub.health()["workers"] == 1
    started = [row for row in rows(tmp_path) if row["outcome"] == "started"]
    assert [workers for workers, _ in itertools.groupby(row["workers"] for row in started)] == [1, 3, 1]
    groups = [list(group) for _, group in itertools.groupby(started, key=lambda row: row["workers"])]
    before, during, after = groups
    assert during[0]["t_ns"] >= 150 * MS
    assert after[0]["t_ns"] >= 400 * MS
    assert during[0]["t_ns"] == during[1]["t_ns"]  # both new workers take a call in the step that brought them
    assert max(row["running"] for row in during) == 3
    assert len(during) > len(before)  # 250 ms of three workers against 150 ms of one


def test_epoch_moves_the_clock_and_restarts_the_figures(tmp_path):
    with StubProcess(config(), tmp_path) as stub, Caller(stub) as caller:
        assert caller.ask("A", Overload_Call="0.0").status == 200
        wait_for(stub, lambda health: health["loop_lag"]["samples"] > 5)
        assert 'offered_total{source="service",tenant="A"} 1' in stub.metrics()
        ahead = time.monotonic_ns() + 60_000 * MS
        stub.set_epoch(ahead)
        assert 'offered_total{source="service",tenant="A"}' not in stub.metrics()
        health = stub.health()
        assert -60_000 * MS < health["now_ns"] < 0
        assert health["loop_lag"]["samples"] < 1000
        stub.set_epoch(time.monotonic_ns())
        assert 0 <= stub.health()["now_ns"] < 30_000 * MS
        for body in (b"", b"[]", b"{", b'{"monotonic_ns": "1"}', b'{"monotonic_ns": -1}', b'{"monotonic_ns": true}',
                     b'{"monotonic_ns": 9223372036854775807}', b'{"monotonic_ns": 1.5}'):  # fmt: skip
            caller.send(None, "/epoch", "POST", Content_Length=len(body))
            caller.socket.sendall(body)
            answer = caller.answer()
            assert (answer.status, answer.json["error"]) == (400, "bad_epoch")


def test_evidence_is_read_by_cursor_in_whole_lines(tmp_path):
    with StubProcess(config(service_ms=1, queue=50), tmp_path) as stub, Caller(stub) as caller:
        cursor, read = 0, b""
        for place in range(3):
            assert caller.ask("A", Overload_Call=f"0.{place}").status == 200
            answer = caller.ask(None, f"/evidence?cursor={cursor}&kind=decisions")
            assert answer.body.endswith(b"\n")
            cursor, read = int(answer.headers["overload-cursor"]), read + answer.body
        assert caller.ask(None, f"/evidence?cursor={cursor}").body == b""
        assert int(caller.ask(None, "/evidence?cursor=end").headers["overload-cursor"]) == cursor == len(read)
        for bad in ("-1", "x", str(cursor + 1), "9" * 40, "%F0"):
            assert caller.ask(None, f"/evidence?cursor={bad}").status == 400
        assert caller.ask(None, "/evidence?kind=effects").status == 404
    assert (tmp_path / "decisions.jsonl").read_bytes() == read
    assert audit(tmp_path) == dict.fromkeys(("0.0", "0.1", "0.2"), "served")


SAMPLE = re.compile(r'(overload_[a-z_]+)(\{([a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (-?[0-9.]+|\+Inf)')


def test_metrics_parse_and_add_up_with_hostile_tenants(tmp_path):
    hostile = 'q"uo\\te{},é'
    with StubProcess(config(service_ms=30, queue=1), tmp_path) as stub, contextlib.ExitStack() as stack:
        callers = [stack.enter_context(Caller(stub)).send(hostile) for _ in range(6)]
        statuses = [caller.answer().status for caller in callers]
        text = stub.metrics()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in lines), lines
    label = 'source="service",tenant="q\\"uo\\\\te{},é"'
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def value(name, extra=""):
        return values[f"overload_{name}{{{label}{extra}}}"]

    assert value("offered_total") == 6
    assert value("served_total") == statuses.count(200)
    assert value("refused_total") == statuses.count(429) > 0
    assert values['overload_stub_refusals_total{reason="queue_full"}'] == statuses.count(429)
    assert value("queue_wait_seconds_count") == value("queue_wait_seconds_bucket", ',le="+Inf"') == statuses.count(200)
    assert value("waiting") == value("running") == 0
    assert 'overload_stub_loop_lag_seconds{quantile="0.99"}' in values


def test_everything_queued_is_accounted_for_under_mixed_load(tmp_path):
    """Served, refused, expired, hung up and cut off by the stub's end: one terminal row each."""
    with StubProcess(config("fair_queues", workers=2, queue=4, service_ms=25), tmp_path) as stub:
        kept = []
        for place in range(60):
            deadline = {"Overload_Queue_Deadline_Ms": 20} if place % 3 == 0 else {}
            caller = Caller(stub).send("ABC"[place % 3], Overload_Call=f"{place % 3}.{place}", **deadline)
            if place % 5 == 0:
                caller.hang_up()
            else:
                kept.append(caller)
        statuses = [caller.answer().status for caller in kept]
        assert set(statuses) <= {200, 429, 504}
        slow = [Caller(stub).send("D", Overload_Call=f"3.{n}") for n in range(4)]
        wait_for(stub, lambda health: health["running"] + health["waiting"] >= 1)
        for caller in kept:
            caller.hang_up()
    for caller in slow:
        caller.hang_up()
    outcomes = audit(tmp_path)
    answered = sum(outcome in ("served", "throttled", "expired") for outcome in outcomes.values())
    assert answered >= len(statuses)
    assert len(outcomes) <= 64
