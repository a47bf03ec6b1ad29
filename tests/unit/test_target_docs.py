"""docs/targets.md and the schema of target files: every example loads, every key has one, and nothing has drifted."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from harness.target.file import target_from_document
from harness.target.model import TargetFile
from harness.target.schema import target_schema
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "targets.md").read_text()
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)]


def test_the_schema_in_the_docs_is_the_current_one():
    """If this fails: overload target schema > docs/target.schema.json"""
    assert json.loads((ROOT / "docs" / "target.schema.json").read_text()) == target_schema()


@pytest.mark.parametrize("document", EXAMPLES, ids=lambda document: document["name"])
def test_every_example_is_sound(document, tmp_path):
    for file in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / file).touch()
    assert target_from_document(document, tmp_path).target.name == document["name"]


def parts_in(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [part for inner in get_args(kind) for part in parts_in(inner)]


def keys_of(model: type[BaseModel]) -> set[tuple[str, str]]:
    """(model, key) of everything that a file may say."""
    found = set()
    for name, field in model.model_fields.items():
        found.add((model.__name__, field.alias or name))
        for part in parts_in(field.annotation):
            found |= keys_of(part)
    return found


def keys_in(model: type[BaseModel], document: Any) -> set[tuple[str, str]]:
    found = set()
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in document:
            continue
        found.add((model.__name__, key))
        for part in parts_in(field.annotation):
            inner = document[key]
            inner = inner if isinstance(inner, list) else [inner]
            inner += [each for one in inner if isinstance(one, dict) for each in one.values()]
            for one in inner:
                if isinstance(one, dict):
                    found |= keys_in(part, one)
    return found


def test_every_key_has_an_example():
    shown = set().union(*(keys_in(TargetFile, document) for document in EXAMPLES))
    assert keys_of(TargetFile) - shown == set()


def test_a_key_without_an_example_is_seen():
    without = [{key: value for key, value in one.items() if key != "service_time"} for one in EXAMPLES]
    shown = set().union(*(keys_in(TargetFile, document) for document in without))
    assert keys_of(TargetFile) - shown == {("TargetFile", "service_time")}
