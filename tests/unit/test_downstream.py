"""Every downstream call of a workflow: out of a trial's arrivals, a HAR, OTLP and Jaeger traces; ids collapsed."""

import json
import shlex
from functools import partial

import pytest

from harness.cli.calls import command as calls
from harness.recorded.downstream import MOST_ROWS, OTHER_PATHS, Seen, as_json, listing, template
from tests.unit.test_recorded_har import document, entry

MS, S = 1_000_000, 1_000_000_000


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v1/customers/1234/bills", "/v1/customers/{id}/bills"),
        ("/v1/customers/7f3c2a10-1b2c-4d5e-8f90-0123456789ab", "/v1/customers/{id}"),
        ("/objects/deadbeef01", "/objects/{id}"),
        ("/runs/run_01HZX3/steps", "/runs/{id}/steps"),
        ("/users/ann@example.com", "/users/{id}"),
        ("/t/eyJhbGciOiJIUzI1NiJ9_payload-1", "/t/{id}"),
        ("/decade/facade/v2/index.html", "/decade/facade/v2/index.html"),
        ("/a?b=1", "/a"),
        ("/", "/"),
        ("", ""),
        ("/a" * 40, "/a" * 12 + "/…"),
    ],
)
def test_ids_in_paths_are_collapsed(path, shown):
    assert template(path) == shown


def seen(at, workflow="w", same="x", failed=False, attempt=0, path="/a", took=10 * MS):
    return Seen(at, "billing", "GET", path, workflow, same, took, failed, attempt)


def only(*calls):
    return next(iter(listing(calls).rows.values()))


def test_a_retry_is_inferred_from_the_same_call_after_a_failure():
    assert only(seen(0, failed=True), seen(S)).retries == 1
    assert only(seen(0), seen(S)).retries == 0  # it did not fail: asked twice
    assert only(seen(0, failed=True), seen(S, same="y")).retries == 0
    assert only(seen(0, failed=True), seen(S, workflow="v")).retries == 0
    assert only(seen(0, failed=True), seen(61 * S + 11 * MS)).retries == 0  # too late
    assert only(seen(0, failed=True), seen(5 * MS)).retries == 0  # began before it failed


def test_a_retry_that_is_told_is_believed():
    assert only(seen(0, failed=True, attempt=1), seen(S, attempt=1)).retries == 0
    assert only(seen(0, attempt=1), seen(S, attempt=2)).retries == 1


def test_fan_out_is_of_each_workflow():
    found = listing([seen(i, "a") for i in range(5)] + [seen(9, "b")])
    row = found.ranked()[0]
    assert (row.calls, row.mean, row.most) == (6, 3.0, 5)
    assert as_json(found)["calls_per_workflow"] == {"mean": 3.0, "max": 5}


def test_rows_are_bounded_and_nothing_is_lost():
    words = ("".join(chr(97 + int(digit)) for digit in str(i)) for i in range(3 * MOST_ROWS))
    found = listing(seen(i, path=f"/{word}") for i, word in enumerate(words))
    assert len(found.rows) <= MOST_ROWS + 1
    assert sum(row.calls for row in found.rows.values()) == found.calls == 3 * MOST_ROWS
    assert found.pooled == next(row for row in found.rows.values() if row.path == OTHER_PATHS).calls


