"""The stand-in without sockets: which answer a scenario gives, how it is written, and what is kept of a request."""

from __future__ import annotations

import pytest

from harness.callers.judge import CHECKS
from stub_service.dependency.faults import retry_after
from stub_service.provider import arrivals, forms
from stub_service.provider.machine import MOST_REMEMBERED, Machine
from stub_service.provider.scenario import Answer, Scenario, Window
from stub_service.provider.scenarios import GROUPS, SCENARIOS

S = 10**9


def kinds(machine: Machine, *contents: str, writes: bool = False) -> list[str]:
    """One after another: each is answered before the next one comes."""
    found = []
    for content in contents:
        ticket = machine.arrive(0, content, None, writes)
        machine.ended(ticket, ticket.answer.kind == "served")
        found.append(ticket.answer.kind)
    return found


def test_each_call_lives_through_the_script_by_itself_and_the_next_of_its_content_anew():
    assert kinds(Machine(SCENARIOS["fails_twice"]), *"abaabb") == ["failed"] * 3 + ["served", "failed", "served"]
    machine = Machine(SCENARIOS["fails_twice"])
    assert kinds(machine, "a", "a", "a", "a", "a", "a") == ["failed", "failed", "served"] * 2


def test_calls_of_one_content_side_by_side_each_live_through_a_script_of_their_own():
    machine = Machine(SCENARIOS["fails_once"])
    first = [machine.arrive(0, "a", None, False) for _ in range(3)]
    assert [ticket.answer.kind for ticket in first] == ["failed"] * 3
    for ticket in first:
        machine.ended(ticket, False)
    again = [machine.arrive(1, "a", None, False) for _ in range(3)]
    assert [ticket.answer.kind for ticket in again] == ["served"] * 3
    assert machine.arrive(1, "a", None, False).answer.kind == "failed"  # a fourth


def test_a_lasting_failure_lasts():
    assert kinds(Machine(SCENARIOS["down"]), *["a"] * 20) == ["failed"] * 20


def test_an_outage_counts_from_the_first_arrival():
    machine = Machine(SCENARIOS["outage"])
    start = 1000 * S
    got = [machine.arrive(start + round(at * S), "a", None, False).answer.kind for at in (0, 1.9, 2, 4.9, 5)]
    assert got == ["served", "served", "failed", "failed", "served"]


def test_every_second_answer_of_a_brownout():
    assert kinds(Machine(SCENARIOS["brownout"]), *"abcd") == ["served", "failed", "served", "failed"]


def test_half_open_lets_its_probes_through_and_closes_when_they_recovered():
    window = Window(0, 100 * S, Answer("failed", 503), probes=2, recover=3)
    machine = Machine(Scenario("x", "x", windows=(window,)))
    first, second, third = (machine.arrive(0, name, None, False) for name in "abc")
    assert [first.probe, second.probe, third.probe] == [True, True, False]
    assert third.answer.kind == "failed"
    machine.ended(first, True)
    machine.ended(second, False)  # its caller had gone
    for _ in range(2):
        ticket = machine.arrive(1, "d", None, False)
        assert ticket.probe
        machine.ended(ticket, True)
    assert not machine.arrive(2, "e", None, False).probe
    assert kinds(machine, *"fghij") == ["served"] * 5


def test_work_under_a_key_is_done_once_and_told_again():
    machine = Machine(SCENARIOS["commits_then_resets"])
    first = machine.arrive(0, "a", "k", True)
    machine.ended(first, False)
    again = machine.arrive(1, "a", "k", True)
    assert (first.answer.kind, first.effect, first.replayed) == ("reset", 1, False)
    assert (again.answer.kind, again.effect, again.replayed) == ("served", 1, True)
    assert machine.look_up("k") == 1
    assert machine.look_up("other") is None


def test_work_without_a_key_and_under_new_keys_is_done_again():
    for keys in ((None, None), ("k1", "k2")):
        machine = Machine(SCENARIOS["commits_then_fails"])
        tickets = []
        for number, key in enumerate(keys):
            tickets.append(machine.arrive(number, "a", key, True))
            machine.ended(tickets[-1], False)
        assert [ticket.effect for ticket in tickets] == [1, 2]


def test_reads_and_refusals_leave_no_effect():
    machine = Machine(SCENARIOS["refused_once"])
    refused = machine.arrive(0, "a", None, True)
    assert refused.effect is None
    machine.ended(refused, False)
    assert machine.arrive(0, "a", None, True).effect == 1
    assert Machine(SCENARIOS["calm"]).arrive(0, "a", None, False).effect is None


