"""The examples for CI as documents: the keys that their servers need, and that both do the same."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from harness.cli import COMMANDS
from tests.conftest import ROOT
from tests.unit.test_cli import overload

FOLDER = ROOT / "docs" / "ci"
GITHUB, GITLAB = (yaml.safe_load((FOLDER / name).read_text()) for name in ("github.yml", "gitlab.yml"))
JOB = GITHUB["jobs"]["overload"]


def scripts() -> dict[str, str]:
    found = {f"github {step['name']}": step["run"] for step in JOB["steps"] if "run" in step}
    made = GITLAB["overload"]
    return found | {f"gitlab {key}": "\n".join(made[key]) for key in ("before_script", "script", "after_script")}


def test_github_has_the_keys_that_a_workflow_needs():
    assert set(GITHUB) == {"name", True, "permissions", "concurrency", "env", "jobs"}  # YAML 1.1 reads `on` as true
    assert set(GITHUB[True]) == {"pull_request", "workflow_dispatch"}
    assert JOB["runs-on"] != "ubuntu-latest"  # another machine one day, and every figure with it
    assert isinstance(JOB["timeout-minutes"], int)
    assert GITHUB["permissions"] == {"contents": "read"}
    for step in JOB["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert set(step) <= {"name", "uses", "run", "with", "if"}
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])  # a tag can be moved; a commit cannot
        assert re.fullmatch(r"\$\{\{ .+ \}\}", step.get("if", "${{ x }}"))
    kept = JOB["steps"][-1]
    assert (kept["if"], kept["with"]["path"]) == ("${{ always() }}", "ci-reports")


def test_gitlab_has_the_keys_that_a_job_needs():
    job = GITLAB["overload"]
    assert job["stage"] in GITLAB["stages"]
    assert set(job) == {
        "stage", "image", "tags", "resource_group", "timeout", "rules", "variables", "before_script", "script",
        "after_script", "artifacts",
    }  # fmt: skip
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"]["junit"] == "ci-reports/*.xml"
    assert all(isinstance(value, str) for value in job["variables"].values())  # GitLab takes nothing else
    assert all(isinstance(line, str) for key in ("before_script", "script", "after_script") for line in job[key])


def test_no_bare_name_is_installed():
    """What a public index has under the name of this project need not be this project."""
    pages = [*FOLDER.iterdir(), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    assert [
        page.name for page in pages if re.search(r"pip install (-U |--upgrade )?overload\b", page.read_text())
    ] == []
    assert re.fullmatch(r"\./overload-[\d.]+-py3-none-any\.whl", GITHUB["env"]["OVERLOAD"])


def test_every_pin_says_of_which_version_it_is():
    pins = re.findall(r"uses: .*", (FOLDER / "github.yml").read_text())
    assert len(pins) == 3
    assert all(re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", pin) for pin in pins)


def test_both_mean_the_same():
    variables = GITLAB["overload"]["variables"]
    assert {name: variables[name] for name in GITHUB["env"]} == GITHUB["env"]
    assert (ROOT / variables["PROFILE"]).is_file()


@pytest.mark.parametrize("name", list(scripts()))
def test_every_step_is_a_script_that_bash_reads(name):
    done = subprocess.run(["bash", "-n"], input=scripts()[name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_option_that_they_use_is_there():
    said = "\n".join(scripts().values()).replace("\\\n", " ")
    found = re.findall(r"overload (\w+)( save)?([^\n|&;]*)", said)
    assert {name for name, _, _ in found} == {"stub", "run", "diff", "baseline"}
    for name, sub, rest in found:
        assert name in COMMANDS
        known = overload(name, *sub.split(), "--help").stdout
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in known, (name, option)
