"""`overload target init`: a sound file from a few answers or an OpenAPI document, and what it says to bad ones."""

from __future__ import annotations

import io
import json
import sys

import pytest

from harness.target.file import load_target
from tests.conftest import ROOT
from tests.unit.test_cli import overload as in_this_process


def init(*options):
    return in_this_process("target", "init", *options)


def test_without_a_terminal_nothing_is_asked_and_the_file_is_sound(tmp_path):
    path = tmp_path / "t.yaml"
    done = init("--url", "http://127.0.0.1:8085", "--name", "shop", "--tenants", "A, B,A", "-o", path)
    assert done.returncode == 0, done.stderr
    assert f"next: export TOKEN_A TOKEN_B, then: overload target check {path}" in done.stderr
    target = load_target(path).target
    assert (target.name, target.url, target.call.path) == ("shop", "http://127.0.0.1:8085", "/")
    assert target.credentials.tenants == {"A": "TOKEN_A", "B": "TOKEN_B"}
    assert init("-o", path).returncode == 2
    assert init("-o", path, "--force").returncode == 0


BAD_AND_GOOD = (
    ("ftp://x", "url: 'ftp://x': expected a URL"),
    ("http://127.0.0.1:9/api", ""),
    ("my shop", "name: 'my shop': expected letters"),
    ("shop", ""),
    (",", "tenants: ',': expected names"),
    ("A,B", ""),
    ("fetch", "call.method: 'FETCH': expected one of GET"),
    ("get", ""),
    ("x", "call.path: 'x': expected a path that begins"),
    ("/x", ""),
)


def test_an_answer_that_will_not_do_is_asked_for_again(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("".join(f"{answer}\n" for answer, _ in BAD_AND_GOOD)))
    path = tmp_path / "t.yaml"
    done = init("-o", path)
    assert done.returncode == 0, done.stderr
    for _, told in BAD_AND_GOOD:
        assert told in done.stderr
    assert "the new file" not in done.stderr
    target = load_target(path).target
    assert (target.name, target.call.method, target.call.path) == ("shop", "GET", "/x")


def test_no_two_tenants_have_one_variable():
    done = init("--tenants", "a-b,a_b,c,é,ü")
    assert "    a-b: TOKEN_A_B\n    a_b: TOKEN_A_B_2\n    c: TOKEN_C\n" in done.stdout
    assert done.stdout.count(": TOKEN__\n") == done.stdout.count(": TOKEN___5\n") == 1


@pytest.mark.parametrize("name", ["null", "true", "1e3", "x-1.y"])
def test_a_name_is_the_text_that_was_given(tmp_path, name):
    path = tmp_path / "t.yaml"
    assert init("--name", name, "--tenants", f"{name},B", "-o", path).returncode == 0
    target = load_target(path).target
    assert (target.name, list(target.credentials.tenants)) == (name, [name, "B"])


@pytest.mark.parametrize(("options", "said"), [
    (("--name", "x: y #"), "name: 'x: y #': expected letters, digits"),
    (("--tenants", ","), "tenants: ',': expected names with commas between"),
    (("--path", "/{nope}"), "{nope} is not known"),
    (("--operation", "POST /runs"), "give that, too"),
    (("--openapi", str(ROOT / "docs" / "targets.md")), "targets.md:8:5: neither JSON nor YAML that can be read"),
    (("--openapi", str(ROOT / "docs" / "openapi.yaml"), "--operation", "GET /nope"), "it has GET /service, POST /runs"),
    (("-o", "/nowhere/at/all.yaml"), "cannot be written"),
])  # fmt: skip
def test_what_cannot_be_made_is_told_in_one_line(options, said):
    done = init(*options)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_from_an_openapi_document(tmp_path):
    path, document = tmp_path / "t.yaml", tmp_path / "api.json"
    body = {"application/json": {"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    operation = {"requestBody": {"content": body}, "responses": {"200": {}, "503": {}}}
    parameters = [{"name": "id", "in": "path", "schema": {"type": "string", "enum": ["x7"]}}]
    paths = {"/a": {"get": {}}, "/items/{id}": {"parameters": parameters, "post": operation}}
    document.write_text(json.dumps({"servers": [{"url": "http://127.0.0.1:7777/v1"}], "paths": paths}))
    done = init("--openapi", str(document), "-o", path)
    assert done.returncode == 0, done.stderr
    target = load_target(path).target
    assert (target.url, target.call.method, target.call.path) == ("http://127.0.0.1:7777/v1", "POST", "/items/{id}")
    assert target.call.body == {"n": 1}
    assert target.data == {"id": ["x7"]}
    assert {(rule.status, rule.outcome) for rule in target.answers.outcome} == {
        (429, "throttled"), (503, "dependency_unavailable"),
    }  # fmt: skip
