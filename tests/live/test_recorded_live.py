"""A recording over real HTTP: as many calls as the log has, each charged to its own tenant, whatever it is called."""

import json

import pytest

from harness.cli import main

pytestmark = pytest.mark.live

BEGIN = 1_431_857_100
NAMES = ["plain", "日本 語", 'q"uote', "[bold]x", "a:b,c=d", "new\nline", "x" * 300, "café", "<script>"]


def test_every_call_of_the_log_arrives_as_its_own_tenant(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "calls.jsonl"
    rows = [
        {"ts": BEGIN + i / 30, "who": NAMES[i % len(NAMES)], "status": 200, "method": "POST", "path": f"/item/{i}?a=b"}
        for i in range(90)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SystemExit):
        main(["replay", str(log), "--map", "time=ts,tenant=who", "--workers", "4", "--service-time", "5ms", "--json"])
    result = json.loads(capsys.readouterr().out)
    (trial,) = result["trials"]
    assert {v["check"]: v["word"] for v in trial["verdicts"]}["trial.conserved"] == "PASS"
    (folder,) = (tmp_path / "reports").iterdir()
    calls = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
    planned = {tenant["tenant"]: tenant["recorded"] for tenant in result["recorded"]["tenants"]}
    assert planned == dict.fromkeys(planned, 10)
    assert len(planned) == len(NAMES)
    assert {name: sum(call["tenant"] == name for call in calls) for name in planned} == planned
    assert {call["outcome"] for call in calls} == {"served"}
    decisions = [json.loads(line) for line in (folder / "decisions.jsonl").read_text().splitlines()]
    assert {row["tenant"] for row in decisions} == set(planned)
