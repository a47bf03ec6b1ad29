"""The bytes of a request: what is in them, and that nothing can be smuggled into them."""

from __future__ import annotations

import socket

import pytest

from harness.errors import BadInput
from harness.ledger.call import Call
from harness.live.requests import Requests, Unsendable, encode_path, target_in_manifest, target_of
from harness.profile.model import Claims
from harness.target.hosts import reachable_first
from harness.target.tls import Tls
from harness.target.tokens import tokens_of

STUB = target_of("stub", "http://127.0.0.1:8000")
URL = target_of("url", "http://127.0.0.1:8000/v1/chat?x=1")


def call(seq=7, round_=0, cost=-1.0, method=None, path=None):
    made = Call("A", 3, seq, 0, round_, seq, None)
    made.cost, made.method, made.path = cost, method, path
    return made


def requests(target=STUB, tenant="A", token=None, deadline_ns=None):
    return Requests(tenant, 3, target, token, deadline_ns)


def test_a_profile_call():
    assert requests(deadline_ns=2_000_000_000).of(call(round_=2)).decode() == (
        "POST /service HTTP/1.1\r\n"
        "Host: 127.0.0.1:8000\r\n"
        "Authorization: Bearer token-A\r\n"
        "User-Agent: overload\r\n"
        "Accept: */*\r\n"
        "Overload-Queue-Deadline-Ms: 2000\r\n"
        "Content-Type: application/json\r\n"
        "Content-Length: 2\r\n"
        "Overload-Call: 3.7\r\n"
        "Overload-Attempt: 3.7.1\r\n"
        "Overload-Round: 2\r\n"
        "\r\n"
        "{}"
    )


def test_a_recorded_call_has_its_method_its_path_and_its_cost():
    text = requests(URL, token="s3cret").of(call(method="GET", path="/a b?q=ü", cost=374.0)).decode()
    assert text.startswith("GET /a%20b?q=%C3%BC HTTP/1.1\r\n")
    assert text.endswith("Overload-Round: 0\r\nOverload-Cost: 374\r\n\r\n")
    assert "Bearer s3cret" in text
    assert "Content-Length" not in text


def test_a_recorded_path_lies_below_the_stubs_service():
    assert requests(STUB).of(call(method="GET", path="/x")).startswith(b"GET /service/x HTTP/1.1\r\n")
    assert requests(URL).of(call()).startswith(b"POST /v1/chat?x=1 HTTP/1.1\r\n")


ODD_PATHS = ("/a\r\nX: y", "/a\nb", "x y", "/\0", "/\ud800", "/#frag", "http://h/p", "*", "", "/%0d%0a")


@pytest.mark.parametrize("path", ODD_PATHS)
def test_no_path_ends_the_request_line(path):
    encoded = encode_path(path)
    assert encoded.startswith("/")
    assert all("!" <= char <= "~" for char in encoded)
    head = requests(URL).of(call(method="GET", path=path)).split(b"\r\n\r\n")[0]
    assert len(head.split(b"\r\n")) == 8


UNSENDABLE = (("CONNECT", "/"), ("get", "/"), ("GET / HTTP/1.1\r\nX:", "/"), ("GET", "/" + "a" * 9000))


@pytest.mark.parametrize(("method", "path"), UNSENDABLE)
def test_what_http_cannot_carry_is_not_sent(method, path):
    with pytest.raises(Unsendable):
        requests(URL).of(call(method=method, path=path))


MADE = "(its name makes the token; give one in OVERLOAD_TOKENS)"


@pytest.mark.parametrize(
    ("tenant", "token", "where"),
    [
        ("A\r\nX: y", None, f"'A\\r\\nX: y' {MADE}"),
        ("A\ud800", None, f"'A\\ud800' {MADE}"),
        ("A", "s3\ncret", "'A' in OVERLOAD_TOKENS"),
        ("A", "", "'A' in OVERLOAD_TOKENS"),
    ],
)
def test_no_token_ends_a_header(tenant, token, where):
    with pytest.raises(BadInput) as error:
        requests(tenant=tenant, token=token)
    assert str(error.value) == f"the token of tenant {where} is empty or has characters that no header can carry"


