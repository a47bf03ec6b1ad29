"""`overload shadow` from the command line: every example of its help runs, bad input is one line."""

import gzip
import json
import re
import shlex
from pathlib import Path

import pytest

from harness.cli.shadow import command as shadow

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"


@pytest.fixture
def run(overload):
    return overload


def clf(at, tenant, status=200):
    stamp = f"17/May/2015:10:{at // 60:02d}:{at % 60:02d} +0000"
    return f'{tenant} - - [{stamp}] "GET /a HTTP/1.1" {status} 1 "-" "-"\n'


@pytest.fixture
def logs(tmp_path):
    """Two minutes: one tenant every second, another that comes thirty times a second for half a minute."""
    calls = [(at, "198.18.0.3", 200) for at in range(120) for _ in range(4)]
    calls += [(at, "198.18.0.7", 429 if at % 3 else 200) for at in range(40, 70) for _ in range(30)]
    text = "".join(clf(*call) for call in sorted(calls))
    (tmp_path / "access.log").write_text(text)
    (tmp_path / "access.log.gz").write_bytes(gzip.compress(text.encode()))
    rows = [{"ts": 1_431_857_100 + i, "auth": {"sub": "ab"[i % 2]}, "took_ms": 5 + i % 3} for i in range(60)]
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, tokens in (("code", 10), ("chat", 200)):
        lines = [f"2023-11-16 18:17:{i:02d}.5,100,{tokens + i}\r\n" for i in range(60)]
        (tmp_path / f"{name}.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "".join(lines))
    return tmp_path


def examples(command):
    text = command.help.partition("Examples:")[2]
    return [line.strip() for line in text.splitlines() if line.strip().startswith("overload ")]


@pytest.mark.parametrize("example", examples(shadow))
def test_every_example_of_the_help_runs(run, logs, example):
    code, out, err = run(*shlex.split(example)[1:])
    assert (code, err) == (0, "")
    assert out


def test_the_table_shows_the_log_beside_each_policy(run, logs):
    code, out, _ = run(
        "shadow",
        "access.log.gz",
        "--workers",
        2,
        "--policy",
        "fair_queues:queue=20",
        "--policy",
        "shared_fifo:queue=20",
    )
    assert code == 0
    rows = [re.split(r"\s{2,}", line) for line in out.splitlines() if line.startswith("198.18.0.3")]
    log, fair, fifo = rows
    assert log[:4] == ["198.18.0.3", "the log", "480", "0"]
    assert fair[1:4] == ["fair_queues:queue=20 x2", "480", "0"]
    assert int(fifo[-4].split()[0]) > 20  # refused by shared FIFO only
    assert "fair_queues:queue=20: refuses " in out
    assert "lost, shared_fifo:queue=20" in out


def test_json_says_what_was_tried(run, logs):
    _, out, _ = run("shadow", "access.log", "--policy", "fair_queues", "--workers", 2, "--find", "workers",
                    "--noisy", "198.18.0.7", "--json")  # fmt: skip
    said = json.loads(out)
    assert said["log"]["tenants"][0] == {
        "tenant": "198.18.0.7", "identities": 1, "calls": 900, "refused": 600, "failed": 0,
    }  # fmt: skip
    assert said["policies"][0]["against_log"]["only_log"] == 600 - said["policies"][0]["against_log"]["both"]
    found = said["find"][0]
    assert found["unmoved"]["lost"] == 0.01
    assert [p["unmoved"] for p in found["tried"] if p["workers"] == found["workers"]] == [True]


def test_find_workers_is_a_failure_where_no_number_helps(run, logs):
    code, out, _ = run("shadow", "access.log", "--policy", "tenant_cap:queue=5,cap=1", "--service-time", "2s",
                       "--find", "workers")  # fmt: skip
    assert code == 1
    assert "no number of workers that was tried leaves the ordinary tenants unmoved" in out


def test_policies_in_several_processes_say_the_same(run, logs, monkeypatch):
    from harness.cli import shadow as module

    arguments = ("shadow", "access.log", "--workers", 2, "--json", "--jobs")
    alone = run(*arguments, 1)
    monkeypatch.setattr(module, "_LONG", 1)
    assert run(*arguments, 2) == alone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["access.log", "--policy", "fair_quues"], "did you mean fair_queues?"),
        (["access.log", "--noisy", "nobody", "--find", "workers"], "no call in the window is of 'nobody'"),
        (["access.log", "--noisy", "198.18.0.3", "--noisy", "198.18.0.7"], "every tenant is noisy"),
        (["access.log", "--cost-base", "1ms"], "--cost-base belongs to --cost-per-unit"),
        (["access.log", "--basis", "5"], "--basis belongs to --forecast"),
        (["access.log", "--forecast"], "no call has a cost"),
        (["access.log", "--service-time", "0s"], "above zero"),
        (["access.log", "--html", "no/such/folder.html"], "cannot be written"),
        (["calls.jsonl"], "no field is the time"),
        (["nothing.log"], "does not exist"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(run, logs, arguments, message):
    if arguments[0] == "calls.jsonl":
        (logs / "calls.jsonl").write_text('{"a": 1}\n')
    code, _, err = run("shadow", *arguments)
    assert code == 2
    assert message in err


def test_hostile_names_stay_on_their_line(run, logs):
    names = ["\x1b[31mred\x07", "a\u202eb", "[bold]x", "new\\nline", "<script>"]
    rows = [{"ts": 1_431_857_100 + i, "who": name} for i, name in enumerate(names)]
    (logs / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = run(
        "shadow", "x.jsonl", "--map", "time=ts,tenant=who", "--policy", "fair_queues", "--html", "x.html"
    )
    assert code == 0
    assert "[bold]x" in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out + (logs / "x.html").read_text())
    assert "<script>x" not in (logs / "x.html").read_text()


@pytest.mark.recorded
def test_the_web_log_and_the_two_language_models(run):
    if not (DATA / "web_access_combined.log").exists():
        pytest.skip("the recordings are not there")
    code, out, _ = run(
        "shadow", DATA / "web_access_combined.log", "--top", 4, "--squeeze-gaps", "5s", "--service-time", "2s",
        "--policy", "fair_queues", "--policy", "shared_fifo", "--find", "workers", "--json",
    )  # fmt: skip
    said = json.loads(out)
    assert (code, said["calls"], said["log"]["refused"]) == (0, 10_000, 0)
    assert {tenant["tenant"]: tenant["calls"] for tenant in said["log"]["tenants"]}["rest"] == 8_524
    assert [3 <= one["workers"] <= 7 for one in said["find"]] == [True, True]

    code, out, _ = run("shadow", DATA / "azure_llm_code.csv", DATA / "azure_llm_conv.csv", "--tenant", "file", "--map",
                       "time=TIMESTAMP,cost=GeneratedTokens", "--forecast", "--json")  # fmt: skip
    static, learning = json.loads(out)["forecasts"]
    by_name = {tenant["tenant"]: tenant for tenant in static["tenants"]}
    assert by_name["azure_llm_code"]["bias"] > 4  # one number for both: code is forecast five times too high
    assert all(abs(tenant["bias"]) < 0.06 for tenant in learning["tenants"])
    assert learning["total"]["under"] > 0.3  # and yet a single call is anybody's guess
