"""What a target file may say, and how each mistake in one is told."""

from __future__ import annotations

import pytest

from harness.errors import BadInput
from harness.target.file import TargetFileError, load_target, may_be_sent, target_from_document, tokens_for
from harness.target.model import Credentials

PLAIN = {"name": "shop", "url": "http://127.0.0.1:8080"}


def problems_of(tmp_path, text: str) -> list[str]:
    file = tmp_path / "target.yaml"
    file.write_text(text)
    with pytest.raises(TargetFileError) as caught:
        load_target(file)
    return [str(problem).removeprefix(f"{file}:") for problem in caught.value.problems]


def test_the_smallest_file_describes_a_service_on_loopback(tmp_path):
    described = target_from_document(PLAIN, tmp_path)
    assert described.target.call.path == "/service"
    assert described.target.limits is None


def test_every_problem_is_told_at_once_with_its_place(tmp_path):
    found = problems_of(
        tmp_path,
        """\
name: staging
url: https://staging.example:8443
answers:
  outcome:
    - {status: 7xx, outcome: throttled}
    - {outcome: nope}
credentals: {}
""",
    )
    assert found == [
        "5:16: answers.outcome.0.status: '7xx': expected a status such as 429 or 5xx",
        "6:17: answers.outcome.1.outcome: 'nope': expected one of served, queued, throttled, expired, "
        "budget_exhausted, coalesced, dependency_unavailable, cancelled, needs_person, failed",
        "7:1: credentals: unknown key; did you mean 'credentials'? (keys here: name, about, url, allow, limits, "
        "abort, tls, credentials, connect_timeout, call, recorded, data, service_time, answers and 4 more)",
    ]


def test_another_host_needs_to_be_allowed_and_limited(tmp_path):
    found = problems_of(tmp_path, "name: staging\nurl: https://staging.example:8443\ntls: {verify: false}\n")
    assert found == [
        "2:6: url: 'https://staging.example:8443': 'staging.example' is not on the allow list; if you may load it, "
        "add it: `allow: [staging.example]` (loopback is always allowed)",
        "2:6: url: 'https://staging.example:8443': a host other than this machine's own needs `limits: {max_rate: "
        "...}`, the most calls a second that its owner allows",
        "3:15: tls.verify: 'false': may be false only where the host is loopback; give `ca` instead",
    ]


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ftp://127.0.0.1", "expected a URL such as"),
        ("http://u:p@127.0.0.1", "must not carry a user or a password"),
        ("http://127.0.0.1/?a=1", "has a query or a fragment"),
        ("http://127.0.0.1:0", "has port 0"),
        ("http://127.0.0.1:99999", "is not a URL"),
        ("http://127.0.0.1/a b", "has characters that a URL cannot have"),
        ("http://127.0.0.1.evil.example", "is not on the allow list"),
        ("http://localhost.example", "is not on the allow list"),
    ],
)
def test_a_url_that_is_none(tmp_path, url, rule):
    with pytest.raises(TargetFileError, match=rule):
        target_from_document({**PLAIN, "url": url}, tmp_path)


def test_evidence_urls_are_held_to_the_allow_list_too(tmp_path):
    document = {**PLAIN, "evidence": {"dependencies": "http://other.example:9000"}}
    with pytest.raises(TargetFileError, match=r"'other\.example' is not on the allow list"):
        target_from_document(document, tmp_path)


def test_the_allow_list_has_no_wildcards(tmp_path):
    document = {**PLAIN, "url": "https://a.example", "allow": ["*.example", "example"], "limits": {"max_rate": "1/s"}}
    with pytest.raises(TargetFileError, match="not on the allow list"):
        target_from_document(document, tmp_path)
    target = target_from_document({**document, "allow": ["A.example"]}, tmp_path).target
    assert may_be_sent("a.EXAMPLE", target)
    assert may_be_sent("::1", target)
    assert not may_be_sent("b.example", target)


def test_names_in_templates_are_known_ones(tmp_path):
    document = {
        **PLAIN,
        "call": {"path": "/s?q={wrd}", "headers": {"X-A": "{"}, "body": {"a": ["{word}", "{call}"], "b": "{{no}}"}},
        "data": {"word": ["a"], "seq": ["b"]},
    }
    with pytest.raises(TargetFileError) as caught:
        target_from_document(document, tmp_path)
    assert [str(problem).partition(": ")[2][:60] for problem in caught.value.problems] == [
        "data.seq: \"['b']\": is a name that the harness fills itself; ",
        "call.path: '/s?q={wrd}': {wrd} is not known; did you mean 'w",
        "call.headers.X-A: '{': '{' stands alone; write '{{' for a br",
    ]


