"""Trials against a service that a target file describes: what is sent, how it is understood, and every rail on the way.

The service is a small server in the test's own process, which counts what it saw. Nothing that may not be sent is, and
no token is in anything that a trial leaves behind.
"""

from __future__ import annotations

import json
import re
import socket

import pytest

from harness.checks.verdict import Word
from harness.errors import BadInput
from tests.certificates import NAME, Authority, server_context
from tests.live.awkward import OK, always, rows_of, serving
from tests.live.target_trials import (
    PLANNED,
    PROFILE,
    REFUSAL,
    TOKENS,
    answer,
    described,
    held_up,
    outcomes,
    overload,
    run,
    verdict,
    written,
)
from tests.unit.test_cli import overload as in_this_process

pytestmark = [pytest.mark.live, pytest.mark.untimed, pytest.mark.usefixtures("shop_tokens")]


def test_calls_and_answers_are_as_the_file_says(tmp_path):
    async def behave(connection):
        seq = int(connection.request.headers["overload-call"].split(".")[1])
        timing = "Server-Timing: wait;dur=3.5"
        answers = (
            answer(200, b"{}", timing),
            answer(429, REFUSAL, "X-Retry: 7", timing),
            answer(302, b"", "Location: /x"),
        )
        await connection.answer(answers[0 if seq < 10 else 1 if seq < 19 else 2])
        return True

    answers = {
        "outcome": [{"status": "4xx", "pointer": "/error/code", "equals": "busy", "outcome": "throttled"}],
        "queue_wait": {"server_timing": "wait"},
        "retry_after": [{"header": "X-Retry", "unit": "s"}],
    }
    with serving(behave) as server:
        judged = run({}, described(server.url + "/v1", tmp_path, answers=answers), tmp_path)
    assert verdict(judged, "trial.conserved").word is Word.PASS
    assert outcomes(judged) == {("served", None): 20, ("throttled", "busy"): 18, ("failed", "status_302"): 2}
    rows = {f"{row['call']}.{row['attempt']}": row for row in rows_of(judged.trial.folder)}
    assert {row["queue_wait_ns"] for row in rows.values() if row["outcome"] != "failed"} == {3_500_000}
    assert {row["retry_after"] for row in rows.values() if row["outcome"] == "throttled"} == {"7"}
    assert len(server.seen) == PLANNED == len(rows)
    drawn = set()
    for seen in server.seen:
        tenant = rows[seen.headers["overload-attempt"]]["tenant"]
        match = re.fullmatch(rf"/v1/items/(\d+)\?by={tenant}", seen.path)
        assert match is not None
        drawn.add(match[1])
        assert seen.method == "PUT"
        assert seen.headers["x-api-key"] == f"key {TOKENS[tenant]}"
        assert json.loads(seen.body) == {"call": seen.headers["overload-call"], "n": int(match[1])}
        assert "authorization" not in seen.headers
    assert len(drawn) > 10


def test_a_head_request_and_a_call_without_a_body(tmp_path):
    async def behave(connection):
        head = connection.request.method == "HEAD"
        await connection.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n" + (b"" if head else b"x" * 9))
        return True

    for method in ("HEAD", "GET"):
        with serving(behave) as server:
            judged = run({}, described(server.url, tmp_path, call={"method": method, "path": "/"}), tmp_path)
        assert outcomes(judged) == {("served", None): PLANNED}
        assert all("content-length" not in seen.headers for seen in server.seen)


def test_over_tls_with_a_ca_and_a_name_of_its_own(tmp_path):
    authority = Authority(tmp_path)
    tls = {"ca": "ca.pem", "server_name": NAME}
    with serving(always(OK), tls=server_context(*authority.issue(NAME))) as server:
        judged = run({}, described(server.url, tmp_path, tls=tls), tmp_path)
        assert outcomes(judged) == {("served", None): PLANNED}
        refused = run({}, described(server.url, tmp_path, tls={"ca": "ca.pem"}), tmp_path)
    ((outcome, reason),) = outcomes(refused)
    assert outcome == "failed"
    assert reason.startswith("tls_")
    assert len(server.seen) == PLANNED


