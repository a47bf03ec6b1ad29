import gzip
import io

import pytest

from harness.recorded import lines as line_reader
from harness.recorded.account import Account
from harness.recorded.errors import RecordedError
from harness.recorded.fields import parse_map, tenant_name
from harness.recorded.lines import Source
from harness.recorded.reader import Reading, read
from tests.unit.recorded_fixtures import COMBINED, CSV, JSON_LINES, records, source

S = 1_000_000_000
JSON_MAP = parse_map("time=ts,tenant=auth.sub,status=code,cost=tokens,path=url,method=verb")


def test_combined_is_found_and_read():
    found, account = records(COMBINED)
    assert [r.t_ns // S - 1431857100 for r in found] == [3, 2, 59]
    assert [r.tenant for r in found] == ["10.0.0.1", "10.0.0.2", "2001:db8::1"]
    assert [(r.status, r.method, r.path) for r in found] == [
        (200, "GET", "/a/b?q=1"), (429, "POST", "/login"), (408, None, None),
    ]  # fmt: skip
    assert account.formats == {"access.log": "combined"}
    assert (account.lines, account.read, account.broken_lines) == (3, 3, 0)


def test_common_and_timed_and_ones_own_log_format():
    common = '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 203\n'
    assert records(common)[1].formats == {"access.log": "common"}
    timed = common.strip() + ' "-" "curl" 0.123 0.120, 0.003\n'
    found, account = records(timed, roles=parse_map("queue_time=request_time"))
    assert account.formats == {"access.log": "combined_timed"}
    assert found[0].queue_ns == 123_000_000
    own = 'nginx:$http_x_tenant|$msec|"$request"|$status'
    found, _ = records('acme|1431857103.250|"GET /p HTTP/2.0"|503', format=own, tenant="header:X-Tenant")
    assert found[0][:4] == (1431857103_250_000_000, 0, "acme", 503)


def test_json_lines_with_a_field_map():
    found, account = records(JSON_LINES, roles=JSON_MAP)
    assert [(r.tenant, r.status, r.cost, r.method, r.path) for r in found] == [
        ("alice", 200, 12.0, "GET", "/x"), ("bob", 429, 7.5, None, "/y"),
    ]  # fmt: skip
    assert found[1].t_ns == 1431857104 * S + S // 2
    assert account.formats == {"access.log": "jsonl"}


def test_csv_with_crlf_and_no_last_end_of_line_and_100_ns_digits():
    found, account = records(CSV, roles=parse_map("time=TIMESTAMP,cost=GeneratedTokens"))
    assert [(r.t_ns % S, r.cost, r.tenant) for r in found] == [
        (979_960_000, 10.0, "access"),
        (31_960_000, 8.0, "access"),
    ]
    assert (account.lines, account.header, account.read) == (3, 1, 2)


def test_csv_with_quotes_and_semicolons():
    found, _ = records('time;tenant\n2015-05-17T10:05:03Z;"a;b"\n', roles=parse_map("tenant=tenant"))
    assert [r.tenant for r in found] == ["a;b"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("remote_addr", ["10.0.0.1", "10.0.0.2", "2001:db8::1"]),
        ("user", ["(none)", "frank", "(none)"]),
        ("file", ["access", "access", "access"]),
        ("field:status", ["200", "429", "408"]),
        ("path:1", ["a", "login", "(none)"]),
        ("path:2", ["b", "(none)", "(none)"]),
    ],
)
def test_the_tenant_is_the_users_choice(choice, expected):
    found, account = records(COMBINED, tenant=choice)
    assert [r.tenant for r in found] == expected
    assert account.without_tenant == expected.count("(none)")


def test_a_header_is_found_where_proxies_log_it():
    for line in (
        '{"ts": 1431857103, "request": {"headers": {"X-Tenant": ["acme"]}}}',
        '{"ts": 1431857103, "headers": {"x-tenant": "acme"}}',
        '{"ts": 1431857103, "http_x_tenant": "acme"}',
    ):
        assert records(line, tenant="header:x-tenant")[0][0].tenant == "acme"


def test_one_second_grain_is_spread_inside_its_second_and_seeded():
    text = COMBINED.splitlines()[0] + "\n"
    spread = [r.t_ns for r in records(text * 50, spread_seed=1)[0]]
    assert all(1431857103 * S <= t < 1431857104 * S for t in spread)
    assert len(set(spread)) == 50
    assert spread == [r.t_ns for r in records(text * 50, spread_seed=1)[0]]
    assert spread != [r.t_ns for r in records(text * 50, spread_seed=2)[0]]


def test_a_time_that_is_finer_than_a_second_is_left_alone():
    roles = parse_map("time=TIMESTAMP")
    assert [r.t_ns for r in records(CSV, roles=roles, spread_seed=1)[0]] == [
        r.t_ns for r in records(CSV, roles=roles)[0]
    ]


def test_broken_lines_are_counted_and_sampled_without_control_bytes():
    text = COMBINED + "\n" + "garbage \x1b[31m\x00\n" + COMBINED.replace("May", "Mai").splitlines()[0] + "\n" + COMBINED
    found, account = records(text)
    assert len(found) == 6
    assert account.broken == {"not a line of combined": 1, "no time that can be read": 1}
    assert account.blank == 1
    account.kept = account.read
    assert account.balanced()
    assert [(b.where, b.reason) for b in account.samples] == [
        ("access.log:5", "not a line of combined"), ("access.log:6", "no time that can be read"),
    ]  # fmt: skip
    assert account.samples[0].text == "garbage \\x1b[31m\\x00"


