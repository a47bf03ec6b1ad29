"""The pages can be followed: links lead somewhere, what is named exists, and every command line is one that works."""

from __future__ import annotations

import importlib.util
import re

import click
import pytest

from harness import verify
from harness.errors import BadInput
from harness.profile.loader import variant_names
from stub_service.defects.registry import DEFECTS
from tests.conftest import ROOT
from tests.unit.docs_pages import (
    PAGES,
    Line,
    anchors,
    command_of,
    given,
    is_placeholder,
    lines_of_block,
    lines_of_ci,
    lines_of_help,
    lines_of_page,
    lines_of_profile,
    links,
    other_commands,
    prose_and_blocks,
)

PROFILES = sorted((ROOT / "profiles").rglob("*.yaml")) + sorted((ROOT / "docs" / "examples").rglob("*.yaml"))
CI = sorted((ROOT / "docs" / "ci").glob("*.y*ml"))
LINES = [
    *(line for example in CI for line in lines_of_ci(example)),
    *(line for page in PAGES for line in lines_of_page(page)),
    *(line for profile in PROFILES for line in lines_of_profile(profile)),
    *lines_of_help(),
]
PLACES = sorted({line.where for line in LINES})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    lost = []
    for target in links(page):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            lost.append(target)
    assert lost == []


def test_every_page_can_be_reached_from_the_first_one():
    """If this fails: link the page where its readers come from; docs/index.md is always right."""
    ahead, reached = [ROOT / "README.md"], set()
    while ahead:
        page = ahead.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        ahead += [(page.parent / target.partition("#")[0]).resolve() for target in links(page)]
    lost = [str(page.relative_to(ROOT)) for page in PAGES if page not in reached and page.parent.name != "decisions"]
    assert lost == []


def test_files_that_are_named_exist():
    """Pages, sources and profiles name pages, sources and profiles by their path from the root."""
    own = r"(?<![\w/.-])((?:docs|harness|stub_service|profiles|tests|benchmarks)/[\w./-]*\.(?:md|py|yaml|json|js))\b"
    sources = [file for top in ("harness", "stub_service") for file in sorted((ROOT / top).rglob("*.py"))]
    lost = []
    for file in [*PAGES, *PROFILES, *sources]:
        lost += [
            f"{file.relative_to(ROOT)}: {name}"
            for name in re.findall(own, file.read_text())
            if not (ROOT / name).exists()
        ]
    assert lost == []


def test_there_are_command_lines_to_look_at():
    """So that a change of form does not make the tests below vacuous."""
    assert sum(line.whole for line in LINES) > 150
    assert sum(not line.whole for line in LINES) > 40
    assert set(PLACES) >= {"README.md", "docs/verify.md", "profiles/steady.yaml", "overload run --help"}


@pytest.mark.parametrize("where", PLACES)
def test_every_command_line_is_one_that_works(where):
    """Its command and options exist, its values can be had, and what it names is there."""
    wrong = []
    for line in LINES:
        if line.where == where:
            try:
                look_at(line)
            except (click.ClickException, BadInput, AssertionError) as error:
                wrong.append(f"{line}: {error.format_message() if isinstance(error, click.ClickException) else error}")
    assert wrong == []


def look_at(line: Line) -> None:
    command, words = command_of(line.words)
    if isinstance(command, click.Group) and not words:
        return
    try:
        values = given(command, words)
    except click.BadOptionUsage:
        if line.whole:
            raise
        values = given(command, [*words, "VALUE"])  # a text may name an option without its value
    asks = any(param.is_eager and param.name in values for param in command.params)
    for param in command.params:
        told = values.get(param.name or "", [])
        complete = bool(told) or asks or not (line.whole and param.required)
        assert complete, f"lacks {param.human_readable_name}"
        for value in told:
            if not isinstance(param.type, click.Path) and not is_placeholder(value):
                param.type.convert(value, param, click.Context(command))
            if re.match(r"(profiles|docs)/", value) and not is_placeholder(value):
                assert (ROOT / value).exists(), f"there is no {value}"
    names_exist(command, values)


def names_exist(command: click.Command, values: dict[str, list[str]]) -> None:
    """Situations, defects and variants that a command line names."""
    for defect in values.get("defect", []):
        assert is_placeholder(defect) or defect in DEFECTS, f"there is no defect {defect}"
    if command.callback is not None and command.callback.__module__ == "harness.cli.verify":
        for only in values.get("only", []):
            assert is_placeholder(only) or verify.chosen(only, "all")
    for profile in values.get("profile", []):
        known = variant_names(ROOT / profile) if (ROOT / profile).is_file() else ()
        for variant in values.get("variant", []):
            assert not known or is_placeholder(variant) or variant in known, f"there is no variant {variant}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_make_and_python_are_asked_for_is_there(page):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    wrong = []
    for program, name in other_commands(page):
        if program == "make" and name not in targets:
            wrong.append(f"make {name}")
        own = name.split(".")[0] in ("harness", "stub_service", "benchmarks", "tests")
        if program == "python -m" and own and importlib.util.find_spec(name) is None:
            wrong.append(f"python -m {name}")
    assert wrong == []


def test_what_the_reader_of_pages_takes_for_what():
    """The helper itself: comments and explanations are cut off, spans that run over a line are joined."""
    prose, blocks = prose_and_blocks("a `overload\nrun X`\n\n    overload demo   # now\n\n```yaml\nb: 1\n```\nend\n")
    assert "overload\nrun X" in prose
    assert [block.strip() for block in blocks] == ["overload demo   # now", "b: 1"]
    (line,) = lines_of_block("x", "TOKEN='a b' .venv/bin/overload judge --limit 30 -- python a.py | cat")
    assert line.words == ("judge", "--limit", "30", "--", "python", "a.py")
    for words in (("nothing",), ("run", "x.yaml", "--nothing"), ("run", "--variant"), ("demo", "x")):
        with pytest.raises(click.UsageError):
            given(*command_of(words))