# Rails.


def test_no_more_are_in_flight_than_the_owner_allows(tmp_path):
    behave, most = held_up(0.4)
    with serving(behave) as server:
        judged = run({}, described(server.url, tmp_path, limits={"max_rate": "100/s", "max_in_flight": 3}), tmp_path)
    found = outcomes(judged)
    assert most() <= 3
    assert set(found) == {("served", None), ("dropped", "in_flight_ceiling")}
    assert found["served", None] == len(server.seen)
    assert sum(found.values()) == PLANNED
    assert verdict(judged, "trial.conserved").word is Word.PASS
    late = verdict(judged, "trial.on_time")
    assert late.word is Word.INVALID
    if "The harness was late" not in late.sentence:
        assert "ceiling kept calls back" in late.sentence
        assert "limits.max_in_flight" in late.add
    # The healthy twin: as slow, and as many allowed as it takes.
    behave, most = held_up(0.4)
    with serving(behave) as server:
        judged = run({}, described(server.url, tmp_path, limits={"max_rate": "100/s", "max_in_flight": 40}), tmp_path)
    assert outcomes(judged) == {("served", None): PLANNED}


def test_it_stops_by_itself_when_the_target_suffers(tmp_path):
    async def behave(connection):
        seq = int(connection.request.headers["overload-call"].split(".")[1])
        await connection.answer(answer(200 if seq < 10 else 503))
        return True

    long = {"duration": "4s"}
    abort = {"server_errors_pp": 30, "window": "1s", "least": 10}
    with serving(behave) as server:
        judged = run(long, described(server.url, tmp_path, abort=abort), tmp_path)
    rows = rows_of(judged.trial.folder)
    assert len(rows) == len(server.seen) < 4 * PLANNED / 2
    reason = judged.trial.manifest["ended"]["reason"]
    assert re.fullmatch(
        r"aborted: \d+ % of the last \d+ calls ended in server errors \(abort.server_errors_pp\)", reason
    )
    conserved = verdict(judged, "trial.conserved")
    assert conserved.word is Word.INVALID
    assert reason in conserved.sentence
    assert judged.exit_code == 4
    assert judged.interrupted
    assert judged.trial.manifest["ended"]["calls"] == len(rows)
    # The same answers as refusals are no suffering: that is what refusals are for.
    answers = {"outcome": [{"status": 503, "outcome": "throttled"}]}
    with serving(behave) as server:
        judged = run(long, described(server.url, tmp_path, abort=abort, answers=answers), tmp_path)
    assert judged.trial.manifest["ended"]["reason"] == "completed"
    assert len(server.seen) == 4 * PLANNED


def test_ctrl_c_drains_and_is_invalid(tmp_path):
    behave, _ = held_up(0.3)
    pressed = []

    def press_once(event):
        if not pressed:
            pressed.append(event)
            raise KeyboardInterrupt

    with serving(behave) as server:
        judged = run({"duration": "6s", "drain": "3s"}, described(server.url, tmp_path), tmp_path, press_once)
    assert pressed
    assert judged.trial.manifest["ended"]["reason"] == "interrupted"
    assert len(server.seen) < 6 * PLANNED
    assert outcomes(judged) == {("served", None): len(server.seen)}
    assert judged.exit_code == 4