def test_what_contradicts_itself(tmp_path):
    document = {
        **PLAIN,
        "call": {"method": "GET", "headers": {"Host": "x"}, "body": {}},
        "credentials": {"form": "Bearer", "env": "A-{TENANT}"},
        "faults": {"set": {"path": "/f"}, "clear_command": ["x"]},
        "answers": {"outcome": [{"outcome": "served"}, {"equals": 1, "outcome": "served"}], "queue_wait": {}},
        "evidence": {"decisions": {"file": "a", "url": "http://127.0.0.1:1", "fields": {}}},
    }
    with pytest.raises(TargetFileError) as caught:
        target_from_document(document, tmp_path)
    text = str(caught.value)
    for rule in (
        "call.headers.Host: 'x': is set by the client itself",
        "call.body: a GET request carries no body",
        "credentials.form: 'Bearer': must hold {token}",
        "credentials.env: 'A-{TENANT}': is no name of an environment variable",
        "what is set must be cleared in the same way",
        "a rule needs a condition",
        "needs a `pointer`",
        "give one of server_timing, header or pointer",
        "needs `attempt` or `call`",
    ):
        assert rule in text


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(TargetFileError, match=r"tls.ca: 'ca.pem': there is no such file"):
        target_from_document({**PLAIN, "tls": {"ca": "ca.pem"}}, tmp_path)


def test_tokens_come_from_the_environment_and_every_missing_one_is_named():
    credentials = Credentials(env="T_{TENANT}", tenants={"b": "B_TOKEN"})
    assert tokens_for(credentials, ["a-1", "b"], {"T_A_1": "s1", "B_TOKEN": "s2"}) == {"a-1": "s1", "b": "s2"}
    with pytest.raises(BadInput, match=r"for a-1: T_A_1, b: B_TOKEN; export"):
        tokens_for(credentials, ["a-1", "b"], {"T_A": "secret"})
    assert tokens_for(Credentials(), ["a"], {}) == {}


def test_not_a_mapping_not_there_not_text(tmp_path):
    assert "a target file is a mapping of keys such as" in problems_of(tmp_path, "- a\n")[0]
    with pytest.raises(TargetFileError, match="the file cannot be read: No such file"):
        load_target(tmp_path / "absent.yaml")
    assert "a target file is one document" in problems_of(tmp_path, "name: a\n---\nname: b\n")[0]


WRONG_TEXTS = """\
name: my shop
url: http://127.0.0.1:8080
credentials:
  header: "X Key"
  tenants: {A: s3cret-of-A-7f2c, " B": TOKEN_B}
call: {path: orders, headers: {"X Y": a, X-B: "a\\nb"}}
recorded: {strip: v1}
answers: {outcome: [{pointer: error.code, equals: x, outcome: failed, reason: two words}]}
driver: mine.Staging
"""


def test_a_text_that_does_not_fit_is_told_what_is_asked_for_there_and_no_token_is_shown(tmp_path):
    found = problems_of(tmp_path, WRONG_TEXTS)
    header = "a header's name has 1 to 100 letters, digits and such signs as '-', without spaces and ':'"
    assert found == [
        "1:7: name: 'my shop': expected letters, digits, '.', '_' and '-', at most 100, a letter or digit first",
        f"4:11: credentials.header: 'X Key': {header}",
        "5:16: credentials.tenants.A: expected the name of an environment variable, such as TOKEN_A: letters, digits "
        "and '_', no digit first; the token itself is never in the file",
        '5:34: credentials.tenants." B": a name has 1 to 200 characters, no control characters, and no space at its '
        "ends",
        "6:14: call.path: 'orders': expected a path that begins with '/'; what it is under goes into `url`",
        f'6:32: call.headers."X Y": {header}',
        "6:47: call.headers.X-B: 'a\\nb': a header's value is one line, without control characters",
        "7:19: recorded.strip: 'v1': expected the beginning of a path, such as /v1, without spaces",
        "8:31: answers.outcome.0.pointer: 'error.code': expected a JSON pointer that begins with '/': /error/code",
        "8:79: answers.outcome.0.reason: 'two words': expected one word of letters, digits, '.', '_' and '-', at most "
        "100",
        "9:9: driver: 'mine.Staging': expected module:Class, such as mine:Staging for the class Staging of mine.py "
        "beside this file",
    ]


def test_two_tenants_that_would_have_one_token_are_told_apart_first():
    shared = Credentials(env="T_{TENANT}")
    with pytest.raises(BadInput, match="tenants 'a-b' and 'a_b' would both have the token of T_A_B"):
        tokens_for(shared, ["a-b", "c", "a_b"], {"T_A_B": "x", "T_C": "y"})
    apart = Credentials(env="T_{TENANT}", tenants={"a_b": "OTHER"})
    assert tokens_for(apart, ["a-b", "a_b"], {"T_A_B": "x", "OTHER": "y"}) == {"a-b": "x", "a_b": "y"}
    assert tokens_for(Credentials(env="ONE"), ["a", "b"], {"ONE": "x"}) == {"a": "x", "b": "x"}


def test_what_lasts_no_time_at_all_is_told(tmp_path):
    """A window of nothing never aborts, and asking again after nothing is a flood."""
    found = problems_of(
        tmp_path,
        "name: x\nurl: http://127.0.0.1:9\nabort: {window: 0s, latency_p95: 0s}\nconnect_timeout: 0s\n"
        "service_time: 0ms\nruns: {open: {}, submit: {}, read: {}, poll: {every: 0s}}\n",
    )
    assert [line.split(": ", 1)[1] for line in found] == [
        "abort.window: '0s': expected more than 0",
        "abort.latency_p95: '0s': expected more than 0",
        "connect_timeout: '0s': expected more than 0",
        "service_time: '0ms': expected more than 0",
        "runs.poll.every: '0s': expected more than 0",
    ]
