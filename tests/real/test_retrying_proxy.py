"""A reverse proxy that retries is a second retry owner, and is named: docs/examples/retrying_proxy. Its twins pass."""

from __future__ import annotations

import pytest

from harness.checks.verdict import Word
from tests.real.services import example, installed, nginx, running, sound, stub

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("services")]
V05 = "v05.one_retry_owner"


@pytest.fixture
def one(tmp_path):
    return example("retrying_proxy", tmp_path)


def judged(one, proxy):
    with stub(one, dependencies_only=True), proxy:
        verdicts = one.drive()
    sound(verdicts)
    return verdicts[V05]


def broken(verdict):
    return {finding.subject for finding in verdict.findings if finding.word is Word.FAIL}


def test_nginx_as_it_comes_retries_what_timed_out(one):
    verdict = judged(one, nginx(one, "default.conf"))
    assert verdict.word is Word.FAIL
    assert "a layer between the caller and the dependency (target nginx-retry)" in verdict.sentence
    assert "which calls itself '1.1 nginx-edge'" in verdict.sentence
    # One of the callers retries once, and so does nginx: two times two.
    assert "2 attempts by the caller, 4 arrivals, 4 unanswered" in verdict.sentence
    assert broken(verdict) == {"billing read"}


def test_nginx_told_so_retries_what_was_answered_with_503_too(one):
    verdict = judged(one, nginx(one, "all.conf"))
    assert verdict.word is Word.FAIL
    assert broken(verdict) == {"billing read", "customer read"}


def test_nginx_that_does_not_retry_passes(one):
    verdict = judged(one, nginx(one, "off.conf"))
    assert verdict.word is Word.PASS, verdict.sentence


def test_apache_as_it_comes_passes(one):
    command = [installed("apache2"), "-D", "FOREGROUND", "-f", str(one.folder / "apache.conf")]
    verdict = judged(one, running(command, one.address(8080), one.folder))
    assert verdict.word is Word.PASS, verdict.sentence