def otlp(spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def span(at_ms, attributes, trace="t1", kind=3, took_ms=10, **more):
    made = [{"key": key, "value": {"intValue" if isinstance(value, int) else "stringValue": value}}
            for key, value in attributes.items()]  # fmt: skip
    return {
        "traceId": trace, "spanId": str(at_ms), "parentSpanId": "p", "name": "call", "kind": kind,
        "startTimeUnixNano": str(at_ms * MS), "endTimeUnixNano": str((at_ms + took_ms) * MS), "attributes": made,
        **more,
    }  # fmt: skip


NEW = {"server.address": "billing", "server.port": 8080, "http.request.method": "GET",
       "url.full": "http://billing:8080/bills/12?token=x", "http.response.status_code": 200}  # fmt: skip
OLD = {"http.method": "GET", "http.url": "https://mail/send", "http.status_code": 503}


@pytest.fixture
def run(overload, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    return partial(overload, "calls")


def rows(run, text, *options, name="x.json"):
    from pathlib import Path

    Path(name).write_text(text)
    code, out, err = run(name, "--json", *options)
    assert (code, err) == (0, "")
    said = json.loads(out)
    return said, {(row["dependency"], row["method"], row["path"]): row for row in said["downstream"]}


def test_an_otlp_trace_new_names_and_old(run):
    spans = [
        span(0, NEW), span(20, NEW), span(40, OLD), span(60, OLD), span(5, NEW, kind=2), span(7, {}, kind=1),
        span(80, NEW, trace="t2"),
        span(90, {"db.system": "postgresql", "db.operation": "SELECT", "db.sql.table": "bill"}),
        span(95, {**NEW, "http.request.resend_count": 1}, trace="t2", status={"code": 2}),
    ]  # fmt: skip
    said, found = rows(run, json.dumps(otlp(spans)))
    assert (said["format"], said["calls"], said["workflows"]) == ("otlp", 7, 2)
    bills = found["billing:8080", "GET", "/bills/{id}"]
    assert (bills["calls"], bills["errors"], bills["retries"]) == (4, 1, 1)
    assert bills["per_workflow"] == {"mean": 2.0, "max": 2}
    assert bills["p50_ns"] == pytest.approx(10 * MS, rel=0.05)
    mail = found["mail", "GET", "/send"]
    assert (mail["calls"], mail["errors"], mail["retries"]) == (2, 2, 1)
    assert ("postgresql", "SELECT", "bill") in found


def test_otlp_lines_as_the_collector_writes_them(run):
    text = "\n".join(json.dumps(otlp([span(i, NEW)])) for i in range(3)) + "\n"
    assert rows(run, text)[0]["calls"] == 3
    long = "\n".join(json.dumps(otlp([span(i, NEW)] * 40)) for i in range(3))
    assert rows(run, long)[0]["calls"] == 120


def test_a_jaeger_export(run):
    tags = [{"key": "span.kind", "value": "client"}, {"key": "http.method", "value": "POST"},
            {"key": "http.url", "value": "http://notify/send/7"}, {"key": "error", "value": True}]  # fmt: skip
    one = {"traceID": "t", "spanID": "1", "operationName": "send", "startTime": 1_000, "duration": 5_000, "tags": tags,
           "references": [{"refType": "CHILD_OF", "traceID": "t", "spanID": "0"}]}  # fmt: skip
    server = {**one, "tags": [{"key": "span.kind", "value": "server"}]}
    said, found = rows(
        run, json.dumps({"data": [{"traceID": "t", "spans": [one, {**one, "startTime": 9_000}, server]}]})
    )
    row = found["notify", "POST", "/send/{id}"]
    assert (said["format"], row["calls"], row["errors"], row["retries"]) == ("jaeger", 2, 2, 1)


def test_a_har(run):
    made = document(
        entry(url="https://api.test/bills/1?token=x", pageref="p1"),
        entry(url="https://api.test/bills/2", status=500, pageref="p1", at="2024-05-01T10:00:01Z"),
        entry(url="https://api.test/bills/2", pageref="p1", at="2024-05-01T10:00:02Z"),
        entry(url="data:x"),
    )
    said, found = rows(run, made, name="x.har")
    row = found["api.test", "GET", "/bills/{id}"]
    assert (said["format"], said["workflows"], row["calls"], row["errors"], row["retries"]) == ("har", 1, 3, 1, 1)


def arrival(at, run="r1", attempt=1, status=200):
    return {"t_ns": at, "started_ns": at, "ended_ns": at + MS, "dependency": "billing", "operation": "read",
            "status": status, "run": run, "step": "s1", "tool": "bill", "attempt": attempt}  # fmt: skip


def test_a_trials_folder(run, tmp_path):
    lines = [arrival(0, status=503), arrival(2 * MS, attempt=2), arrival(3 * MS, run="r2")]
    (tmp_path / "arrivals.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, _ = run(tmp_path)
    assert code == 0
    assert out.splitlines()[0] == (
        "3 calls to 1 dependencies, read as arrivals; 2 workflows make 1.5 on average, at most 2"
    )
    assert "1 (33.3 %)" in out


def test_what_a_real_client_asked_of_the_stand_in(run, tmp_path):
    common = {"identity": "c1", "method": "POST", "path": "/v1/chat/completions?x=1", "body": "h"}
    lines = [
        {"arrival": "0", "t_ns": 0, "done_ns": MS, "answer": "refused", "status": 429, **common},
        {"arrival": "1", "t_ns": 5 * MS, "done_ns": 6 * MS, "answer": "served", "status": 200, **common},
        {"arrival": "2", "t_ns": 9 * MS, "answer": "hang", "status": 0, **common, "body": "other"},
    ]
    said, found = rows(run, "".join(json.dumps(line) + "\n" for line in lines), name="arrivals.jsonl")
    row = found["(stand-in)", "POST", "/v1/chat/completions"]
    assert (said["format"], row["calls"], row["errors"], row["retries"], row["workflows"]) == ("stand_in", 3, 2, 1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds nothing"),
        ("{", "not JSON"),
        ("[1, 2]", "neither a trace"),
        ('{"a": 1}', "neither a trace"),
        (
            '{"resourceSpans": [{"scopeSpans": [{"spans": [{"kind": 3, "startTimeUnixNano": "x"}]}]}]}',
            "not otlp as it should",
        ),
        ('{"resourceSpans": 5}', "not otlp as it should"),
        ('{"data": [{"spans": [5]}]}', "not jaeger as it should"),
        ('{"resourceSpans": []}', "no call to a dependency in it"),
        ('{"dependency": "x", "t_ns": 1}', "not arrivals as it should"),
        (document(entry(at="x")), "entry 1: its startedDateTime is no time"),
        (document({"a": 1}), "entry 1: has no request"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(run, tmp_path, text, message):
    (tmp_path / "x.json").write_text(text)
    code, _, err = run("x.json")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_folder_without_arrivals_says_what_to_give(run, tmp_path):
    code, _, err = run(tmp_path)
    assert code == 2
    assert "no arrivals.jsonl in it" in err


def test_hostile_names_stay_on_their_line(run):
    made = json.dumps(
        otlp([span(0, {"peer.service": "a\n\x1b[31mb", "http.method": "G\tT", "http.url": "http://h/\x00\u202e"})])
    )
    from pathlib import Path

    Path("x.json").write_text(made)
    _, out, _ = run("x.json")
    assert len(out.splitlines()) == 3
    assert "\x1b" not in out
    assert "\u202e" not in out


def test_every_example_of_the_help_runs(run, tmp_path):
    folder = tmp_path / "reports" / "20250102-030405-v01"
    folder.mkdir(parents=True)
    (folder / "arrivals.jsonl").write_text(json.dumps(arrival(0)))
    (tmp_path / "session.har").write_text(document(entry()))
    (tmp_path / "traces.json").write_text(json.dumps(otlp([span(0, NEW)])))
    for line in calls.help.partition("Examples:")[2].splitlines():
        if line.strip():
            assert run(*shlex.split(line)[2:])[0] == 0
