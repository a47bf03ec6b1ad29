"""Which addresses may be loaded, what the command prints, and what its errors say."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli.stub import command, greeting
from harness.errors import BadInput
from harness.target.errors import TargetError, TargetUnusable
from harness.target.url import accepted_url, probe
from stub_service.defects.registry import DEFECTS


@pytest.mark.parametrize(
    ("url", "cleaned"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.9.8.7:80/", "http://127.9.8.7:80"),
        ("http://[::1]:8080/base/", "http://[::1]:8080/base"),
        ("http://LocalHost", "http://LocalHost"),
        ("https://127.0.0.1/", "https://127.0.0.1"),
    ],
)
def test_loopback_is_accepted(url, cleaned):
    assert accepted_url(url) == cleaned


GUARD_RAILS = (
    " is not a loopback host, nor on the target's allow list: only 127.0.0.0/8, ::1, localhost and the hosts of that "
    "list are accepted; if you may load it, describe it in a target file with `allow` and `limits` (overload target "
    "init)"
)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://10.0.0.1:80", "'10.0.0.1'" + GUARD_RAILS),
        ("http://localhost.example.org", "'localhost.example.org'" + GUARD_RAILS),
        ("http://127.0.0.1.example.org", "'127.0.0.1.example.org'" + GUARD_RAILS),
        ("http://127.1", "'127.1'" + GUARD_RAILS),
        ("http://2130706433", "'2130706433'" + GUARD_RAILS),
        ("http://0.0.0.0:1", "'0.0.0.0'" + GUARD_RAILS),
        ("http://127.0.0.1@example.org", "a target's URL must not carry a user or a password: tokens come from the "
         "environment"),
        ("https://example.org", "'example.org'" + GUARD_RAILS),
        ("ftp://127.0.0.1", "'ftp://127.0.0.1' is not an HTTP URL; expected one such as http://127.0.0.1:8080"),
        ("127.0.0.1:80", "'127.0.0.1:80' is not an HTTP URL; expected one such as http://127.0.0.1:8080"),
        ("stubb", "'stubb' is not an HTTP URL; expected one such as http://127.0.0.1:8080"),
        ("", "'' is not an HTTP URL; expected one such as http://127.0.0.1:8080"),
        ("http://127.0.0.1:0", "'http://127.0.0.1:0' has port 0, on which nothing can listen; expected one such as "
         "http://127.0.0.1:8080"),
        ("http://127.0.0.1/?a", "'http://127.0.0.1/?a' has a query or a fragment; leave them out"),
        ("http://127.0.0.1/a b", "'http://127.0.0.1/a b' has characters that a URL cannot have; expected one such as "
         "http://127.0.0.1:8080"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_a_reason(url, message):
    with pytest.raises(TargetError) as told:
        accepted_url(url)
    assert str(told.value) == message
    assert isinstance(told.value, BadInput)  # exit code 2: nothing was sent


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://[::1", "http://127.0.0.1:x"])
def test_a_malformed_url_is_refused(url):
    with pytest.raises(TargetUnusable, match="is not a URL"):
        accepted_url(url)


def test_probe_refuses_before_it_connects():
    with pytest.raises(TargetUnusable, match="not a loopback host"):
        probe("http://192.0.2.1/")


def test_greeting(worked_example):
    profile = worked_example()
    assert greeting(profile, "http://127.0.0.1:8080", Path("/e"), None) == [
        "serving worked-example at http://127.0.0.1:8080",
        "tokens (unless OVERLOAD_TOKENS gives others):",
        "  A: token-A",
        "  B: token-B",
        "  C: token-C",
        "  D: token-D",
        "try:      curl -i -H 'Authorization: Bearer token-A' http://127.0.0.1:8080/service",
        "figures:  http://127.0.0.1:8080/healthz  http://127.0.0.1:8080/metrics",
        "evidence: /e",
        "Ctrl-C ends it",
    ]


def test_every_defect_is_listed_with_the_checks_that_must_catch_it():
    result = CliRunner().invoke(command, ["--list-defects"])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split(":")[0] for line in lines] == list(DEFECTS)
    assert all("caught by " in line or "every check must PASS" in line for line in lines)


def test_an_unknown_defect_is_bad_input(tmp_path):
    (tmp_path / "p.yaml").write_text("{}")
    result = CliRunner().invoke(command, [str(tmp_path / "p.yaml"), "--defect", "nope"])
    assert isinstance(result.exception, BadInput)
    assert str(result.exception) == (
        "--defect nope: there is no such defect; overload stub --list-defects prints their names"
    )
