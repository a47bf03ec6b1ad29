"""`overload verify` over real HTTP: the healthy stub, a defect, a stub that runs already, and Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from harness import verify
from harness.checks.verdict import Word
from harness.profile.loader import load
from harness.simulate.service import capacity_config
from harness.target.stub import StubProcess
from tests.conftest import ROOT
from tests.live.driving import skip_if_late

pytestmark = pytest.mark.live


def command(*arguments):
    return [sys.executable, "-m", "harness", "verify", *map(str, arguments)]


def overload_verify(*arguments):
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_the_bundled_stub_is_verified_without_configuration(tmp_path):
    done = overload_verify("--only", "v09,coalesced", "--json", "--reports", tmp_path)
    assert "Traceback" not in done.stderr
    made = json.loads(done.stdout)
    assert made["exit_code"] == done.returncode
    assert [one["check"] for one in made["checks"]] == ["v09.ambiguous_write", "capacity.coalesced"]
    for one in made["checks"]:  # on a machine that is too busy the harness may be late, twice: no word on the stub
        late = one["tries"] == 2 and one["sentence"].startswith("Not to be trusted (trial.on_time)")
        assert one["word"] == ("INVALID" if late else "PASS"), one
    assert {one["check"] for one in made["trials"]} >= {"trial.conserved", "trial.on_time", "trial.leak_free"}
    assert all(one["samples"] > 0 for one in made["checks"])


def test_three_layers_that_retry_are_named_with_their_attempts(tmp_path):
    done = overload_verify("--only", "v05", "--defect", "three_layer_retry", "--reports", tmp_path)
    late = "Not to be trusted (trial.on_time)" in done.stdout
    assert done.returncode == (4 if late else 1), done.stdout + done.stderr
    assert late or "27 attempts by 3 layers" in done.stdout
    assert late or "Caught by v05.one_retry_owner." in done.stdout


def test_a_stub_that_runs_already_is_verified_where_it_stands(tmp_path):
    (case,) = verify.chosen("v09")
    (tmp_path / "evidence").mkdir()
    with StubProcess(None, tmp_path / "evidence", capacity=capacity_config(load(case.path).profile)) as stub:
        (outcome,) = verify.run([case], verify.Options(tmp_path, stub.url))
        assert outcome.judged.trial.manifest["target"] == {"kind": "url", "url": stub.url}
        skip_if_late(outcome.judged.verdicts)
        assert outcome.verdict.word is Word.PASS, outcome.verdict
        stub.check_alive()


def test_ctrl_c_writes_what_there_is_and_says_invalid(tmp_path):
    with subprocess.Popen(
        command("--only", "v02,v09", "--reports", tmp_path),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    ) as running:  # fmt: skip
        assert "v09" in running.stderr.readline()  # v02, which runs alone, is next
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 4, out + err
    assert "Traceback" not in err
    assert out.startswith("INVALID")
    ended = [json.loads((folder / "manifest.json").read_text())["ended"] for folder in tmp_path.iterdir()]
    assert all(one is not None for one in ended)
