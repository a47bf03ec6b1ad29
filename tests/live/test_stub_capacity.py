"""The capacity layer of the stub over real HTTP: runs, retries, ambiguous writes, outages, pools, faults, evidence."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection

import orjson
import pytest

from harness.measure.retry_after import parse
from harness.target.stub import StubProcess
from harness.target.url import connect
from stub_service import exact_loop
from stub_service.outbound import Outbound
from tests.live.stub_client import PATIENCE_S, config, rows
from tests.unit.dependency_bench import MS, call, dependency, fault
from tests.unit.dependency_bench import config as capacity_config

pytestmark = [pytest.mark.live, pytest.mark.untimed]


def exchange(stub, method, path, document=None, tenant="A", **headers):
    """(status, headers, JSON body or text) of one request over a connection of its own."""
    connection = HTTPConnection("127.0.0.1", stub.port, timeout=PATIENCE_S)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if tenant is not None:
        named["Authorization"] = f"Bearer token-{tenant}"
    body = document if isinstance(document, bytes) else None if document is None else orjson.dumps(document)
    try:
        connection.request(method, path, body, named)
        response = connection.getresponse()
        raw = response.read()
    finally:
        connection.close()
    told = {name.lower(): value for name, value in response.getheaders()}
    return response.status, told, orjson.loads(raw) if told["content-type"] == "application/json" else raw.decode()


def read_of(name, dependency_name="billing", **step):
    return {"step": name, "dependency": dependency_name, **step}


def submit(stub, run, *steps, batch="b1", **more):
    return exchange(stub, "POST", f"/runs/{run}/steps", {"batch": batch, "steps": list(steps), **more})


def open_run(stub, **wish):
    status, _, body = exchange(stub, "POST", "/runs", wish)
    assert status == 201
    return body["run"]


def kept(folder, kind):
    return [orjson.loads(line) for line in (folder / f"{kind}.jsonl").read_bytes().splitlines()]


def test_a_run_with_a_retry(tmp_path):
    made = capacity_config(dependency(), faults=[fault("error", times=1, status=500)])
    with StubProcess(None, tmp_path, capacity=made) as stub:
        run = open_run(stub, traffic_class="interactive", task_class="ticket", release="r9")
        status, _, body = submit(stub, run, read_of("s1", tool="lookup"))
        assert (status, body["outcome"], body["steps"][0]["attempts"]) == (200, "served", 2)
        assert body["remaining"]["retry_tokens"] == 1
        assert exchange(stub, "POST", f"/runs/{run}/finish")[2]["run_outcome"] == "done"
        metrics = stub.metrics()
    arrivals = kept(tmp_path, "arrivals")
    assert [(a["status"], a["attempt"], a["owner"], a["layer"], a["tool"]) for a in arrivals] == [
        (500, 1, "controller", "controller", "lookup"),
        (200, 2, "controller", "controller", "lookup"),
    ]
    assert arrivals[1]["t_ns"] > arrivals[0]["ended_ns"]
    decisions = [row for row in rows(tmp_path) if row["part"] == "capacity"]
    assert [(d["kind"], d["outcome"]) for d in decisions] == [
        ("run", "opened"), ("batch", "admitted"), ("step", "admitted"), ("retry", "scheduled"), ("step", "admitted"),
        ("step", "served"), ("run", "done"),
    ]  # fmt: skip
    assert {d["release"] for d in decisions} == {"r9"}
    assert kept(tmp_path, "effects") == []
    for line in (
        'overload_stub_steps_total{class="interactive",dependency="billing",outcome="served"} 1',
        'overload_stub_retries_total{dependency="billing",outcome="scheduled"} 1',
        'overload_stub_runs_total{class="interactive",outcome="done"} 1',
        'overload_stub_arrivals_total{dependency="billing",operation="read",status="500"} 1',
        'overload_stub_circuit_state{dependency="billing"} 0',
        'overload_stub_dependency_in_use{dependency="billing"} 0',
        'overload_stub_controller_limit{dependency="billing",operation="read"} 5',
        'overload_stub_controller_in_use{dependency="billing",operation="write"} 0',
    ):
        assert line in metrics.splitlines()


FORMS = ["1", "1.5", "0", "-10", "nan", "20, 30", "1_000", "1696004817", "2026-01-01T00:00:00Z", "abc"]
DATES = ["{date+2}", "{rfc850+2}", "{asctime+2}", "{date-5}"]


def test_each_form_of_retry_after_is_passed_on(tmp_path):
    faults = [fault("retry_after", retry_after=raw, times=1) for raw in (*FORMS, *DATES)]
    with StubProcess(None, tmp_path, capacity=capacity_config(faults=faults), dependencies_only=True) as stub:
        answers = [exchange(stub, "GET", "/dependencies/billing/read", tenant=None) for _ in faults]
        assert exchange(stub, "GET", "/dependencies/billing/read", tenant=None)[0] == 200
    assert {status for status, _, _ in answers} == {429}
    assert [told["retry-after"] for _, told, _ in answers[: len(FORMS)]] == FORMS
    for raw, (_, told, _) in zip(DATES, answers[len(FORMS) :], strict=True):
        offset_s = int(raw[raw.index("+" if "+" in raw else "-") : -1])
        assert parse(told["retry-after"]).at_epoch_s == parsedate_to_datetime(told["date"]).timestamp() + offset_s
    assert [a["retry_after"] for a in kept(tmp_path, "arrivals") if "retry_after" in a][: len(FORMS)] == FORMS


def test_the_controller_waits_as_a_dependency_asks(tmp_path):
    made = capacity_config(faults=[fault("retry_after", retry_after="0.3", times=1)])
    with StubProcess(None, tmp_path, capacity=made) as stub:
        run = open_run(stub)
        assert submit(stub, run, read_of("s1"))[2]["steps"][0]["attempts"] == 2
        # A date is told by the answer's own Date, which comes through HTTP.
        stub_faults = [{"dependency": "billing", "kind": "retry_after", "retry_after": "{date+1}", "times": 1}]
        assert exchange(stub, "POST", "/faults", {"faults": stub_faults})[0] == 200
        assert submit(stub, run, read_of("s2"), batch="b2")[2]["steps"][0]["attempts"] == 2
    first, second, third, fourth = kept(tmp_path, "arrivals")
    assert second["t_ns"] - first["ended_ns"] >= 300 * MS
    assert fourth["t_ns"] - third["ended_ns"] >= 1000 * MS
    assert third["date"].endswith(" GMT")


def test_commit_then_timeout_commits_exactly_once_and_the_read_back_tells(tmp_path):
    made = capacity_config(dependency(timeout_ms=150), faults=[fault("commit_then_timeout", times=1)])
    with StubProcess(None, tmp_path, capacity=made) as stub:
        run = open_run(stub)
        pay = read_of("pay", operation="write", tool="charge", idempotency_key="k1", high_risk=True)
        status, _, body = submit(stub, run, pay)
        assert (status, body["outcome"], body["user_status"]) == (200, "served", "done")
        assert body["remaining"]["retry_tokens"] == 2
        looked = exchange(stub, "POST", "/dependencies/billing/readback", tenant=None, Overload_Run=run,
                          Overload_Step="pay")  # fmt: skip
        assert looked[2] == {"committed": True}
    assert [effect["logical"] for effect in kept(tmp_path, "effects")] == [f"{run}/pay"]
    arrivals = kept(tmp_path, "arrivals")
    assert [(a["operation"], a["status"]) for a in arrivals] == [("write", 0), ("readback", 200), ("readback", 200)]
    assert arrivals[0]["fault"] == "commit_then_timeout"
    # The one is seen to end before the other begins: a slot is never held twice.
    assert arrivals[0]["t_ns"] < arrivals[0]["ended_ns"] <= arrivals[1]["t_ns"]


def test_an_outage_from_and_to_by_the_trials_clock(tmp_path):
    made = capacity_config(faults=[fault("outage", from_ns=100 * MS, to_ns=300 * MS)])
    with StubProcess(None, tmp_path, capacity=made, dependencies_only=True) as stub:
        stub.set_epoch(time.monotonic_ns())
        while stub.health()["now_ns"] < 350 * MS:
            exchange(stub, "POST", "/dependencies/billing/write", tenant=None)
    arrivals = kept(tmp_path, "arrivals")
    assert {a["status"] for a in arrivals} == {200, 503}
    assert all((a["status"] == 503) == (100 * MS <= a["t_ns"] < 300 * MS) for a in arrivals)
    assert len(kept(tmp_path, "effects")) == sum(a["status"] == 200 for a in arrivals)


def test_a_dependencys_pool_and_the_controllers_bulkhead_limit_what_runs(tmp_path):
    made = capacity_config(
        dependency("billing", workers=2, service_ms=30, limit=50), dependency("customer", workers=9, limit=3),
        ceiling=50,
    )  # fmt: skip
    with StubProcess(None, tmp_path, capacity=made) as stub, ThreadPoolExecutor(8) as threads:
        runs = [open_run(stub, parallel=9) for _ in range(2)]
        for name, run in zip(("billing", "customer"), runs, strict=True):
            steps = [read_of(f"s{n}", name) for n in range(4)]
            batches = [threads.submit(submit, stub, run, *steps, batch=f"b{n}") for n in range(2)]
            assert {batch.result()[2]["outcome"] for batch in batches} == {"served"}
    arrivals = kept(tmp_path, "arrivals")

    def most(name, begin):
        mine = [a for a in arrivals if a["dependency"] == name]
        return max(sum(b[begin] <= a[begin] < b["ended_ns"] for b in mine) for a in mine)

    assert (most("billing", "started_ns"), most("customer", "t_ns")) == (2, 3)


def test_a_caller_that_hangs_up_does_not_end_its_batch(tmp_path):
    with StubProcess(None, tmp_path, capacity=capacity_config(dependency(service_ms=200))) as stub:
        run = open_run(stub)
        body = orjson.dumps({"batch": "b1", "steps": [read_of("s1")]})
        connection = HTTPConnection("127.0.0.1", stub.port, timeout=PATIENCE_S)
        connection.request("POST", f"/runs/{run}/steps", body, {"Authorization": "Bearer token-A"})
        until(lambda: exchange(stub, "GET", f"/runs/{run}")[2]["in_flight"] == 1)
        connection.close()
        until(lambda: exchange(stub, "GET", f"/runs/{run}")[2]["in_flight"] == 0)
        assert exchange(stub, "GET", f"/runs/{run}")[2]["steps"][0]["outcome"] == "served"


def test_who_does_not_wait_polls(tmp_path):
    with StubProcess(None, tmp_path, capacity=capacity_config(dependency(service_ms=50))) as stub:
        run = open_run(stub)
        status, told, body = submit(stub, run, read_of("s1"), wait=False)
        assert (status, told["location"], body["outcome"]) == (202, f"/runs/{run}", "queued")
        until(lambda: exchange(stub, "GET", body["poll"])[2]["steps"][0]["outcome"] == "served")


def until(holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came to be"


def test_a_new_epoch_begins_with_a_new_controller_and_the_same_faults(tmp_path):
    made = capacity_config(faults=[fault("error", times=1, status=500)])
    with StubProcess(None, tmp_path, capacity=made) as stub:
        for _ in range(2):
            run = open_run(stub)
            assert run == "r1"
            assert submit(stub, run, read_of("s1"))[2]["steps"][0]["attempts"] == 2
            stub.set_epoch(time.monotonic_ns())
            assert "overload_stub_steps_total{" not in stub.metrics()


def test_stopping_with_runs_open_is_quick_and_leaves_every_arrival_written(tmp_path):
    with StubProcess(
        None, tmp_path, capacity=capacity_config(dependency(service_ms=60_000, timeout_ms=90_000))
    ) as stub:
        run = open_run(stub)
        submit(stub, run, read_of("s1"), wait=False)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(submit, stub, run, read_of("s2"), batch="b2")
            until(lambda: stub.health()["dependencies"]["billing"]["in_use"] == 2)
            began = time.monotonic()
            stub.stop()
            assert time.monotonic() - began < PATIENCE_S
            status, _, body = waiting.result()
        assert (status, body["outcome"], body["reason"]) == (503, "failed", "stub_stopped")
    assert sorted((a["step"], a["status"]) for a in kept(tmp_path, "arrivals")) == [("s1", 0), ("s2", 0)]
    terminal = [d["step"] for d in kept(tmp_path, "decisions") if d["kind"] == "step" and d["outcome"] != "admitted"]
    assert sorted(terminal) == ["s1", "s2"]


def test_evidence_of_all_kinds_is_collected_since_the_epoch(tmp_path):
    own, collected = tmp_path / "stub", tmp_path / "trial"
    collected.mkdir()
    with StubProcess(config(service_ms=1), own, capacity=capacity_config()) as stub, connect(stub.url) as remote:
        write = read_of("s1", operation="write")
        submit(stub, open_run(stub), write)
        remote.set_epoch(time.monotonic_ns())
        submit(stub, open_run(stub), write)
        assert exchange(stub, "GET", "/service")[0] == 200
        remote.collect(collected)
    for kind, rows_each in (("arrivals", 1), ("effects", 1)):
        assert (len(kept(own, kind)), len(kept(collected, kind))) == (2 * rows_each, rows_each)
    parts = [row.get("part") for row in kept(collected, "decisions")]
    assert parts == [*["capacity"] * 4, None, None, None]


WRONG_FAULTS = {
    b"": "the body is not JSON: Input is a zero-length, empty document (line 1)",
    b"[]": 'expected {"faults": [...]} with at most 1000 faults; an empty list ends them all',
    b'{"faults": [1]}': 'faults[0]: must be an object, such as {"dependency": "billing", "kind": "outage"}',
    b'{"faults": [{"kind": "slow"}]}': "faults[0]: dependency is missing",
    b'{"faults": [{"dependency": "x", "kind": "slow"}]}': "faults[0]: dependency 'x' is not known (known: billing)",
    b'{"faults": [{"dependency": "billing", "kind": "slow", "times": "1"}]}': "faults[0]: times must be a number",
    b'{"faults": [{"dependency": "billing", "kind": "slow", "times": true}]}': "faults[0]: times must be a number",
    b'{"faults": [{"dependency": "billing", "kind": "slow", "until": 1}]}': "faults[0]: until is not known (known: "
    "dependency, kind, operation, retry_after, from_ns, to_ns, times, status, factor)",
}


def test_faults_by_api_and_malformed_calls(tmp_path):
    with StubProcess(None, tmp_path, capacity=capacity_config()) as stub:
        for body, message in WRONG_FAULTS.items():
            status, _, told = exchange(stub, "POST", "/faults", body)
            assert (status, told) == (400, {"error": "bad_faults", "message": message})
        outage = {"dependency": "billing", "kind": "outage"}
        assert exchange(stub, "POST", "/faults", {"faults": [outage]})[2]["happened"] == [0]
        assert exchange(stub, "POST", "/dependencies/billing/read", tenant=None)[0] == 503
        assert exchange(stub, "GET", "/faults")[2]["happened"] == [1]
        assert exchange(stub, "POST", "/faults", {"faults": []})[2] == {"faults": [], "happened": []}
        for path, method, status in (
            ("/dependencies/nope/read", "POST", 404), ("/dependencies/billing/nope", "POST", 404),
            ("/dependencies/billing", "POST", 404), ("/dependencies/billing/write", "GET", 405),
            ("/dependencies/billing/%FF", "GET", 404), ("/service", "GET", 404), ("/runs/r1", "GET", 404),
        ):  # fmt: skip
            assert exchange(stub, method, path)[0] == status, path
        assert exchange(stub, "POST", "/dependencies/billing/read", Overload_Round="-1")[0] == 400
        assert exchange(stub, "POST", "/runs", {}, tenant=None)[0] == 401
        assert exchange(stub, "POST", "/runs", b"x" * (1 << 21))[0] == 413
        assert exchange(stub, "POST", "/runs", b"\xff\xfe")[2]["error"] == "bad_request"
        assert exchange(stub, "GET", "/dependencies/billing/read", tenant=None)[0] == 200


def test_dependencies_alone_have_no_controller(tmp_path):
    with StubProcess(None, tmp_path, capacity=capacity_config(), dependencies_only=True) as stub:
        assert stub.health()["controller"] is False
        assert exchange(stub, "POST", "/runs", {})[2] == {
            "error": "no_controller",
            "message": "this stub serves dependencies only, for a controller of your own",
        }


def test_one_attempt_is_one_physical_request():
    """A server that counts, answers once, and then reads each request and drops the connection."""
    seen = []

    async def serve(reader, writer):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            seen.append(head.split(b" ")[0])
            if len(seen) > 1:
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async def scenario():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        outbound = Outbound(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        statuses = [
            (await outbound.call(call(operation))).status for operation in ("read", "read", "readback", "write")
        ]
        await outbound.close()
        server.close()
        return statuses

    assert asyncio.run(scenario()) == [200, 0, 0, 0]
    assert seen == [b"POST"] * 4


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000,
        b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ],
)
def test_whatever_a_dependency_answers_is_an_answer(answer):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def scenario():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        outbound = Outbound(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        told = await outbound.call(call())
        await outbound.close()
        server.close()
        return told

    told = asyncio.run(scenario())
    assert told.status in (0, 200, 302)
    assert told.body == {}


def test_timers_of_the_loop_are_never_early_and_can_be_cancelled():
    early = []

    async def scenario():
        loop = asyncio.get_running_loop()
        for step in range(20):
            began_ns = time.monotonic_ns()
            await asyncio.sleep(0.0003 * step)
            early.append(time.monotonic_ns() - began_ns < 300_000 * step)
        at = loop.time() + 0.0007
        fired = loop.create_future()
        loop.call_at(at, fired.set_result, None)
        cancelled = loop.call_later(0.0001, pytest.fail)
        cancelled.cancel()
        cancelled.cancel()
        await fired
        early.append(loop.time() < at)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0005):
                await asyncio.sleep(60)
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        return 7

    assert exact_loop.run(scenario()) == 7
    assert early == [False] * 21


def test_a_call_is_given_up_at_its_own_timeout(tmp_path):
    made = capacity_config(faults=[fault("hang")])
    with StubProcess(None, tmp_path, capacity=made, dependencies_only=True) as stub:

        async def scenario():
            outbound = Outbound(stub.url)
            began_ns = time.monotonic_ns()
            told = await outbound.call(call(timeout_ms=60))
            took_ns = time.monotonic_ns() - began_ns
            await outbound.close()
            return told, took_ns

        told, took_ns = asyncio.run(scenario())
        until(lambda: stub.health()["dependencies"]["billing"]["in_use"] == 0)
    assert told.status == 0
    assert took_ns >= 60 * MS
    (arrival,) = kept(tmp_path, "arrivals")
    assert (arrival["status"], arrival["fault"]) == (0, "hang")
