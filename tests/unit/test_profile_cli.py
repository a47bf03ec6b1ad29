"""`overload profile check` and `overload profile schema`: exit codes, streams, JSON, and examples that run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from harness.cli import main
from harness.cli.profile import check

ROOT = Path(__file__).parents[2]


@pytest.fixture
def overload(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)

    def run(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def test_a_sound_profile_is_described(overload):
    code, out, err = overload("profile", "check", "profiles/worked_example.yaml")
    assert (code, err) == (0, "")
    assert "burst (30s to 70s): 64/s offered against a capacity of 40/s" in out
    assert out.splitlines()[-1] == "Variants: no_replans, tenant_cap, fair_queues, budget, workers_doubled."


def test_the_variant_and_the_scale_are_named(overload):
    _, out, _ = overload(
        "profile", "check", "profiles/worked_example.yaml", "--variant", "budget", "--time-scale", "0.25"
    )
    assert out.splitlines()[1:3] == [
        "At time scale 0.25: durations and rates below are scaled.",
        "With variant budget.",
    ]


def test_json_is_for_programs(overload):
    code, out, _ = overload("profile", "check", "profiles/worked_example.yaml", "--json")
    described = json.loads(out)
    assert code == 0
    assert described["worst_case_rate_per_s"] == 624
    assert described["phases"][1]["capacity_per_s"] == [40, 40]
    assert described["stub_refusal"] is None


def test_every_problem_is_on_standard_error_and_the_code_is_2(overload, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("name: a\nduration: 5\ntenants: {A: {rate: 1}}\n")
    code, out, err = overload("profile", "check", path)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"{path}:2:11: duration: '5': expected a duration with its unit, such as 200ms, 2s, 5m or 1h",
        f"{path}:3:21: tenants.A.rate: '1': expected a rate with its unit, such as 8/s, 0.5/s or 20/m",
    ]


def test_a_broken_variant_is_found_though_nobody_asked_for_it(overload, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("name: a\nduration: 5s\ntenants: {A: {rate: 1/s}}\nvariants: {v: {tenants.A.rate: 7}}\n")
    code, _, err = overload("profile", "check", path)
    assert code == 2
    assert (
        err
        == f"{path}:4:32: variant v: tenants.A.rate: '7': expected a rate with its unit, such as 8/s, 0.5/s or 20/m\n"
    )


def test_an_unknown_check_is_refused_with_those_that_there_are(overload, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("name: a\nduration: 5s\ntenants: {A: {rate: 1/s}}\nchecks: [fairness.ordinary_unmovd]\n")
    code, _, err = overload("profile", "check", path)
    assert code == 2
    assert (
        "checks.0: 'fairness.ordinary_unmovd': there is no such check; did you mean 'fairness.ordinary_unmoved'?" in err
    )


def test_a_file_that_is_not_there_is_bad_input(overload):
    code, out, err = overload("profile", "check", "profiles/none.yaml")
    assert (code, out) == (2, "")
    assert "none.yaml" in err


def test_the_schema_is_json(overload):
    code, out, _ = overload("profile", "schema")
    assert code == 0
    assert json.loads(out)["title"] == "overload profile"


def test_the_examples_of_the_help_run(overload):
    examples = [line.strip() for line in (check.help or "").splitlines() if line.strip().startswith("overload ")]
    assert len(examples) == 4
    for example in examples:
        code, _, err = overload(*shlex.split(example)[1:])
        assert (code, err) == (0, "")
