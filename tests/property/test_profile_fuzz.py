"""Whatever the text: a Loaded or a ProfileError, and nothing else."""

from __future__ import annotations

import copy
import string
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.profile import nodes
from harness.profile.base import DurationNs, Part
from harness.profile.describe import describe
from harness.profile.errors import ProfileError
from harness.profile.loader import Loaded, from_document, load, variant_names
from harness.profile.salvage import sound_parts

WORKED = Path(__file__).parents[2] / "profiles" / "worked_example.yaml"
TEXT = WORKED.read_text()
DOCUMENT = yaml.safe_load(TEXT)

quick = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Params(Part):
    wait: DurationNs = 0


CHECKS: dict[str, type[Part]] = {"fairness.ordinary_unmoved": Params}

YAMLISH = st.text(
    alphabet=st.sampled_from(list("abA019 \n\t:-?[]{},&*!|>'\"%@`#.~<\\\u00e9\u2028\ufeff\U0001f600")), max_size=80
)
WORDS = """name tenants rate : [ ] { } , &a *a !!str | > 8/s duration 10s variants checks service phases calm null true
1e9 0 ' " --- ... << # \\ud800 9999999999999999999"""
TOKENS = st.lists(
    st.sampled_from([*WORDS.split(), " ", "\n", "  ", "- ", "? ", "%YAML 1.2"]),
    max_size=60,
).map("".join)


def is_judged(path: Path, **options) -> None:
    """The property."""
    judged = judge(lambda: load(path, checks=CHECKS, **options))
    if isinstance(judged, Loaded):
        assert from_document(judged.document).document == judged.document


def judge(read: Callable[[], Loaded]) -> Loaded | ProfileError:
    try:
        judged: Loaded | ProfileError = read()
    except ProfileError as error:
        judged = error
    if isinstance(judged, Loaded):
        assert all(sentence.isprintable() for sentence in describe(judged.profile).sentences)
    else:
        assert judged.problems
        assert all(line.isprintable() for line in str(judged).split("\n"))
    return judged


@quick
@given(
    data=st.one_of(YAMLISH, TOKENS).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=200)
)
def test_any_bytes_are_judged(tmp_path, data):
    path = tmp_path / "p.yaml"
    path.write_bytes(data)
    is_judged(path)


@quick
@given(at=st.integers(0, len(TEXT)), cut=st.integers(0, 40), put=st.one_of(YAMLISH, TOKENS))
def test_any_edit_of_a_sound_profile_is_judged(tmp_path, at, cut, put):
    path = tmp_path / "p.yaml"
    path.write_text(TEXT[:at] + put + TEXT[at + cut :], encoding="utf-8")
    is_judged(path)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["8/s", "0/s", "10000000/s", "0s", "720h", "1ns", "99999999999h", "A", "D", "", "poisson", "lognormal"]
    )
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["rate", "from", "to", "base", "steps", "A", "name", "mean"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


def paths(value, at=()):
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*at, key))


PATHS = [path for path in paths(DOCUMENT) if path]


def mutated(path, value, how):
    document = copy.deepcopy(DOCUMENT)
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    if how == "drop":
        del parent[path[-1]]
    elif how == "add" and isinstance(parent, dict):
        parent["added"] = value
    else:
        parent[path[-1]] = value
    return document


@settings(quick, max_examples=150)
@given(path=st.sampled_from(PATHS), value=VALUES, how=st.sampled_from(["replace", "drop", "add"]))
def test_any_mutation_of_a_sound_document_is_judged(path, value, how):
    document = mutated(path, value, how)
    judge(lambda: from_document(document, checks=CHECKS, time_scale=0.25))


@settings(quick, max_examples=100)
@given(path=st.sampled_from(PATHS), value=VALUES)
def test_what_is_sound_in_a_broken_document_can_always_be_told(path, value):
    document = mutated(path, value, "replace")
    assert isinstance(sound_parts({key: inner for key, inner in document.items() if key != "variants"}), dict)


@quick
@given(
    text=st.one_of(
        st.text(max_size=40),
        st.tuples(st.sampled_from(["tenants.D.rate", "a.b", '"x"', "seed"]), YAMLISH).map("=".join),
    )
)
def test_any_set_and_variant_is_judged(text):
    is_judged(WORKED, sets=[text])
    is_judged(WORKED, variant=text)


@quick
@given(scale=st.floats())
def test_any_time_scale_is_judged(scale):
    is_judged(WORKED, time_scale=scale)


plain_yaml = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.text(string.printable + "\u00e9\u4e2d", max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(string.ascii_letters, min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@quick
@given(value=plain_yaml)
def test_what_a_yaml_writer_wrote_is_composed_to_the_same_value(value):
    """PyYAML quotes whatever YAML 1.1 would read otherwise, so nothing may be lost on the way."""
    text = yaml.safe_dump(value, allow_unicode=True)
    if nodes._FORBIDDEN.search(text):
        return
    node, problems = nodes.compose(text, "p")
    if not problems:
        assert node.plain() == value


@pytest.mark.parametrize("names", [variant_names])
def test_names_of_variants_are_judged_too(tmp_path, names):
    path = tmp_path / "p.yaml"
    path.write_text("[a]")
    assert names(path) == ()
    path.write_text("a: [")
    with pytest.raises(ProfileError):
        names(path)