def test_odd_but_harmless_names_are_sent_as_they_are():
    assert "Bearer token-Zoë <b>\r\n".encode() in requests(tenant="Zoë <b>").of(call())


LOOPBACK = (
    "is not loopback, nor on the allow list; only 127.0.0.0/8, ::1, localhost and the hosts of that list are accepted"
)
NOT_HTTP = "is not an http:// or https:// URL"
LIKE = "give one such as http://127.0.0.1:8000/path"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://example.com/", f"target host 'example.com' {LOOPBACK}"),
        ("http://10.0.0.1/", f"target host '10.0.0.1' {LOOPBACK}"),
        ("http://0.0.0.0/", f"target host '0.0.0.0' {LOOPBACK}"),
        ("http://127.0.0.1.example.com/", f"target host '127.0.0.1.example.com' {LOOPBACK}"),
        ("https://example.com/", f"target host 'example.com' {LOOPBACK}"),
        ("ftp://localhost/", f"target 'ftp://localhost/' {NOT_HTTP}"),
        ("localhost:80", f"target 'localhost:80' {NOT_HTTP}"),
        ("http://localhost:0/", f"target 'http://localhost:0/' has port 0, on which nothing can listen; {LIKE}"),
        ("http://u:p@localhost/", "the target URL holds credentials; give tokens in OVERLOAD_TOKENS instead"),
        (
            "http://localhost:99999/",
            f"target 'http://localhost:99999/' is not a URL (Port out of range 0-65535); {LIKE}",
        ),
    ],
)
def test_a_target_that_is_refused(url, message):
    with pytest.raises(BadInput) as error:
        target_of("url", url)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("kind", "url", "address", "host", "path"),
    [
        ("url", "http://localhost:81", ("127.0.0.1", 81), "localhost:81", "/service"),
        ("url", "http://127.1.2.3/", ("127.1.2.3", 80), "127.1.2.3", "/"),
        ("stub", "http://127.0.0.1:9/", ("127.0.0.1", 9), "127.0.0.1:9", "/service"),
        ("url", "http://[::1]:9/a", ("::1", 9), "[::1]:9", "/a"),
        ("url", "http://[::1]:80/a", ("::1", 80), "[::1]", "/a"),
        ("url", "https://localhost/a", ("127.0.0.1", 443), "localhost", "/a"),
        ("url", "https://127.0.0.1:80/", ("127.0.0.1", 80), "127.0.0.1:80", "/"),
    ],
)
def test_a_target(kind, url, address, host, path):
    target = target_of(kind, url)
    assert (target.address, target.host, target.path) == (address, host, path)


def test_a_host_on_the_allow_list_is_looked_up_once_and_all_its_addresses_kept(monkeypatch):
    asked = []

    def look_up(host, port, **_):
        asked.append(host)
        at = [(socket.AF_INET6, ("2001:db8::1", port, 0, 0)), (socket.AF_INET, ("192.0.2.1", port))]
        return [(family, socket.SOCK_STREAM, 6, "", address) for family, address in at]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    target = target_of("url", "https://staging.example/v1", allowed_hosts=("Staging.Example",))
    assert target.addresses == (("2001:db8::1", 443), ("192.0.2.1", 443))
    assert (target.scheme, target.tls, target.name, target.ipv6) == ("https", Tls(), "staging.example", True)
    assert asked == ["staging.example"]
    with pytest.raises(BadInput, match="nor on the allow list"):
        target_of("url", "https://other.example/v1", allowed_hosts=("staging.example",))
    assert asked == ["staging.example"], "a host that is not allowed was looked up"


