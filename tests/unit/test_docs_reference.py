"""docs/reference: every key of profiles and target files, with a meaning, and as the models have it now."""

from __future__ import annotations

import pytest

from harness.profile.reference import markdown, models, profile_page
from harness.profile.schema import properties
from harness.target.reference import target_page
from tests.conftest import ROOT

PAGES = {"profile": profile_page(), "target": target_page()}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_the_current_one(name):
    """If this fails: python -m harness.profile.reference > docs/reference/profile.md (or target)."""
    assert (ROOT / "docs" / "reference" / f"{name}.md").read_text() == markdown(PAGES[name])


@pytest.mark.parametrize("name", PAGES)
def test_every_key_has_a_meaning_and_no_meaning_outlives_its_key(name):
    """If this fails: add the key to harness/profile/meanings.py (or harness/target/meanings.py), or take it out."""
    page = PAGES[name]
    keys = {f"{model}.{key}" for model, schema in models(page) for key in properties(schema)}
    told = {f"{model}.{key}" for model, lines in page.meanings.items() for key, line in lines.items() if line}
    assert sorted(keys - told) == []
    assert sorted(told - keys) == []


def test_types_units_bounds_and_defaults_are_told():
    page = markdown(PAGES["profile"])
    for row in (
        "| `duration` | duration | needed | How long calls are made. |",
        "| `drain` | duration | `10s` | How long calls in flight are awaited after the trial. |",
        "| `rate` | rate | needed | Tokens added. |",
        "| `tenants` | name → [Tenant](#tenant) | needed | Who calls: tenant's name -> what it does. |",
        "| `values` | whole number from 1 to 1,000,000 | needed | How many tenants it claims to be. |",
        "| `order` | `parallel` or `sequence` | `parallel` | All at once, or one after another. |",
    ):
        assert row in page


def test_editors_show_what_a_key_means():
    for page in PAGES.values():
        for _, model in models(page):
            assert all(value["description"] for value in properties(model).values())
