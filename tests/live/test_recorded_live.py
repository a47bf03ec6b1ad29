"""A recording over real HTTP: as many calls as the log has, each charged to its own tenant, whatever it is called."""

import json

import pytest

from harness.cli import main

pytestmark = [pytest.mark.live, pytest.mark.untimed]

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


def test_a_har_is_replayed_with_its_bodies(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entries = [
        {
            "startedDateTime": f"2024-05-01T10:00:0{i // 20}.{i % 20 * 5:02d}Z",
            "request": {
                "method": "POST", "url": f"https://api.test/bills/{i}?token=s3cr3t", "cookies": [],
                "headers": [{"name": "X-Tenant", "value": "ab"[i % 2]}],
                "postData": {"mimeType": "application/json", "text": json.dumps({"bill": i, "text": "é" * i})},
            },
            "response": {"status": 200}, "timings": {"wait": 5},
        }
        for i in range(40)
    ]  # fmt: skip
    (tmp_path / "x.har").write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))
    with pytest.raises(SystemExit):
        main(["replay", "x.har", "--tenant", "header:x-tenant", "--bodies", "--workers", "4", "--service-time", "5ms",
              "--json"])  # fmt: skip
    (trial,) = json.loads(capsys.readouterr().out)["trials"]
    assert {v["check"]: v["word"] for v in trial["verdicts"]}["trial.conserved"] == "PASS"
    (folder,) = (tmp_path / "reports").iterdir()
    calls = [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]
    assert [call["outcome"] for call in calls] == ["served"] * 40