def test_memory_is_bounded():
    machine = Machine(SCENARIOS["commits_then_resets"])
    for number in range(MOST_REMEMBERED + 100):
        machine.ended(machine.arrive(0, str(number), str(number), True), False)
    assert len(machine._left_off) == machine._scripts == len(machine._done) == MOST_REMEMBERED
    machine = Machine(SCENARIOS["commits_then_resets"])
    for ticket in [machine.arrive(0, "a", None, False) for _ in range(MOST_REMEMBERED + 100)]:
        machine.ended(ticket, False)
    assert len(machine._left_off["a"]) == MOST_REMEMBERED


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_can_be_sent_and_names_checks_that_exist(name):
    scenario = SCENARIOS[name]
    assert scenario.name == name
    assert scenario.about
    assert set(scenario.judges) <= set(CHECKS)
    for answer in (*scenario.script, *(window.answer for window in scenario.windows)):
        assert answer.kind in ("refused", "failed", "reset", "hang")
        assert all("{" not in retry_after(value, 0) for _, value in answer.headers)


def test_groups_name_scenarios_and_every_check_has_one():
    assert all(name in SCENARIOS for members in GROUPS.values() for name in members)
    made_for = {check for scenario in SCENARIOS.values() for check in scenario.judges}
    assert set(CHECKS) - made_for == {"caller.replan_share"}  # judged wherever a whole agent is run


# --- forms


@pytest.mark.parametrize(
    ("method", "path", "target", "form"),
    [
        ("POST", "/v1/chat/completions", None, "openai"),
        ("GET", "/v1/chat/completions", None, None),
        ("GET", "/v1/models", None, "openai"),
        ("POST", "/v1/messages", None, "anthropic"),
        ("POST", "/", "DynamoDB_20120810.PutItem", "aws"),
        ("POST", "/", None, None),
        ("PATCH", "/service/x", None, "service"),
        ("GET", "/services", None, None),
    ],
)
def test_forms_by_path(method, path, target, form):
    assert forms.form_of(method, path, target) == form
    assert forms.form_of(method, path, target, "nothing") is None


@pytest.mark.parametrize(
    ("form", "method", "target", "nature"),
    [
        ("service", "GET", None, "read"),
        ("service", "DELETE", None, "repeatable"),
        ("service", "POST", None, "write"),
        ("aws", "POST", "D.GetItem", "read"),
        ("aws", "POST", "D.PutItem", "repeatable"),
        ("aws", "POST", "D.UpdateItem", "write"),
    ],
)
def test_what_may_be_repeated(form, method, target, nature):
    assert forms.read_body(form, method, "/", target, b"{}", 2).nature == nature


def test_a_body_may_be_anything():
    for body in (b"", b"{", b"[1]", b'{"stream": "yes", "model": 5}', b"\xff"):
        asked = forms.read_body("openai", "POST", forms.CHAT, None, body, len(body))
        assert not asked.stream
        assert asked.tokens >= 1
    told = forms.read_body("aws", "POST", "/", "S.Start", b'{"ClientToken": "x"}', 20)
    assert told.token


@pytest.mark.parametrize("form", forms.FORMS)
def test_errors_are_in_the_words_of_the_interface(form):
    body = forms.error(form, Answer("refused", 429, retry_after_s=1.0))
    said = {
        "openai": lambda: body["error"]["code"] == "rate_limit_exceeded" and body["error"]["retry_after_s"] == 1.0,
        "anthropic": lambda: body["type"] == "error" and body["error"]["type"] == "rate_limit_error",
        "aws": lambda: body["__type"].endswith("#ThrottlingException"),
        "service": lambda: body["outcome"] == "throttled" and body["retry_after_s"] == 1.0,
    }
    assert said[form]()


def test_variables_are_those_of_the_form_alone():
    assert set(forms.variables("http://x", "openai")) == {"OPENAI_BASE_URL", "OPENAI_API_KEY"}
    assert forms.variables("http://x")["AWS_ENDPOINT_URL"] == "http://x"


# --- what is kept


def test_credentials_become_an_identity_and_nothing_else():
    salt = b"s" * 32
    one = arrivals.hashed(salt, arrivals.credential_of({"Authorization": "Bearer sk-secret"}))
    assert "secret" not in one
    assert one != arrivals.hashed(b"t" * 32, "Bearer sk-secret")
    signed = [{"Authorization": f"AWS4-HMAC-SHA256 Credential=AKID/2025/x, Signature={n}"} for n in (1, 2)]
    assert [arrivals.credential_of(headers) for headers in signed] == ["AKID", "AKID"]
    assert arrivals.said([("Authorization", "Bearer sk-secret"), ("Cookie", "x")]) == {}


def test_headers_of_interest_are_bounded_and_printable():
    said = arrivals.said([("Idempotency-Key", "k" * 5000), ("idempotency-key", "other"), ("Overload-Call", "\x1b[1mé")])
    assert said == {"key": "k" * arrivals.MOST_CHARS, "call": "\x1b[1m\\xe9"}
    assert arrivals.hashed(b"x", "ab", "c") != arrivals.hashed(b"x", "a", "bc")
