"""`overload replay` from the command line; trials in virtual time only."""

import gzip
import json
from functools import partial

import pytest

BEGIN = 1_431_857_100


@pytest.fixture
def run(overload):
    return partial(overload, "replay")


@pytest.fixture
def log(tmp_path):
    """Thirty seconds: `shop` 60/s and `agent` 6/s, and one line that is none."""
    lines = [f'{{"ts": {BEGIN + i / 60:.3f}, "who": "shop", "status": 200}}\n' for i in range(1800)]
    lines += [f'{{"ts": {BEGIN + i / 6:.3f}, "who": "agent", "status": 429}}\n' for i in range(180)]
    path = tmp_path / "calls.jsonl.gz"
    path.write_bytes(gzip.compress("".join([*lines, "garbage\n"]).encode()))
    return path


READ = ("--map", "time=ts,tenant=who")
SIZED = "14 workers: the 660 calls of calm keep 6.6 busy on average (6.6 in the busiest second), times 2"
RUNAWAY = (
    "--runaway", "agent", "--runaway-rate", "180/s", "--runaway-replans", "2x2@500ms", "--size-for", "calm:2",
    "--service-time", "100ms", "--queue", 50, "--policy", "shared_fifo", "--policy", "fair_queues",
)  # fmt: skip


def test_the_account_is_shown_and_a_dry_run_sends_nothing(run, log, tmp_path):
    code, out, err = run(log, *READ, *RUNAWAY, "--dry-run")
    assert (code, err) == (0, "")
    assert [text.rstrip() for text in out.splitlines()] == [
        "lines     1,981",
        "broken    1  (1 not a line of jsonl)",
        f"          {log}:1981: not a line of jsonl: garbage",
        "calls     1,980  (read as jsonl)",
        "window    1,980 in it, 0 outside",
        "runaway   1,799 calls of agent at 180/s, 10.0 s to 20.0 s",
        "planned   3,779 calls in 30.0 s",
        "tenant            recorded  added  planned  refused then",
        "shop                 1,800      0    1,800             0",
        "agent  (runaway)       180  1,799    1,979           180",
        "busiest   246 calls in one second; 1,362 if every call of the runaway fails",
        f"service   shared_fifo, {SIZED}",
        f"service   fair_queues, {SIZED}",
        "nothing was sent (--dry-run)",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["calls.jsonl.gz"]


def test_simulated_shared_fifo_hurts_the_others_and_fair_queues_do_not(run, log):
    code, out, _ = run(log, *READ, *RUNAWAY, "--simulate", "--json")
    result = json.loads(out)
    assert code == result["exit_code"] == 1
    assert result["recorded"]["account"]["planned"] == 3779
    words = [{verdict["check"]: verdict["word"] for verdict in trial["verdicts"]} for trial in result["trials"]]
    assert [one["fairness.ordinary_unmoved"] for one in words] == ["FAIL", "PASS"]
    assert [one["trial.conserved"] for one in words] == ["PASS", "PASS"]


def test_a_trial_keeps_its_own_schedule(run, log, tmp_path):
    code, _, _ = run(log, *READ, "--simulate", "--workers", 4)
    assert code == 0
    (folder,) = (tmp_path / "reports").iterdir()
    assert sorted(path.name for path in (folder / "schedule").iterdir()) == ["0000.jsonl", "0001.jsonl"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert json.loads((folder / "recorded.json").read_text())["account"]["planned"] == 1980
    assert manifest["plan"] == {"shop": {"": 1800}, "agent": {"": 180}}
    assert len((folder / "calls.jsonl").read_text().splitlines()) == 1980


def test_a_service_can_come_from_a_profile(run, log, tmp_path):
    path = tmp_path / "service.yaml"
    path.write_text(
        "name: s\nduration: 1s\ntenants: {x: {rate: 1/s}}\n"
        "service: {workers: 3, service_time: 5ms, admission: {policy: shared_fifo, queue: 9}}\n"
    )
    code, out, _ = run(log, *READ, "--service", path, "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["profiles"][0]["service"]["workers"] == 3


def test_anonymised_names_follow_from_the_key_and_no_line_is_shown(run, log, monkeypatch):
    monkeypatch.setenv("OVERLOAD_ANONYMISE_KEY", "k")
    first = run(log, *READ, "--anonymise", "--dry-run")[1]
    assert first == run(log, *READ, "--anonymise", "--dry-run")[1]
    assert not {"shop", "garbage"} & set(first.split())
    monkeypatch.setenv("OVERLOAD_ANONYMISE_KEY", "")
    assert run(log, *READ, "--anonymise", "--dry-run")[1] != run(log, *READ, "--anonymise", "--dry-run")[1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--runaway", "agnet", "--runaway-rate", "1/s"), "no call in the window is of 'agnet'; did you mean agent?"),
        (("--runaway", "agent"), "--runaway: at what rate? add --runaway-rate, such as 200/s"),
        (("--runaway-rate", "9/s"), "no tenant runs away; add --runaway TENANT"),
        (("--runaway-replans", "2x3"), "expected CALLSxROUNDS@DELAY such as 2x3@500ms"),
        (("--speed", "0"), "a speed lies between"),
        (("--amplify", "shop"), "expected TENANT=N, N from 1 to 1000"),
        (("--size-for", "calm"), "expected WINDOW:FACTOR such as calm:1.3"),
        (("--size-for", "burst:2"), "this trial has no window 'burst'; it has all, calm"),
        (("--cost-base", "1ms"), "--cost-base and --cost-cap belong to --cost-per-unit"),
        (("--service-time", "0s"), "a service time is above zero"),
        (
            ("--max-broken", "0"),
            "1 of 1,981 lines are broken, more than --max-broken 0; the first: not a line",
        ),
        (("--from", "2h"), "no call lies in the window (1,980 were read); widen it"),
        (("--format", "csv"), "has no column for time=ts"),
        (("--policy", "tenant_cap", "--cap", "9", "--workers", "4"), "the cap is above the 4 workers"),
        (("--speed", "900000"), "calls, and the bundled stub is to be trusted with"),
    ],
)
def test_bad_input_is_one_message_and_code_2_and_nothing_is_sent(run, log, tmp_path, args, message):
    code, _, err = run(log, *READ, *args)
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "reports").exists()


def test_a_log_that_is_not_there(run):
    code, _, err = run("none.log")
    assert code == 2
    assert "'none.log' does not exist" in err


def test_a_target_of_its_own_has_no_service_that_could_be_chosen(run, log, monkeypatch):
    monkeypatch.delenv("OVERLOAD_TARGET", raising=False)
    target = ("--target", "http://127.0.0.1:9", "--dry-run")
    code, out, _ = run(log, *READ, *target)
    assert (code, "service   " in out, "nothing was sent" in out) == (0, False, True)
    code, _, err = run(log, *READ, *target, "--policy", "shared_fifo", "--policy", "fair_queues")
    assert (code, "a target of its own keeps its policy" in err) == (2, True)
