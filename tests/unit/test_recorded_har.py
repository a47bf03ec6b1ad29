"""HAR files as recorded traffic: as browsers and proxies write them, cut anywhere, broken anywhere, no secret in it."""

import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.recorded import har
from harness.recorded.errors import RecordedError
from harness.recorded.fields import is_secret, without_secrets
from harness.recorded.lines import Unpacked
from tests.unit.recorded_fixtures import records, source

S = 1_000_000_000
SECRET = "s3cr3t-t0ken"


def entry(at="2024-05-01T10:00:00.250+02:00", url="https://api.test/v1/bills?page=2", method="GET", **changed):
    return {
        "startedDateTime": at, "time": 35.5,
        "request": {"method": method, "url": url, "headers": changed.pop("headers", []),
                    "cookies": changed.pop("cookies", []), **changed.pop("request", {})},
        "response": {"status": changed.pop("status", 200), "content": {"text": 'a "quoted" ]} brace {[ \\'}},
        "timings": {"send": 0, "wait": 20.5, "receive": 1}, **changed,
    }  # fmt: skip


def document(*entries, **log):
    return json.dumps(
        {"log": {"version": "1.2", "creator": {"name": "x"}, "pages": [{"id": "p"}], "entries": entries, **log}}
    )


def headers(**values):
    return [{"name": name, "value": value} for name, value in values.items()]


def test_an_entry_is_a_call_without_its_host():
    found, account = records(document(entry()))
    assert found[0][3:] == (200, -1.0, -1, "GET", "/v1/bills?page=2", 20_500_000, None)
    assert found[0].t_ns == 1_714_550_400 * S + S // 4
    assert (account.lines, account.read, account.formats) == (1, 1, {"access.log": "har"})


@pytest.mark.parametrize(
    "text",
    [
        document(entry(), entry()),
        json.dumps(json.loads(document(entry(), entry())), indent=2),
        "\ufeff" + document(entry(), entry()),
        gzip.compress(document(entry(), entry()).encode(), mtime=0),
        document(entry(), entry(), comment="after the entries", _last=[1, {"entries": []}]),
    ],
    ids=["one line", "indented", "byte order mark", "gzip", "more after it"],
)
def test_however_it_is_written(text):
    assert len(records(text)[0]) == 2


@pytest.mark.parametrize(
    "aside",
    [
        entry(url="data:image/png;base64,xx"),
        entry(url="blob:https://a/b"),
        entry(url="wss://a/b"),
        entry(_fromCache="disk"),
        entry(_fromCache="memory"),
        entry(status=0),
    ],
)
def test_what_never_reached_a_server_is_set_aside_and_counted(aside):
    found, account = records(document(entry(), aside))
    assert (len(found), account.aside, account.broken_lines, account.lines) == (1, 1, 0, 2)


def test_variants_of_browsers():
    chrome = entry(_initiator={"type": "script"}, _priority="High", pageref="page_1")
    firefox = entry(cache={}, timings={"blocked": -1, "wait": -1}, _securityState="secure")
    safari = {key: value for key, value in entry(at="2024-05-01T08:00:00.25Z").items() if key != "timings"}
    took = [record.duration_ns for record in records(document(chrome, firefox, safari))[0]]
    assert took == [20_500_000, 35_500_000, 35_500_000]  # the whole time where the wait is not told


@pytest.mark.parametrize(
    ("choice", "tenant"),
    [
        ("header:x-tenant", "acme"),
        ("host", "api.test:8443"),
        ("query:customer", "c 1"),
        ("path:1", "v1"),
        ("file", "access"),
        (None, "access"),
    ],
)
def test_who_the_tenant_is(choice, tenant):
    made = entry(url="https://user:pw@API.test:8443/v1/x?customer=c%201#f", headers=headers(**{"X-Tenant": "acme"}))
    assert records(document(made), tenant=choice)[0][0].tenant == tenant


def test_tenants_get_other_names():
    made = [entry(headers=headers(**{"X-Tenant": name})) for name in ("t-1", "t-2", "t-3")]
    found, _ = records(document(*made), tenant="header:x-tenant", names={"t-1": "acme", "t-2": "acme"})
    assert [record.tenant for record in found] == ["acme", "acme", "t-3"]


@pytest.mark.parametrize("choice", ["header:authorization", "header:cookie", "cookie:sid", "query:api_key"])
def test_a_credential_tells_tenants_apart_and_is_never_copied(choice):
    made = [
        entry(
            url=f"https://api.test/a?api_key={value}&x=1",
            headers=headers(Authorization=f"Bearer {value}", Cookie=f"sid={value}"),
            cookies=headers(sid=value),
        )
        for value in (SECRET, SECRET, "another")
    ]
    found, _ = records(document(*made), tenant=choice)
    first, second, third = (record.tenant for record in found)
    assert first == second != third
    assert first.startswith("key-")
    assert SECRET not in repr(found)
    assert found[0].path == "/a?api_key=_&x=1"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("Authorization", True), ("Cookie", True), ("X-Api-Key", True), ("access_token", True), ("sig", True),
        ("X-Amz-Signature", True), ("password", True), ("page", False), ("X-Tenant", False), ("monkey", False),
        ("author", False), ("design", False),
    ],
)  # fmt: skip
def test_what_may_be_a_credential(name, secret):
    assert is_secret(name) is secret


def test_only_values_of_secrets_are_taken_out_of_a_query():
    assert without_secrets("/a?b=1&token=x&c&key") == "/a?b=1&token=_&c&key=_"
    assert without_secrets("/a") == "/a"


