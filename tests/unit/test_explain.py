"""`overload explain`: every check has a page with all its sections, and the terminal says the same."""

from __future__ import annotations

import json
import re

import pytest

from harness.callers.judge import CHECKS as CALLERS
from harness.checks import CHECKS
from harness.cli.explain import whole_names
from harness.errors import BadInput
from harness.report.explained import SECTIONS, explained, names, parameters_of, sections_of
from harness.shipped import PAGES_OF_CHECKS as PAGES
from tests.conftest import ROOT
from tests.unit.test_cli import overload

EVERY = sorted([*CHECKS, *CALLERS])


@pytest.mark.parametrize("name", EVERY)
def test_every_check_has_a_page_with_every_section(name):
    assert tuple(sections_of(name)) == SECTIONS
    assert all(len(text.split()) >= 8 for text in sections_of(name).values())
    assert (PAGES / f"{name}.md").read_text().startswith(f"# {name}\n")


def test_no_page_is_of_a_check_that_is_not_there_and_all_are_linked():
    pages = sorted(path.stem for path in PAGES.glob("*.md"))
    assert pages == EVERY
    linked = re.findall(r"\(checks/([a-z0-9_.]+)\.md\)", (ROOT / "docs" / "checks.md").read_text())
    assert sorted(linked) == EVERY


@pytest.mark.parametrize("name", EVERY)
def test_every_parameter_is_shown_as_a_profile_writes_it(name):
    made = explained(name)
    model = CHECKS[name].params if name in CHECKS else None
    if model is not None:
        assert [p.name for p in made.parameters] == list(model.model_fields)
    for parameter in made.parameters:
        assert parameter.default
        if parameter.unit == "time" and parameter.default != "left out":
            assert re.fullmatch(r"\d+(ns|us|ms|s|m|h)", parameter.default)
    if made.parameters:
        assert made.parameters_say


def test_what_is_printed_is_the_page_and_what_the_code_knows():
    done = overload("explain", "v07")
    assert done.returncode == 0
    flat = " ".join(done.stdout.split())
    for title in SECTIONS:
        assert title in done.stdout
    page = sections_of("v07.retry_after")
    assert " ".join(page["Why"].split()) in flat
    assert re.search(r"early +5ms +time", done.stdout)
    assert "retry_after_clipped: what is stated is clipped to a second, and retried" in done.stdout
    assert "twin_retry_after_later" in done.stdout
    assert "overload verify --only v07" in done.stdout
    assert "runs, dependencies, decisions" in done.stdout
    assert "`" not in done.stdout.partition("Catches")[0].partition("Evidence")[0]


def test_json_is_a_document_a_check():
    (made,) = json.loads(overload("explain", "v05", "--json").stdout)
    assert made["name"] == "v05.one_retry_owner"
    assert "three_layer_retry" in made["catches"]
    assert made["verify"] == ["v05"]
    assert {p["name"] for p in made["parameters"]} >= {"steps", "spread"}


def test_a_family_a_rule_and_a_whole_name_are_known():
    assert whole_names("v07") == ["v07.retry_after"]
    assert set(whole_names("retry_budget")) == {"agent.retry_budget", "caller.retry_budget"}
    assert whole_names("trial.on_time") == ["trial.on_time"]
    with pytest.raises(BadInput, match=r"there is no check 'v77'; did you mean v07\?"):
        whole_names("v77")
    done = overload("explain", "nonsense")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_without_a_name_all_are_listed():
    done = overload("explain")
    assert all(name in done.stdout for name in names())


def test_a_default_that_is_none_is_left_out():
    shown = {p.name: p.default for p in parameters_of(CHECKS["fairness.ordinary_unmoved"].params)}
    assert (shown["wait_up"], shown["served_down_pp"], shown["warm_up"]) == ("left out", "1", "1s")