def test_a_host_that_cannot_be_found_is_told_before_anything_is_sent(monkeypatch):
    def look_up(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(BadInput) as error:
        target_of("url", "http://nowhere.example/", allowed_hosts=("nowhere.example",))
    assert str(error.value) == (
        "host 'nowhere.example' cannot be found (Name or service not known); check its name, or give an address"
    )


def test_the_first_address_that_accepts_comes_first():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = taken.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        at = listening.getsockname()
        assert reachable_first((("127.0.0.1", dead), at)) == (at, ("127.0.0.1", dead))
    nobody = (("127.0.0.1", dead), ("127.0.0.2", dead))
    assert reachable_first(nobody) == nobody


def test_the_target_of_a_manifest():
    plain = target_in_manifest({"kind": "stub", "url": "http://127.0.0.1:8000", "defect": None})
    assert plain == STUB
    tls = {"ca": None, "cert": None, "key": None, "server_name": "a.test", "verify": True}
    full = {"kind": "url", "url": "https://127.0.0.1/", "tls": tls, "allowed_hosts": ["a"], "connect_timeout_ns": 7}
    target = target_in_manifest(full)
    assert target.tls == Tls(server_name="a.test")
    assert target.connect_timeout_ns == 7
    assert Tls(server_name="a.test").to_json() == tls
    for wrong in (
        *({"tls": tls} for tls in ({"ka": 1}, 3, {"verify": "no"})),
        *({"allowed_hosts": hosts} for hosts in ("a", [1])),
        *({"connect_timeout_ns": limit} for limit in (0, "5s", True)),
    ):
        with pytest.raises(BadInput, match=f"the manifest's target.{next(iter(wrong))} is not what it should be"):
            target_in_manifest({**full, **wrong})


def test_settings_for_tls_need_https():
    with pytest.raises(BadInput, match="is plain HTTP, but there are settings for TLS; give an https:// URL"):
        target_of("url", "http://localhost/", tls=Tls())


def test_tokens_come_from_the_environment_and_are_never_shown():
    assert tokens_of({}) == {}
    assert tokens_of({"OVERLOAD_TOKENS": '{"A": "x"}'}) == {"A": "x"}
    for text in ("s3cret", '["s3cret"]', '{"A": ["s3cret"]}'):
        with pytest.raises(BadInput) as error:
            tokens_of({"OVERLOAD_TOKENS": text})
        assert "s3cret" not in str(error.value)


def test_a_tenant_that_claims_to_be_others_keeps_its_credential():
    made = Requests("A", 3, STUB, None, None, Claims(values=2))
    texts = [made.of(call(seq=seq, cost=cost)).decode() for seq, cost in ((0, -1.0), (1, 2.0), (2, -1.0))]
    claims = [line for text in texts for line in text.split("\r\n") if line.startswith("X-Tenant")]
    assert claims == ["X-Tenant: A-0", "X-Tenant: A-1", "X-Tenant: A-0"]
    assert all("Authorization: Bearer token-A\r\n" in text and text.endswith("\r\n\r\n{}") for text in texts)
    other = Call("ü\u2028", 3, 7, 0, 0, 7, None)
    odd = Requests("ü\u2028", 3, STUB, "t", None, Claims(header="Tenant-Id", values=1)).of(other)
    assert odd.count(b"\r\n\r\n") == 1
    assert b"Tenant-Id: %C3%BC%E2%80%A8-0\r\n" in odd


def test_a_recorded_body_is_sent_as_it_is_with_its_own_length():
    posted = call(method="POST", path="/bills")
    posted.body = '{"é": 1}'.encode()
    head, body = requests(STUB).of(posted).split(b"\r\n\r\n", 1)
    assert body == posted.body
    assert head.startswith(b"POST /service/bills HTTP/1.1\r\n")
    assert b"Content-Length: 9\r\nOverload-Call: 3.7\r\n" in head
    assert head.count(b"Content-Length") == 1


def test_a_recorded_body_goes_only_where_bodies_go():
    got = call(method="GET", path="/bills")
    got.body = b"{}"
    with pytest.raises(Unsendable, match="unsendable_body"):
        requests(STUB).of(got)
