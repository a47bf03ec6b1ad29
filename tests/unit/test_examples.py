"""docs/examples: profiles and target files are valid, each may be sent to the other, and each page names its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import checks
from harness.profile.loader import load
from harness.target.file import load_target
from harness.target.session import refuse

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
SERVICES = ("nginx", "haproxy", "retrying_proxy", "redis_limits", "litellm")


@pytest.mark.parametrize("name", SERVICES)
def test_an_example_may_be_sent(name):
    target = load_target(EXAMPLES / name / "target.yaml")
    profiles = [path for path in (EXAMPLES / name).glob("*.yaml") if "tenants:" in path.read_text()]
    assert profiles
    for path in profiles:
        refuse(target, load(path, checks=checks.PARAMETERS).profile, 1.0)


@pytest.mark.parametrize("name", SERVICES)
def test_a_page_names_files_that_there_are(name):
    page = (EXAMPLES / name / "README.md").read_text()
    named = set(re.findall(rf"docs/examples/{name}/([\w.-]+)", page))
    assert "target.yaml" in named
    assert [file for file in named if not (EXAMPLES / name / file).is_file()] == []
    unnamed = {path.name for path in (EXAMPLES / name).iterdir() if path.is_file()} - {"README.md"}
    assert [file for file in sorted(unnamed) if file not in page and file != "common.conf"] == []


def test_the_index_names_every_service():
    index = (EXAMPLES / "README.md").read_text()
    assert [name for name in SERVICES if f"({name}/README.md)" not in index] == []
