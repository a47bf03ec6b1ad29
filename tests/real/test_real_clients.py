"""Real clients as they come from the registry, judged: also where they are known to be wrong, which must be seen.

Needs their virtual environment (`make clients`); without it, all of this is skipped. What each client does is told in
docs/real_clients.md, which is made of the same runs.
"""

from __future__ import annotations

import pytest

from harness.callers.layers import layers_of
from tests.real import client_table
from tests.real.client_runs import ROOT, clients_python, versions

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("clients")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    python = clients_python()
    if python is None:
        pytest.skip("the clients' virtual environment is missing: make clients")
    return client_table.run_all(python, tmp_path_factory.mktemp("clients"))


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_sdks_of_model_providers(runs, client):
    met = runs[client]
    assert met["down"].attempts == 3
    assert all(layers_of(call).owners == 1 for call in met["down"].judged.seen.calls)
    for check in ("one_owner", "attempts_bounded", "amplification", "jittered"):
        assert met["down"].word(check) == "PASS", (check, met["down"].gaps_s)
    assert met["throttled"].word("retry_after_kept") == "PASS"
    assert met["bad_request"].word("non_retryable") == met["told_not_to"].word("non_retryable") == "PASS"
    # Known to be wrong: no idempotency key, so what was cut off is paid for twice; an empty quota is tried again.
    assert met["commits_then_resets"].word("idempotent") == "FAIL"
    assert met["quota_used_up"].word("non_retryable") == "FAIL"


@pytest.mark.parametrize("client", ["openai", "anthropic"])
@pytest.mark.parametrize("form", ["seconds", "float", "imf", "rfc850", "asctime", "503", "ms"])
def test_sdks_keep_every_form_that_states_a_wait(runs, client, form):
    met = runs[client][f"retry_after_{form}"]
    assert met.attempts == 2
    assert met.word("retry_after_kept") == "PASS"


@pytest.mark.parametrize("client", ["openai", "anthropic"])
@pytest.mark.parametrize("form", ["zero", "past", "negative", "nan", "text", "list", "iso", "absent"])
def test_nothing_usable_is_followed_by_a_backoff(runs, client, form):
    met = runs[client][f"retry_after_{form}"]
    assert met.attempts == 2
    assert met.word("backs_off") == "PASS"


def test_a_negative_ms_form_hides_the_usable_one_beside_it(runs):
    # They come back after half a second; a busy machine may make two of it, but hardly for both.
    words = [runs[client]["retry_after_ms_negative"].word("retry_after_kept") for client in ("openai", "anthropic")]
    assert "FAIL" in words
    assert runs["requests_retry"]["retry_after_ms_negative"].word("retry_after_kept") == "PASS"


def test_a_key_of_the_callers_own_is_kept_over_all_attempts(runs):
    for scenario in ("fails_once", "commits_then_resets"):
        assert runs["openai_with_key"][scenario].word("idempotent") == "PASS"
        assert runs["openai_with_key"][scenario].attempts == 2


def test_botocore_takes_more_attempts_and_does_not_know_retry_after(runs):
    met = runs["botocore"]
    assert met["down"].attempts == 4
    assert met["down"].word("attempts_bounded") == "FAIL"
    assert met["down"].word("one_owner") == "PASS"
    assert met["retry_after_longer"].word("retry_after_kept") == "FAIL"
    assert met["bad_request"].word("non_retryable") == "PASS"


@pytest.mark.parametrize("client", ["requests", "aiohttp"])
def test_plain_clients_hand_every_failure_to_their_caller(runs, client):
    for scenario, met in runs[client].items():
        assert met.attempts == 1, scenario
        assert all(verdict.word == "PASS" for verdict in met.judged.verdicts), scenario


def test_urllib3_keeps_retry_after_and_retries_at_once_without_it(runs):
    met = runs["requests_retry"]
    assert met["down"].attempts == 3
    assert met["throttled"].word("retry_after_kept") == "PASS"
    # Its first retry comes at once, whatever the factor of half a second; a busy machine makes a small pause of that.
    met_at_once = [met[name] for name in ("down", "fails_once", "retry_after_zero", "retry_after_absent")]
    soonest_s = min(gap for one in met_at_once for gap in one.gaps_s)
    assert soonest_s < 0.3
    assert soonest_s >= 0.05 or "FAIL" in [one.word("backs_off") for one in met_at_once]
    assert met["retry_after_float"].said == ("InvalidHeader",)
    assert met["commits_then_resets"].word("idempotent") == "FAIL"
    assert max(runs["requests_retry_bare"]["down"].gaps_s) < 0.5


def test_tenacity_without_arguments_is_a_hot_loop_without_end(runs):
    met = runs["tenacity_bare"]["down"]
    assert client_table.endless(met)
    assert {met.word(check) for check in ("attempts_bounded", "amplification", "backs_off")} == {"FAIL"}


def test_tenacity_with_backoff_knows_neither_retry_after_nor_what_is_final(runs):
    met = runs["tenacity_backoff"]
    assert met["down"].attempts == 3
    assert met["retry_after_longer"].word("retry_after_kept") == "FAIL"
    assert met["bad_request"].word("non_retryable") == "FAIL"


@pytest.mark.parametrize("client", ["celery_over_openai", "celery_over_requests"])
def test_a_task_that_retries_over_an_sdk_that_retries_is_two_layers(runs, client):
    met = runs[client]["down"]
    assert met.attempts == 9
    (call,) = met.judged.seen.calls
    layers = layers_of(call)
    assert (layers.owners, layers.inner, layers.outer) == (2, 3, 3)
    assert call.counted == (client == "celery_over_openai")
    assert met.word("one_owner") == met.word("attempts_bounded") == "FAIL"


def test_the_page_tells_of_the_versions_that_were_run(runs):
    page = (ROOT / "docs" / "real_clients.md").read_text()
    python = clients_python()
    assert python is not None
    assert [name for name, version in versions(python).items() if f"{name} {version}" not in page] == []
