"""A wheel is whole: what `overload` reads beside its code comes with it, and nothing that is for its developers only.

Builds a real wheel, unpacks it where no checkout is near, and runs commands from a third folder. The libraries are
those of this interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from harness.shipped import shown

pytest.importorskip("hatchling")

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
# `-P` keeps the folder in which it runs out, `-S` the checkout that is installed here in editable form.
RUN = "import sys; sys.argv[0] = 'overload'; from harness.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, "-c", BUILD, folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs overload as the wheel has it. No Python file of the checkout can be reached."""
    site = tmp_path_factory.mktemp("site")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    paths = os.pathsep.join([str(site), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "COLUMNS": "200"}

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-S", "-c", RUN, *words], cwd=elsewhere, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{words}: {done.stdout}\n{done.stderr}"
        assert str(ROOT) not in done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    run.site = site
    return run


def test_a_wheel_holds_every_profile_and_every_page_of_a_check_and_nothing_for_developers(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("profiles", "docs/checks"):
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and not path.name.startswith(".")]
        assert files
        assert {f"harness/_shipped/{path.relative_to(ROOT)}" for path in files} <= names
    for package in ("harness", "stub_service"):
        made = [path for path in (ROOT / package).rglob("*") if path.is_file() and path.suffix != ".pyc"]
        assert {str(path.relative_to(ROOT)) for path in made} <= names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"harness", "stub_service"}
    assert not [name for name in names if "/test" in name or name.endswith(".pyc")]


def test_what_is_read_beside_the_code_is_found_from_a_wheel_in_any_folder(installed):
    worked = installed.site / "harness" / "_shipped" / "profiles" / "worked_example.yaml"
    assert "fairness.ordinary_unmoved" in installed("explain", "fairness.ordinary_unmoved")
    assert "verify --only v05" in installed("explain", "v05.one_retry_owner")
    assert "40" in installed("profile", "check", str(worked))
    assert str(worked) in " ".join(installed("profile", "check", "profiles/worked_example.yaml", code=2).split())
    judged = json.loads(installed("verify", "--preset", "first", "--simulate", "--json", "--reports", "r"))
    assert judged["exit_code"] == 0
    installed("defects", "--only", "retry_tokens_never_spent", "--jobs", "1")


def test_a_path_is_shown_short_where_it_lies_below_and_whole_elsewhere(monkeypatch, tmp_path):
    file = tmp_path / "profiles" / "a.yaml"
    monkeypatch.chdir(tmp_path)
    assert shown(file) == "profiles/a.yaml"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert shown(file) == str(file)