REPLANNED = {**PROFILE, "tenants": {"A": {"rate": "20/s", "replans": {"calls": 2, "after": "10ms", "rounds": 3}}}}
ONE_RUN = [{"name": "t", "rate": "1/s", "batches": [{"steps": [{"dependency": "x"}]}]}]
SLOW = {"limits": {"max_rate": "100/s"}}
STOPPED = {
    "worst case": (REPLANNED, SLOW, (), {}, 2, "the worst case of profile 'small' is 300/s"),
    "time scale": (PROFILE, {}, ("--time-scale", "0.5"), {}, 2, "keeps its own times"),
    "no token": (PROFILE, {}, (), {"SHOP_TOKEN_B": ""}, 2, "B: SHOP_TOKEN_B"),
    "unnamed": (PROFILE, {"credentials": {"tenants": {"A": "SHOP_TOKEN_A"}}}, (), {}, 2, "for the token of B"),
    "bad token": (PROFILE, {}, (), {"SHOP_TOKEN_B": "a\nb"}, 2, "characters that no header can carry"),
    "dry run": (PROFILE, SLOW, ("--dry-run",), {}, 0, "nothing was sent"),
    "runs": ({**PROFILE, "tenants": {"A": {"runs": ONE_RUN}}}, {}, (), {}, 2, "does not say how one is opened"),
}  # fmt: skip


@pytest.mark.parametrize("name", STOPPED)
def test_what_a_rail_stops_was_never_sent(tmp_path, name, monkeypatch):
    profile, more, options, env, code, said = STOPPED[name]
    for variable, value in env.items():
        monkeypatch.setenv(variable, value)
    with serving(always(OK)) as server:
        done = in_this_process("run", *written(tmp_path, server.url, profile, **more), *options)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert server.seen == []
    assert server.accepted == 0
    assert not (tmp_path / "reports").exists() or not list((tmp_path / "reports").iterdir())


def test_a_host_that_is_not_allowed_is_sent_nothing(tmp_path):
    with serving(always(OK)) as server:
        url = f"http://{socket.gethostname()}.example:{server.port}"
        done = in_this_process("run", *written(tmp_path, url, limits={"max_rate": "100/s"}))
        assert done.returncode == 2
        assert "is not on the allow list" in done.stderr
        with pytest.raises(BadInput, match="not on the allow list"):
            described(url, tmp_path, limits={"max_rate": "100/s"})
    assert server.accepted == 0


# Secrets.


async def echo(connection):
    """A service that gives everything back that it was sent, wherever it can."""
    key = connection.request.headers["x-api-key"]
    body = json.dumps({"outcome": "throttled", "reason": f"{'x' * 92} {key}", "key": key, "run": key}).encode()
    await connection.answer(answer(429, body, f"Retry-After: {key}", f"Server-Timing: {key};dur=1", f"X-Echo: {key}"))
    return True


def test_no_token_is_in_anything_that_a_trial_leaves_behind(tmp_path):
    log = tmp_path / "decisions.log"

    async def behave(connection):
        headers = connection.request.headers
        row = {"t": "2026-01-01T00:00:00Z", "a": headers["overload-attempt"], "outcome": "throttled"}
        with log.open("a") as file:
            print(json.dumps({**row, "why": headers["x-api-key"], "who": headers["x-api-key"]}), file=file)
            print(json.dumps({**row, "outcome": headers["x-api-key"]}), file=file)
        return await echo(connection)

    fields = {"attempt": "/a", "reason": "/why", "tenant": "/who"}
    evidence = {"decisions": {"file": str(log), "fields": fields}}
    with serving(behave) as server:
        words = written(tmp_path, server.url, evidence=evidence)
        log.touch()
        shown = [overload("run", *words), overload("run", *words, "--json")]
        checked = overload("target", "check", words[2], "--tenant", "A", "--tenant", "B")
        folders = list((tmp_path / "reports").iterdir())
        again = [overload("check", str(folder)) for folder in folders]
    assert all(done.returncode in (0, 1, 3, 4) for done in shown), shown[0].stderr
    assert len(server.seen) == 2 * PLANNED + 2
    left = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert {"manifest.json", "calls.jsonl", "decisions.jsonl"} <= {path.name for path in left}
    assert "[redacted]" in next(path for path in left if path.name == "calls.jsonl").read_text()
    texts = [path.read_text(errors="replace") for path in left]
    texts += [text for done in (*shown, *again, checked) for text in (done.stdout, done.stderr)]
    for token in TOKENS.values():
        for part in (token, token[:9]):
            assert not [text[:80] for text in texts if part in text], f"{part} was kept"
