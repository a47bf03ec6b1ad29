"""The bytes that a target file describes: what is in them, and that nothing can be smuggled into them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ledger.call import CALL_STEP, Call
from harness.live.requests import Unsendable, target_of
from harness.live.target_requests import TargetRequests
from harness.profile.model import Claims
from harness.target.model import TargetFile
from harness.target.templates import Draws

URL = "http://127.0.0.1:8000/base"


def requests(tenant="A", token="s3cret", deadline_ns=None, claims=None, **more):
    file = TargetFile.model_validate({"name": "shop", "url": URL, **more})
    target = target_of("file", URL)
    return TargetRequests(tenant, 3, target, file, Draws(file.data, 1), token, deadline_ns, claims)


def call(seq=7, round_=0, **attributes):
    made = Call("A", 3, seq, 1_500_000_000, round_, seq, None)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def parts(data: bytes):
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), body


def test_a_call_without_places_to_fill():
    assert requests(call={"path": "/x", "body": {"a": 1}}, deadline_ns=2_000_000_000).of(call(round_=2)).decode() == (
        "POST /base/x HTTP/1.1\r\n"
        "Host: 127.0.0.1:8000\r\n"
        "User-Agent: overload\r\n"
        "Accept: */*\r\n"
        "Authorization: Bearer s3cret\r\n"
        "Overload-Queue-Deadline-Ms: 2000\r\n"
        "Content-Type: application/json\r\n"
        "Content-Length: 7\r\n"
        "Overload-Call: 3.7\r\n"
        "Overload-Attempt: 3.7.1\r\n"
        "Overload-Round: 2\r\n"
        "\r\n"
        '{"a":1}'
    )


def test_where_dependencies_are_ours_a_plain_call_says_whose_attempt_it_is():
    """What a proxy passes on to them, for v05 to join."""
    watched = requests(tenant="Ä B", evidence={"dependencies": "http://127.0.0.1:9000"})
    _, headers, _ = parts(watched.of(call(attempt=2)))
    found = {name: headers.get(f"Overload-{name}") for name in ("Run", "Step", "Attempt-Number", "Owner", "Layer")}
    assert found == {"Run": "3.7", "Step": CALL_STEP, "Attempt-Number": "2", "Owner": "caller", "Layer": "caller"}
    assert headers["Overload-Tenant"] == "%C3%84%20B"
    assert "Overload-Run" not in parts(requests().of(call()))[1]


def test_every_name_has_its_value():
    names = ("call", "attempt", "tenant", "seq", "round", "due_ms", "word")
    form = {"body": {name: f"{{{name}}}" for name in names}, "headers": {"X-Id": "{uuid}"}}
    made = requests(call=form, data={"word": ["only"]})
    _, headers, body = parts(made.of(call(round_=1, attempt=2)))
    assert json.loads(body) == {
        "call": "3.7", "attempt": "3.7.2", "tenant": "A", "seq": 7, "round": 1, "due_ms": 1500, "word": "only",
    }  # fmt: skip
    assert headers["Overload-Attempt"] == "3.7.2"
    again = parts(made.of(call(round_=1, attempt=2)))[1]["X-Id"]
    assert headers["X-Id"] == again != parts(made.of(call(seq=8)))[1]["X-Id"]


def test_no_credential_and_headers_of_the_files_own():
    made = requests(token=None, call={"method": "GET", "headers": {"user-agent": "mine", "Accept": "text/plain"}})
    first, headers, body = parts(made.of(call()))
    assert first == "GET /base/ HTTP/1.1"
    assert body == b""
    assert set(headers) == {"Host", "user-agent", "Accept", "Overload-Call", "Overload-Attempt", "Overload-Round"}


def test_a_tool_is_a_part_of_the_path_below_and_a_claim_is_a_header():
    made = requests(call={"path": "/agent?v=1"}, claims=Claims(header="X-Tenant", values=3))
    first, headers, _ = parts(made.of(call(tool="search {x}")))
    assert first == "POST /base/agent/search%20%7Bx%7D?v=1 HTTP/1.1"
    assert headers["X-Tenant"] == "A-1"


RECORDED = (
    ({}, "/a/b?q=1", "/base/a/b?q=1"),
    ({"strip": "/a"}, "/a/b?q=1", "/base/b?q=1"),
    ({"strip": "/z"}, "/a/b?q=1", "/base/a/b?q=1"),
    ({"strip": "/a", "prefix": "/v2/"}, "/a/b?q=1", "/base/v2/b?q=1"),
    ({"query": "drop"}, "/a/b?q=1", "/base/a/b"),
    ({"prefix": "/v2"}, "no-slash\r\nX: y", "/base/v2/no-slash%0D%0AX:%20y"),
)


@pytest.mark.parametrize(("how", "path", "sent"), RECORDED)
def test_recorded_paths_are_mapped(how, path, sent):
    assert parts(requests(recorded=how).of(call(method="GET", path=path)))[0] == f"GET {sent} HTTP/1.1"


def test_recorded_bodies():
    made = requests(recorded={"body": {"n": "{seq}"}, "headers": {"X-Who": "{tenant}"}})
    assert parts(made.of(call(method="POST", path="/a")))[2] == b'{"n":7}'
    assert parts(made.of(call(method="PUT", path="/a", body=b"own")))[2] == b"own"
    _, headers, body = parts(made.of(call(method="GET", path="/a")))
    assert (body, headers["X-Who"]) == (b"", "A")
    assert "Content-Type" not in headers
    for odd in ({"method": "CONNECT"}, {"method": "GET", "body": b"x"}, {"method": "GET / HTTP/1.1\r\nX:"}):
        with pytest.raises(Unsendable):
            made.of(call(**{"path": "/a", **odd}))


RUNS = {
    "open": {"path": "/tasks", "body": {"kind": "{task_class}", "in": "{parent_run}", "ms": "{deadline_ms}"}},
    "submit": {"path": "/tasks/{run}/b", "body": {"name": "{batch}", "work": "{steps}"}},
    "step": {"id": "{run}/{step}", "at": "{dependency}", "key": "{idempotency_key}"},
    "read": {"method": "GET", "path": "/tasks/{run}/b/{batch}"},
    "cancel": {"method": "DELETE", "path": "/tasks/{run}"},
}
OPEN = json.dumps({"task_class": "ticket", "deadline_ms": 500}).encode()
BATCH = json.dumps({"batch": "b0", "steps": [{"step": "b0.0", "dependency": "crm"}, {"step": "b0.1"}]}).encode()


def test_runs_are_spoken_of_as_the_file_says():
    made = requests(runs=RUNS)
    first, headers, body = parts(made.of(call(action="open", path="/runs", method="POST", body=OPEN)))
    assert first == "POST /base/tasks HTTP/1.1"
    assert json.loads(body) == {"kind": "ticket", "ms": 500}
    assert headers["Overload-Attempt"] == "3.7.1"
    submit = call(action="submit", path="/runs/r/steps", method="POST", body=BATCH, run_id="r 1/2")
    first, _, body = parts(made.of(submit))
    assert first == "POST /base/tasks/r%201%2F2/b HTTP/1.1"
    work = [{"id": "r 1/2/b0.0", "at": "crm"}, {"id": "r 1/2/b0.1"}]
    assert json.loads(body) == {"name": "b0", "work": work}
    assert parts(made.poll_of(submit))[0] == "GET /base/tasks/r%201%2F2/b/b0 HTTP/1.1"
    assert parts(made.of(call(action="cancel", body=b"{}", run_id="r")))[0] == "DELETE /base/tasks/r HTTP/1.1"
    with pytest.raises(Unsendable, match="no_finish"):
        made.of(call(action="finish", body=b"{}", run_id="r"))


def test_steps_go_as_they_are_unless_the_file_says_otherwise():
    without = {key: value for key, value in RUNS.items() if key != "step"}
    _, _, body = parts(requests(runs=without).of(call(action="submit", body=BATCH, run_id="r")))
    assert json.loads(body)["work"] == json.loads(BATCH)["steps"]


def test_half_a_character_is_not_sent():
    made = requests(call={"path": "/{v}"}, data={"v": ["\ud800"]}, runs=RUNS)
    with pytest.raises(Unsendable):
        made.of(call())
    with pytest.raises(Unsendable):
        made.of(call(action="submit", body=BATCH, run_id="\ud800"))


@given(tenant=st.text(min_size=1), value=st.text(), run=st.text(min_size=1), path=st.text())
def test_no_value_adds_a_line_or_leaves_its_place(tenant, value, run, path):
    form = {"path": "/p/{v}/end", "headers": {"X-V": "a{v}b", "X-T": "{tenant}"}, "body": {"v": "{v}"}}
    made = requests(tenant=tenant, call=form, data={"v": [value]}, runs=RUNS)
    for data, lines in (
        (made.of(call()), 11),
        (made.of(call(action="submit", body=BATCH, run_id=run)), 9),
        (made.of(call(method="GET", path=path)), 7),
    ):
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.count(b"\r\n") == head.count(b"\n") == head.count(b"\r") == lines, head
        target = head.split(b" ")[1]
        assert all(0x21 <= byte <= 0x7E for byte in target)
        length = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
        assert [int(line[16:]) for line in length] == [len(body)] * len(length)
