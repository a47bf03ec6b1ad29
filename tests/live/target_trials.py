"""Trials against a service that a target file describes: the file, tokens, the trial, and what came of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter

import yaml

from harness import checks, trial
from harness.profile.loader import from_document
from harness.target.file import target_from_document
from tests.conftest import ROOT
from tests.live.awkward import OK, rows_of

TOKENS = {"A": "s3cret-of-A-7f2c", "B": "s3cret-of-B-91aa"}
PROFILE = {
    "name": "small",
    "duration": "1s",
    "drain": "1s",
    "patience": "900ms",
    "patience_until": "done",
    "tenants": {"A": {"rate": "20/s"}, "B": {"rate": "20/s", "phase": "20ms"}},
    "ordinary": ["A"],
}
PLANNED = 40
REFUSAL = b'{"error":{"code":"busy","why":"queue"},"wait_ms":12}'


def answer(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def target_document(url, **more):
    return {
        "name": "shop",
        "url": url,
        "credentials": {"header": "X-Api-Key", "form": "key {token}", "env": "SHOP_TOKEN_{TENANT}"},
        "call": {"method": "PUT", "path": "/items/{item}?by={tenant}", "body": {"call": "{call}", "n": "{item}"}},
        "data": {"item": {"from": 1, "to": 99}},
        "service_time": "400ms",
        **more,
    }


def described(url, folder, **more):
    return target_from_document(target_document(url, **more), folder)


def run(profile, target, folder, on_progress=lambda event: None):
    loaded = from_document({**PROFILE, **profile}, checks=checks.PARAMETERS)
    return trial.run(loaded, trial.new_folder(folder, "trial"), target, None, on_progress)


def verdict(judged, check):
    return next(one for one in judged.verdicts if one.check == check)


def outcomes(judged):
    rows = rows_of(judged.trial.folder)
    return Counter((row["outcome"], row.get("reason")) for row in rows)


def held_up(seconds):
    """Answers late, and says how many calls it had at once at most."""
    now = most = 0

    async def behave(connection):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(seconds)
        now -= 1
        await connection.answer(OK)
        return True

    return behave, lambda: most


def written(folder, url, profile=PROFILE, **more):
    (folder / "profile.yaml").write_text(yaml.safe_dump(profile))
    (folder / "target.yaml").write_text(yaml.safe_dump(target_document(url, **more)))
    return [str(folder / "profile.yaml"), "--target", str(folder / "target.yaml"), "--reports", str(folder / "reports")]


def overload(*words):
    command = [sys.executable, "-m", "harness", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
