"""Recorded traffic at a service that a target file describes; and what of it cannot be verified."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from tests.live.awkward import OK, always, serving
from tests.live.target_trials import (
    TOKENS,
    written,
)
from tests.unit.test_cli import overload as in_this_process

pytestmark = [pytest.mark.live, pytest.mark.untimed, pytest.mark.usefixtures("shop_tokens")]


LOG = "".join(
    f'10.0.0.{1 + n % 2} - - [29/Nov/2026:10:00:{n // 10:02d} +0000] "{method} /old/items/{n}?q={n} HTTP/1.1" 200 5\n'
    for n, method in enumerate(["GET", "POST", "DELETE", "GET"] * 10)
)
MAPPED = {
    "credentials": {"tenants": {"10.0.0.1": "SHOP_TOKEN_A", "10.0.0.2": "SHOP_TOKEN_B"}},
    "recorded": {
        "strip": "/old",
        "prefix": "/v2",
        "query": "drop",
        "headers": {"X-Who": "{tenant}"},
        "body": {"n": "{seq}"},
    },
}


def replayed(folder, url, *options, **more):
    (folder / "access.log").write_text(LOG)
    reports = written(folder, url, **{**MAPPED, **more})[1:]
    log = ("replay", str(folder / "access.log"), "--tenant", "remote_addr", "--speed", "2")
    return in_this_process(*log, *reports, *options)


def test_recorded_calls_are_sent_by_the_targets_own_paths_and_credentials(tmp_path):
    with serving(always(OK)) as server:
        done = replayed(tmp_path, server.url + "/base")
    assert done.returncode in (0, 3, 4), done.stderr
    assert "sends to" in done.stderr
    assert "at most 40 calls in all" in done.stderr
    assert len(server.seen) == 40
    assert Counter(seen.method for seen in server.seen) == {"GET": 20, "POST": 10, "DELETE": 10}
    for seen in server.seen:
        match = re.fullmatch(r"/base/v2/items/(\d+)", seen.path)
        assert match is not None, seen.path
        tenant = f"10.0.0.{1 + int(match[1]) % 2}"
        assert seen.headers["x-who"] == tenant
        assert seen.headers["authorization"] == f"Bearer {TOKENS['A' if tenant.endswith('1') else 'B']}"
        assert (b"" if seen.method != "POST" else b'{"n":') in seen.body
        assert bool(seen.body) == (seen.method == "POST")


@pytest.mark.parametrize(("options", "more", "code", "said"), [
    (("--dry-run",), {}, 0, "nothing was sent"),
    ((), {"limits": {"max_rate": "5/s"}}, 2, "allows 5/s (limits.max_rate)"),
    ((), {"credentials": {"tenants": {"10.0.0.1": "SHOP_TOKEN_A"}}}, 2, "for the token of 10.0.0.2"),
])  # fmt: skip
def test_a_replay_that_a_rail_stops_was_never_sent(tmp_path, options, more, code, said):
    with serving(always(OK)) as server:
        done = replayed(tmp_path, server.url, *options, **more)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert server.accepted == 0
    assert not (tmp_path / "reports").exists() or not list((tmp_path / "reports").iterdir())


def test_what_cannot_be_seen_is_not_verified_and_nothing_is_sent(tmp_path):
    with serving(always(OK)) as server:
        written(tmp_path, server.url)
        done = in_this_process("verify", "--target", str(tmp_path / "target.yaml"), "--only", "v05,v07", "--json")
    assert done.returncode == 3, done.stderr
    checked = json.loads(done.stdout)["checks"]
    assert [one["word"] for one in checked] == ["INCONCLUSIVE", "INCONCLUSIVE"]
    assert all("evidence: {dependencies" in one["add"] for one in checked)
    assert server.accepted == 0
