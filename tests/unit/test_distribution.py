"""Workers on the command line and in the Kubernetes example: what is asked for is what the commands understand."""

from __future__ import annotations

import json
import os

import pytest
import yaml
from click.testing import CliRunner

from harness.cli import distribution, overload
from harness.cli.distribution import announcing
from harness.profile.loader import from_document
from harness.target.driver_process import ALONE, Workers
from harness.workload.dealing import WHOLE, deal, items_of
from tests.conftest import ROOT

KUBERNETES = ROOT / "docs" / "examples" / "kubernetes"


def documents():
    return [document for path in sorted(KUBERNETES.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]


def of_kind(kind, name):
    (found,) = [one for one in documents() if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def container(job):
    (found,) = of_kind("Job", job)["spec"]["template"]["spec"]["containers"]
    return found


def options(job):
    command, *rest = container(job)["args"]
    return command, dict(each.lstrip("-").split("=", 1) for each in rest if each.startswith("--"))


def test_the_kubernetes_manifests_hold_what_kubernetes_needs():
    kinds = sorted((one["apiVersion"], one["kind"]) for one in documents())
    assert kinds == [
        ("batch/v1", "Job"),
        ("batch/v1", "Job"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("v1", "Service"),
    ]
    for job in ("overload-master", "overload-workers"):
        spec = of_kind("Job", job)["spec"]
        assert spec["backoffLimit"] == 0, "a trial is never repeated by itself"
        pod = spec["template"]["spec"]
        assert pod["restartPolicy"] == "Never"
        assert pod["automountServiceAccountToken"] is False
        assert container(job)["envFrom"] == [{"secretRef": {"name": "overload-tokens"}}]
        assert container(job)["resources"]["requests"]["cpu"] == "1"
    service, labels = of_kind("Service", "overload-master"), of_kind("Job", "overload-master")["spec"]["template"]
    assert service["spec"]["selector"].items() <= labels["metadata"]["labels"].items()
    assert service["spec"]["publishNotReadyAddresses"] is True
    policy = of_kind("NetworkPolicy", "overload-master")["spec"]
    assert policy["podSelector"]["matchLabels"] == labels["metadata"]["labels"]


def test_the_kubernetes_example_is_one_trial_that_its_workers_can_send():
    command, given = options("overload-master")
    assert command == "run"
    known = {option for parameter in overload.get_command(None, "run").params for option in parameter.opts}
    assert {f"--{name}" for name in given} <= known
    worker, its = options("overload-workers")
    assert worker == "worker"
    known = {option for parameter in overload.get_command(None, "worker").params for option in parameter.opts}
    assert {f"--{name}" for name in its} <= known
    jobs = of_kind("Job", "overload-workers")["spec"]
    assert int(given["remote-workers"]) == jobs["completions"] == jobs["parallelism"] == 4
    port = of_kind("Service", "overload-master")["spec"]["ports"][0]["port"]
    assert its["master"] == f"overload-master:{port}"
    assert given["listen"].endswith(f":{port}")
    inputs = of_kind("ConfigMap", "overload-profile")["data"]
    profile = from_document(yaml.safe_load(inputs["profile.yaml"])).profile
    tokens = json.loads(of_kind("Secret", "overload-tokens")["stringData"]["OVERLOAD_TOKENS"])
    assert set(tokens) == set(profile.tenants)
    shares = deal(items_of(profile, {}), 4)
    assert {name for share in shares for name, part in share.parts.items() if part != WHOLE} == {"D"}
    assert max(share.load for share in shares) < 5_000


def test_the_target_of_the_kubernetes_example_is_sound(tmp_path):
    from harness.target.file import load_target

    path = tmp_path / "target.yaml"
    path.write_text(of_kind("ConfigMap", "overload-profile")["data"]["target.yaml"])
    assert load_target(path).target.name == "staging"


def test_one_process_has_no_arguments_and_several_have_them_all():
    assert ALONE.arguments == []
    assert Workers(2, 1, "10.0.0.5:5557", 30).arguments == [
        "--workers", "2", "--remote-workers", "1", "--join-within-s", "30", "--listen", "10.0.0.5:5557",
    ]  # fmt: skip


def test_where_to_listen_without_anybody_to_listen_to_is_refused():
    done = CliRunner().invoke(overload, ["run", str(ROOT / "profiles" / "steady.yaml"), "--listen", ":5557"])
    assert done.exit_code == 2
    assert "give --workers or --remote-workers, too" in done.output


def test_who_is_awaited_is_said_and_names_cannot_break_the_terminal(capsys):
    heard = []
    hears = announcing(heard.append)
    hears({"event": "waiting", "joined": ["worker-1", "\x1b[31mred"], "expected": 3, "address": "host:5557"})
    hears({"event": "progress"})
    said = capsys.readouterr().err
    assert said.startswith("waiting for workers: 2 of 3 are there (worker-1, ")
    assert said.endswith("start the others with: overload worker --master host:5557\n")
    assert "\x1b" not in said
    assert heard == [{"event": "progress"}]


def test_the_command_becomes_the_worker(monkeypatch):
    became = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: became.append(arguments[1:]))
    done = CliRunner().invoke(overload, ["worker", "--master", "10.0.0.5", "--name", "w7", "--join-within", "5"])
    assert done.exit_code == 0
    assert became == [
        ["-m", "harness.live", "--worker", "--master", "10.0.0.5", "--join-within-s", "5", "--name", "w7"]
    ]


@pytest.mark.parametrize(
    ("given", "workers"),
    [
        ((0, 0, "", 60.0), ALONE),
        ((2, 0, "", 60.0), Workers(2)),
        ((0, 3, "0.0.0.0:9", 5.0), Workers(0, 3, "0.0.0.0:9", 5.0)),
    ],
)
def test_options_become_workers(given, workers):
    assert distribution.workers_of(*given) == workers
