"""The LiteLLM proxy with two keys and limits of their own, over a stand-in for its provider: docs/examples/litellm."""

from __future__ import annotations

import secrets
import sys
from collections import Counter
from contextlib import contextmanager

import pytest

from harness.callers.judge import judge
from harness.callers.log import read_log
from harness.callers.parameters import Params
from harness.checks.verdict import Word
from stub_service.provider_shell import MANIFEST
from tests.live.awkward import rows_of
from tests.real.services import example, running, services_python, sound

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("services")]
CALLS = 12
"""Of failing.yaml."""


@pytest.fixture
def one(tmp_path):
    return example("litellm", tmp_path)


@contextmanager
def proxy(one, config="config.yaml"):
    litellm = str(services_python().with_name("litellm"))
    host, _, port = one.address(8080).partition(":")
    command = [litellm, "--config", str(one.folder / config), "--host", host, "--port", port]
    more = {
        "LITELLM_MASTER_KEY": f"sk-{secrets.token_hex(32)}",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # nothing is fetched
        "PYTHONPATH": str(one.folder),
    }
    with running(command, one.address(8080), one.folder, more):
        yield


@contextmanager
def provider(one, scenario):
    """Yields the folder of what arrives there."""
    evidence = one.folder / f"arrived-{scenario}"
    port = one.address(9000).rpartition(":")[2]
    options = ["--scenario", scenario, "--form", "openai", "--port", port, "--evidence", str(evidence)]
    with running([sys.executable, "-m", "harness", "serve", *options], one.address(9000), one.folder):
        yield evidence


def driven(one, scenario):
    """What the callers got, and what the proxy did at its provider meanwhile."""
    with provider(one, scenario) as evidence:
        rows = rows_of(one.trial(profile="failing.yaml").trial.folder)
    told = Counter((row["outcome"], row.get("reason"), row.get("retry_after")) for row in rows)
    with (evidence / "arrivals.jsonl").open("rb") as arrivals:
        found = judge(scenario, read_log(scenario, (evidence / MANIFEST).read_bytes(), arrivals), Params())
    attempts = Counter(len(call.attempts) for call in found.seen.calls if call.attempts[0].method == "POST")
    return told, attempts, {verdict.check: verdict for verdict in found.verdicts}


def test_a_key_is_held_to_its_limit_and_nothing_is_retried(one):
    with proxy(one):
        with provider(one, "calm"):
            verdicts = one.drive()
        sound(verdicts)
        assert [v.sentence for v in verdicts.values() if v.word is not Word.PASS] == []
        # What its provider says of when to come back, the caller is told under another name.
        told, attempts, found = driven(one, "retry_after_seconds")
    assert told == {("throttled", "provider", "1"): CALLS}
    assert attempts == {1: CALLS}
    assert [v.sentence for v in found.values() if v.word is not Word.PASS] == []


def test_its_retries_are_those_of_one_owner(one):
    """Told to retry twice, it does so itself: the SDK below it does not, as well."""
    with proxy(one, "retries.yaml"):
        told, attempts, found = driven(one, "down")
        assert told == {("dependency_unavailable", "provider", None): CALLS}
        assert attempts == {3: CALLS}
        assert [v.sentence for v in found.values() if v.word is not Word.PASS] == []
        told, attempts, found = driven(one, "retry_after_seconds")
        assert told == {("served", None, None): CALLS}
        assert attempts == {2: CALLS}
        assert found["caller.retry_after_kept"].word is Word.PASS