def test_too_large_a_share_of_broken_lines_is_an_error_that_shows_the_first():
    account = records(COMBINED * 3 + "x\n")[1]
    account.check_broken(0.1)
    with pytest.raises(RecordedError) as caught:
        account.check_broken(0.05)
    assert str(caught.value) == (
        "access.log:10: 1 of 10 lines are broken, more than --max-broken 0.05; the first: not a line of combined: x; "
        "say which --format it is, or allow more with --max-broken"
    )


def test_a_line_without_end_costs_a_megabyte_and_counts_as_broken(monkeypatch):
    monkeypatch.setattr(line_reader, "MAX_LINE_BYTES", 1000)
    first = COMBINED.splitlines()[0]
    found, account = records(first + "\n" + "x" * 100_000 + "\n" + first)
    assert len(found) == 2
    assert account.broken == {"longer than 1 MiB": 1}
    assert account.lines == 3


def test_gzip_is_known_by_its_content():
    assert len(records(gzip.compress(COMBINED.encode()))[0]) == 3


def test_a_bom_is_no_part_of_the_first_line():
    assert len(records(b"\xef\xbb\xbf" + CSV.encode(), roles=parse_map("time=TIMESTAMP"))[0]) == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "access.log: holds no lines; is it the right file?"),
        (b"\n \n", "access.log: holds no lines; is it the right file?"),
        (b"\xff\xfe1\x00", "access.log: is UTF-16 text; convert it to UTF-8 first (iconv -t UTF-8)"),
        (
            gzip.compress(COMBINED.encode() * 50, mtime=0)[:-20],
            "access.log: damaged gzip (Compressed file ended before the end-of-stream marker was reached); "
            "fetch the file again, or unpack what is left",
        ),
        (
            b"\x89PNG\r\n\x1a\n\x00\x01",
            "access.log: no known log format (lines that fit: jsonl 0 of 3, combined_timed 0 of 3, combined 0 of 3, "
            "common 0 of 3, csv 0 of 2). The first: \\udc89PNG; "
            "say --format, or --format 'nginx:<your log_format string>'",
        ),
        (b'{"a": 1}\n', "access.log: read as jsonl, no field is the time (fields: a); name it: --map time=FIELD"),
        (b"a,b\n1,2\n", "access.log: read as csv, no field is the time (fields: a, b); name it: --map time=FIELD"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(data, message):
    with pytest.raises(RecordedError) as caught:
        records(data)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"format": "xml"},
            "--format: 'xml' is not known; known: auto, jsonl, combined_timed, combined, common, csv, har, nginx:…",
        ),
        ({"format": "nginx:$a$b"}, "--format: nothing between $a and $b; put a space between them"),
        (
            {"tenant": "cookie"},
            "--tenant: 'cookie' says not who the tenant is; write remote_addr, user, file, host, "
            "header:x-tenant, cookie:NAME, query:NAME, field:NAME or path:N (the N-th part of the path, from 1)",
        ),
        (
            {"roles": {"cost": "tokens"}},
            "--map: access.log has no column for cost=tokens (columns: remote_addr, ident, remote_user, time_local, "
            "request, status, body_bytes_sent, http_referer, http_user_agent)",
        ),
    ],
)
def test_options_that_make_no_sense_say_so(how, message):
    with pytest.raises(RecordedError) as caught:
        records(COMBINED, **how)
    assert str(caught.value) == message


def test_a_map_must_name_roles():
    with pytest.raises(RecordedError, match="'colour=red' is not ROLE=FIELD; the roles are time, tenant, status"):
        parse_map("time=ts,colour=red")


@pytest.mark.parametrize("name", ["a\nb", "a\x00b", "\x1b[31mred", "x" * 5000, "\udcff", "\u202egnp.exe"])
def test_hostile_names_survive_on_one_line_and_stay_apart(name):
    shown = tenant_name(name)
    assert shown.isprintable()
    assert len(shown) <= 200
    assert shown != tenant_name(name + "!")
    assert shown != tenant_name(shown.split("~")[0])


def test_names_that_print_stay_as_they_are():
    for name in ("日本", "a: [b] {c} #d 'e' \"f\"", "<script>", "[bold]x[/bold]", "null", "~", "rest"):
        assert tenant_name(name) == name


def test_several_files_are_read_one_after_the_other_with_places_that_go_on():
    account = Account()
    sources = [source(COMBINED, "a.log", "a"), source(CSV, "b.csv", "b")]
    found = list(read(sources, Reading(tenant="file"), account))
    assert [r.place for r in found] == [0, 1, 2, 3, 4]
    assert [r.tenant for r in found] == ["a", "a", "a", "b", "b"]


def test_a_gzip_bomb_stops(monkeypatch):
    monkeypatch.setattr(line_reader, "BOMB_FROM_BYTES", 10_000)
    data = gzip.compress(b"\n" * 5_000_000)
    with pytest.raises(RecordedError, match="unpacks to more than 200 times its size"):
        list(line_reader.lines(Source("bomb.gz", io.BytesIO(data), len(data))))