def test_bodies_are_kept_on_request_where_they_are_json_and_short():
    def posted(text, kind="application/json; charset=utf-8"):
        return entry(method="POST", request={"postData": {"mimeType": kind, "text": text}})

    made = document(
        posted('{"a": 1}'), posted("x" * 10_001), posted("a=1", "application/x-www-form-urlencoded"), posted("")
    )
    found, account = records(made, bodies=True)
    assert [record.body for record in found] == ['{"a": 1}', None, None, None]
    assert account.bodies_left == 2
    assert [record.body for record in records(made)[0]] == [None] * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (document(entry(), entry())[:-20], "access.log: entry 2: the file ends before its list of entries does"),
        (document(entry(), 5, [1]), "access.log: entry 2: is no JSON object"),
        ('{"log": {"entries": [{"a": }]}}', "access.log: entry 1: is no JSON object"),
        ('{"log": {"version": "1.2"}}', "access.log: no log.entries in it"),
        ('{"log": {"entries": ', "access.log: no log.entries in it"),
        ('{"log": {"entries": []}}', "access.log: holds no entry"),
        (document(entry(), entry(at="yesterday")), "access.log: entry 2: 1 of 2 entries are broken"),
        (document(entry(), {"request": {}}), "access.log: entry 2: 1 of 2 entries are broken"),
        (document(entry(url="data:x")), "no call in it"),
    ],
)
def test_a_broken_file_is_named_by_entry_and_rule(text, message):
    from harness.recorded.account import Account
    from harness.recorded.prepare import windowed
    from harness.recorded.reader import Reading

    with pytest.raises(RecordedError) as caught:
        list(windowed([source(text)], Reading(), None, None, Account(), 0.05)[0])
    assert message in str(caught.value)


def test_a_broken_entry_is_never_shown():
    made = entry(at="x", headers=headers(Authorization=SECRET))
    _, account = records(document(entry(), made))
    assert (account.samples[0].text, account.samples[0].where) == ("", "access.log: entry 2")


def test_an_entry_too_long_is_broken_and_the_next_one_is_read(monkeypatch):
    monkeypatch.setattr(har, "MAX_ENTRY_BYTES", 2_000)
    monkeypatch.setattr(har, "_PIECE_BYTES", 500)
    found, account = records(document(entry(), entry(comment="x" * 5_000), entry()))
    assert len(found) == 2
    assert account.broken_lines == 1


TEXTS = st.text(st.sampled_from('ab"\\{}[]é\n'), max_size=20)


@given(comments=st.lists(TEXTS, min_size=1, max_size=5), piece=st.integers(1, 40))
def test_entries_come_out_whole_wherever_the_file_is_cut(comments, piece):
    made = [{"comment": comment, "nested": [{"entries": [comment]}]} for comment in comments]
    text = document(*made, comment='"entries": [').encode()
    whole = har._PIECE_BYTES
    har._PIECE_BYTES = piece
    try:
        found = [json.loads(one) for one in har.entries(Unpacked(source(text)))]
    finally:
        har._PIECE_BYTES = whole
    assert found == made


@given(st.binary(max_size=200))
def test_no_bytes_bring_anything_but_a_recorded_error(noise):
    begin = b'{"log": {"entries": [{"a": 1}, '
    try:
        list(har.entries(Unpacked(source(begin + noise))))
    except RecordedError as error:
        told = str(error)
        assert told.isprintable()


def test_what_is_no_har_is_not_taken_for_one():
    assert not har.looks_like(b'{"log": "a docker line"}')
    assert har.looks_like(b' {\n "log" : {')


@pytest.fixture
def run(overload, tmp_path):
    posted = [{"postData": {"mimeType": "application/json", "text": f'{{"i": {i}}}'}} for i in range(10)]
    made = [
        entry(at=f"2024-05-01T10:00:{i:02d}.5Z", url=f"https://h/a/{i}?token={SECRET}", method="POST", request=body)
        for i, body in enumerate(posted)
    ]
    (tmp_path / "x.har").write_text(document(*made))
    return overload


def test_learn_and_replay_read_it(run, tmp_path):
    code, out, _ = run("learn", "x.har")
    assert code == 0
    assert "10 calls of 1 callers" in out.replace("calls     10", "10 calls")
    code, out, _ = run("replay", "x.har", "--simulate", "--bodies")
    assert "calls     10  (read as har)" in out
    rows = [
        json.loads(line) for line in next((tmp_path / "reports").glob("*/schedule/0000.jsonl")).read_text().splitlines()
    ]
    assert rows[3] == {"due_ns": 3 * S, "method": "POST", "path": "/a/3?token=_", "body": '{"i": 3}'}
    assert SECRET not in "".join(
        path.read_text() for path in (tmp_path / "reports").rglob("*") if path.is_file() and path.suffix != ".html"
    )


def test_a_broken_file_is_exit_code_2(run, tmp_path):
    (tmp_path / "x.har").write_text(document(entry(), entry())[:-30])
    code, _, err = run("replay", "x.har", "--simulate")
    assert (code, err) == (
        2,
        "x.har: entry 2: the file ends before its list of entries does; export or fetch it again\n",
    )


def test_a_stream_is_read_once_in_pieces():
    class Pipe(io.RawIOBase):
        left = document(entry(), entry()).encode()

        def readable(self):
            return True

        def readinto(self, buffer):
            piece, self.left = self.left[:100], self.left[100:]
            buffer[: len(piece)] = piece
            return len(piece)

    from harness.recorded.account import Account
    from harness.recorded.lines import Source
    from harness.recorded.reader import Reading, read

    assert len(list(read([Source("pipe", Pipe())], Reading(), Account()))) == 2
