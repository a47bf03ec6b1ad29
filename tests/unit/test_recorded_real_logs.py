"""Real recordings, where they lie beside the project: what is known about them must come out."""

from fractions import Fraction
from pathlib import Path

import pytest

from harness.measure.tally import Tally
from harness.profile.loader import from_document
from harness.recorded.document import ReplanOption, ServiceOption, replay_document, service_document, size
from harness.recorded.fields import parse_map
from harness.recorded.lines import Source
from harness.recorded.prepare import Plan, Runaway, prepare
from harness.recorded.reader import Reading
from harness.recorded.schedule import source
from harness.simulate.driver import Simulation

pytestmark = pytest.mark.recorded

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
S = 1_000_000_000


def opened(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not there")
    return Source(name, path.open("rb"), path.stat().st_size, path.stem)


def web(folder, seed=1, **plan):
    log = opened("web_access_combined.log")
    with log.stream:
        return prepare([log], Reading(tenant="remote_addr", spread_seed=seed), Plan(seed=seed, **plan), folder)


def test_the_web_log_is_84_bursts_of_a_minute(tmp_path):
    found = web(tmp_path, squeeze_ns=5 * S, speed=Fraction(60), top=4)
    account = found.account
    assert (account.lines, account.read, account.kept, account.planned, account.broken_lines) == (10_000,) * 4 + (0,)
    assert account.squeezed_gaps == 83
    assert {tenant.name: tenant.recorded for tenant in found.tenants} == {
        "198.18.0.3": 482, "198.18.0.7": 364, "198.18.4.137": 357, "198.18.0.96": 273, "rest": 8524,
    }  # fmt: skip
    assert 84 * S <= found.duration_ns <= 92 * S


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_runaway_hurts_the_web_logs_clients_under_shared_fifo_and_not_under_fair_queues(tmp_path, seed):
    runaway, replans = Runaway("198.18.0.7", Fraction(200)), ReplanOption(2, 2, S // 2)
    found = web(tmp_path, squeeze_ns=5 * S, speed=Fraction(60), top=4, runaway=runaway, seed=seed)
    served = {}
    for policy in ("shared_fifo", "fair_queues"):
        service = ServiceOption(policy, S // 10)
        workers = size(found, source(tmp_path), "calm", Fraction("2.5"), service).workers
        made = replay_document(found, "web", service_document(service, workers), 2 * S, "start", replans, seed)
        profile = from_document(made).profile
        tally = Tally(list(profile.tenants))
        Simulation(profile, tally.add, recorded=source(tmp_path)).run()
        ordinary = [row for row in tally.tenants if row.tenant in profile.ordinary]
        assert sum(row.due for row in ordinary) == 10_000 - 364
        served[policy] = sum(row.served for row in ordinary) / sum(row.due for row in ordinary)
    assert served["shared_fifo"] < 0.95
    assert served["fair_queues"] == 1.0


def test_the_two_llm_services_are_two_tenants_with_their_costs(tmp_path):
    sources = [opened("azure_llm_code.csv"), opened("azure_llm_conv.csv")]
    reading = Reading(roles=parse_map("time=TIMESTAMP,cost=GeneratedTokens"), tenant="file")
    found = prepare(sources, reading, Plan(speed=Fraction(40)), tmp_path)
    for one in sources:
        one.stream.close()
    assert {tenant.name: tenant.recorded for tenant in found.tenants} == {
        "azure_llm_conv": 19_366, "azure_llm_code": 8_819,
    }  # fmt: skip
    assert found.account.header == 2
    code = list(source(tmp_path)("0001.jsonl"))
    assert (code[0].cost, code[-1].cost) == (10.0, 173.0)
    per_second = {}
    for arrival in code:
        per_second[arrival.due_ns // S] = per_second.get(arrival.due_ns // S, 0) + 1
    assert max(per_second.values()) > 3 * len(code) / (found.duration_ns / S)
