"""A limit kept in Redis by two replicas, and one that each keeps for itself: docs/examples/redis_limits."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from harness.checks.verdict import Word
from tests.real.services import example, installed, nginx, running, services_python, sound

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("services")]
HELD = "fairness.limit_held"


def judged(tmp_path, storage):
    """storage: `redis`, or `memory`."""
    one = example("redis_limits", tmp_path)
    python = str(services_python())
    with ExitStack() as stack:
        if storage == "redis":
            host, _, port = one.address(6379).partition(":")
            command = [
                installed("redis-server"),
                "--bind",
                host,
                "--port",
                port,
                "--save",
                "",
                "--dir",
                str(one.folder),
            ]
            stack.enter_context(running(command, one.address(6379), one.folder))
        where = {"LIMITS_STORAGE": f"async+redis://{one.address(6379)}" if storage == "redis" else "async+memory://"}
        for port in (9001, 9002):
            command = [python, str(one.folder / "service.py"), one.address(port)]
            stack.enter_context(running(command, one.address(port), one.folder, where))
        stack.enter_context(nginx(one, "nginx.conf"))
        verdicts = one.drive()
    sound(verdicts)
    return verdicts


def test_a_limit_in_redis_is_one_limit(tmp_path):
    verdicts = judged(tmp_path, "redis")
    assert [v.sentence for v in verdicts.values() if v.word is not Word.PASS] == []


def test_a_limit_in_memory_is_one_for_each_replica(tmp_path):
    verdict = judged(tmp_path, "memory")[HELD]
    assert verdict.word is Word.FAIL
    assert verdict.measured > 1.5
    assert "each replica or worker keeps for itself" in verdict.sentence
