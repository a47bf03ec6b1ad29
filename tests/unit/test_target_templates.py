"""Requests filled with seeded data; nothing that fills a place can leave it."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.target.model import Numbers, Request
from harness.target.templates import Draws, RequestTemplate, names_of, parse, value_of


def test_a_request_is_filled():
    request = Request(
        method="PUT",
        path="/items/{id}?q={word}&b={{x}}",
        headers={"X-Call": "c-{call}"},
        body={"n": "{n}", "text": "a {word} {n}", "list": ["{items}"], "deep": {"k": None, "t": True}},
    )
    filled = RequestTemplate(request).fill({"id": "a/b", "word": "ü &", "n": 7, "items": [1, 2], "call": "0.1"})
    assert filled.path == "/items/a%2Fb?q=%C3%BC%20%26&b={x}"
    assert filled.headers == (("X-Call", "c-0.1"), ("Content-Type", "application/json"))
    assert orjson.loads(filled.body) == {"n": 7, "text": "a ü & 7", "list": [[1, 2]], "deep": {"k": None, "t": True}}
    assert names_of(request) == {"id", "word", "call", "n", "items"}


def test_a_text_body_is_sent_as_text():
    filled = RequestTemplate(Request(body="<q>{word}</q>", headers={"content-type": "text/xml"})).fill({"word": "x"})
    assert filled.body == b"<q>x</q>"
    assert filled.headers == (("content-type", "text/xml"),)


def test_no_body_no_content_type():
    assert RequestTemplate(Request(method="GET", path="/a")).fill({}).headers == ()


@pytest.mark.parametrize("text", ["{", "a}", "{a b}", "{}", "{1}"])
def test_a_brace_that_stands_alone(text):
    with pytest.raises(ValueError, match="stands alone"):
        parse(text)


@given(st.text(), st.text())
def test_no_value_leaves_its_place(value, other):
    filled = RequestTemplate(Request(path="/a/{v}/z", headers={"X": "{v}{o}"}, body={"v": "{v}"})).fill(
        {"v": value, "o": other}
    )
    assert filled.path.startswith("/a/")
    assert filled.path.endswith("/z")
    assert filled.path.count("/") == 3
    assert not set(filled.path) & set(" \r\n?#")
    (_, header), _ = filled.headers
    assert not set(header) & set("\r\n\x00")
    header.encode("latin-1")


def test_data_is_the_same_for_the_same_seed_tenant_and_sequence():
    data = {"word": ["a", "b", "c"], "n": Numbers.model_validate({"from": 1, "to": 9})}
    one, again, other = (Draws(data, seed) for seed in (1, 1, 2))
    rows = [one.of("A", seq) for seq in range(50)]
    assert rows == [again.of("A", seq) for seq in range(50)] != [other.of("A", seq) for seq in range(50)]
    assert {row["word"] for row in rows} == {"a", "b", "c"}
    assert {row["n"] for row in rows} <= set(range(1, 10))
    assert len({row["uuid"] for row in rows}) == 50


def test_part_of_a_body():
    assert value_of([{"t": "{tool}"}], {"tool": "search"}) == [{"t": "search"}]
