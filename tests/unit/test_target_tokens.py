"""Whose token goes where, and that none is kept: the order of sources, messages that show nothing, masking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput
from harness.target.model import TargetFile
from harness.target.tokens import MASKED, Redactor, credentials_of, secrets_of

AWAY = {"url": "https://staging.example", "allow": ["staging.example"], "limits": {"max_rate": "1/s"}}


def file(**more):
    return TargetFile.model_validate({"name": "shop", "url": "http://127.0.0.1:1", **more})


def test_the_variable_comes_first_then_the_shared_ones_then_what_the_stub_takes():
    named = file(credentials={"tenants": {"A": "TOKEN_A"}})
    environment = {"TOKEN_A": "a", "OVERLOAD_TOKENS": '{"A": "x", "B": "b"}'}
    assert credentials_of(named, ["A", "B"], environment) == {"A": "a", "B": "b"}
    assert credentials_of(file(), ["A", "B"], {"OVERLOAD_TOKENS": '{"B": "b"}'}) == {"A": "token-A", "B": "b"}


def test_a_service_elsewhere_that_names_no_credentials_is_sent_none():
    assert credentials_of(file(**AWAY), ["A"], {}) == {}


@pytest.mark.parametrize(("credentials", "environment", "said"), [
    ({"tenants": {"A": "TOKEN_A"}}, {}, "A: TOKEN_A"),
    ({"tenants": {"A": "TOKEN_A"}}, {"TOKEN_A": "hush"}, "no variable for the token of B"),
    ({"env": "T_{TENANT}"}, {"T_A": "hush\r\nX: y", "T_B": "hush"}, "the token of tenant 'A' is empty or has"),
    ({"env": "T_{TENANT}"}, {"T_A": "hush", "T_B": " "}, "the token of tenant 'B'"),
    ({}, {"OVERLOAD_TOKENS": "hush"}, "OVERLOAD_TOKENS is not a JSON object"),
])  # fmt: skip
def test_what_is_missing_or_wrong_is_named_and_never_shown(credentials, environment, said):
    with pytest.raises(BadInput) as told:
        credentials_of(file(credentials=credentials), ["A", "B"], environment)
    assert said in str(told.value)
    assert "hush" not in str(told.value)


def test_a_token_that_follows_from_the_name_is_no_secret():
    assert secrets_of({"A": "token-A", "B": "token-A", "C": "s3cret"}) == {"token-A", "s3cret"}


def test_masking():
    redactor = Redactor(["s3cret", "s3cret-longer", "abc"])
    assert redactor.masked("key s3cret-longer, s3cret!", 100) == f"key {MASKED}, {MASKED}!"
    assert redactor.masked("abc is no secret", 100) == "abc is no secret"
    assert redactor.masked("x" * 96 + "s3cret", 100) == "x" * 96 + MASKED[:4]


token = st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), min_size=4, max_size=30)


@given(
    tokens=st.lists(token, min_size=1, max_size=4), text=st.text(max_size=40), limit=st.integers(1, 200), data=st.data()
)
def test_no_token_is_left(tokens, text, limit, data):
    told = data.draw(st.sampled_from(tokens))
    at = data.draw(st.integers(0, len(text)))
    said = text[:at] + told + text[at:]
    masked = Redactor(tokens).masked(said, limit)
    assert len(masked) <= limit
    if not any(one in MASKED or MASKED[-3:] in one or one[:1] in "[" for one in tokens):
        assert not any(one in masked for one in tokens)
