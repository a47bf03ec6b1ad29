import json
from fractions import Fraction

import pytest

from harness.cli import main
from harness.profile.loader import load
from harness.profile.units import parse_rate
from harness.recorded.account import Account
from harness.recorded.fields import parse_map
from harness.recorded.learn import Waits, study
from harness.recorded.reader import Reading, read
from harness.recorded.steady import quoted, show_rate_exactly
from harness.recorded.transform import TrialClock
from tests.unit.recorded_fixtures import source as log

S = 1_000_000_000
BEGIN = 1_431_857_100


def line(at, who, status=200, wait_ms=None):
    fields = {"ts": BEGIN + at, "who": who, "status": status}
    return json.dumps(fields | ({} if wait_ms is None else {"wait_ms": wait_ms})) + "\n"


LOG = (
    line(0, "agent-7", 200, 10)
    + line(1, "agent-7", 429)
    + line(2, "agent-7", 503)
    + line(4, "agent-7", 200, 30)
    + line(30, "agent-7")
    + line(3, "shop", 500)
    + line(5, "shop")
    + line(65, "shop")
    + line(100, "other")
)


def studied(text=LOG, within_s=5, **how):
    roles = parse_map("time=ts,tenant=who,queue_time=wait_ms")
    records = sorted(read([log(text)], Reading(roles=roles, **how), Account()))
    return study(records, TrialClock(records[0].t_ns, None, Fraction(1)).at, within_s * S)


def test_rates_refusals_and_inferred_replans_by_identity():
    found = studied()
    assert (found.calls, found.span_ns, found.minutes, found.peak_minute) == (9, 100 * S, 2, 7)
    agent, shop = found.identities["agent-7"], found.identities["shop"]
    assert (agent.calls, agent.refused, agent.failed, agent.after_failure) == (5, 2, 2, 2)
    assert (shop.calls, shop.refused, shop.failed, shop.after_failure) == (3, 0, 1, 1)
    assert float(found.rate_per_s(agent.calls)) == 0.05
    assert (found.waits.count, found.waits.mean_ns, found.waits.most_ns) == (2, 20_000_000, 30_000_000)


def test_the_window_of_inference_is_closed_at_its_end():
    text = line(0, "a", 429) + line(5, "a") + line(6, "a")
    assert studied(text).identities["a"].after_failure == 1


def test_folding_adds_up_what_adds_up():
    ranked = studied().ranked(1, "rest")
    assert [one.name for one in ranked] == ["agent-7", "rest"]
    rest = ranked[1]
    assert (rest.calls, rest.failed, rest.after_failure, rest.identities, rest.peak_minute) == (4, 1, 1, 2, -1)


def test_quantiles_are_good_to_five_percent():
    waits = Waits()
    for ms in range(1, 1001):
        waits.add(ms * 1_000_000)
    assert 950e6 <= waits.quantile_ns(0.95) <= 950e6 * 1.06
    assert waits.quantile_ns(1.0) == 1000e6
    assert Waits().quantile_ns(0.5) is None


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Fraction(25, 2), "12.5/s"),
        (Fraction(1, 30), "2/m"),
        (Fraction(1, 10_000), "0.36/h"),
        (Fraction(1, 10**15), "0.000000001/h"),
    ],
)
def test_rates_are_written_in_a_unit_that_keeps_them(rate, text):
    assert show_rate_exactly(rate) == text
    assert parse_rate(text) > 0


@pytest.mark.parametrize("name", ["plain", "a: b", "#x", "null", "'q\"", "日本", "[x]", "é\\n", "~", "1e3", "😀"])
def test_quoted_names_are_the_same_text_again(name, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(f"name: x\nduration: 1s\ntenants: {{{quoted(name)}: {{rate: 1/s}}}}\n", encoding="utf-8")
    assert list(load(path).profile.tenants) == [name]


def run(capsys, *args):
    with pytest.raises(SystemExit) as exit_:
        main(list(map(str, args)))
    out = capsys.readouterr()
    return exit_.value.code, out.out, out.err


@pytest.fixture
def access(tmp_path):
    path = tmp_path / "access.jsonl"
    path.write_text(LOG)
    return path


OPTIONS = ("--map", "time=ts,tenant=who,queue_time=wait_ms")


def test_the_command_prints_the_first_step_of_a_migration(access, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = run(capsys, "learn", access, *OPTIONS, "--agents", "^agent-")
    assert (code, err) == (0, "")
    assert [text.rstrip() for text in out.splitlines()] == [
        "lines     9, 0 broken, 0 calls outside the window",
        "calls     9 of 3 callers in 100.0 s, 2 minutes with calls",
        "rate      0.09/s on average; the busiest minute 7 calls (0.117/s, 1.3 times as much)",
        "queue     mean 20.0 ms, p95 30.0 ms, longest 30.0 ms (2 calls)",
        "agents    1 callers, 5 calls (55.6% of all), 40.0% refused, 40.0% inferred re-plans",
        "caller          calls    rate  peak minute  refused  inferred re-plans  mean queue  p95 queue",
        "agent-7  agent      5  0.05/s            5    40.0%              40.0%     20.0 ms    30.0 ms",
        "shop                3  0.03/s            2     0.0%              33.3%           –          –",
        "other               1  0.01/s            1     0.0%               0.0%           –          –",
        "inferred re-plans: calls within 5 s after a failure of the same caller; an upper bound",
    ]


def test_the_profile_that_it_writes_loads(access, tmp_path, capsys):
    path = tmp_path / "learned.yaml"
    code, out, _ = run(capsys, "learn", access, *OPTIONS, "--top", "1", "-o", path, "--agents", "^agent-", "--json")
    assert code == 0
    assert json.loads(out)["tenants"][1]["peak_minute_calls"] is None
    profile = load(path).profile
    assert list(profile.tenants) == ["agent-7", "rest"]
    assert profile.ordinary == ["rest"]
    assert profile.tenants["agent-7"].rate.base == Fraction(3, 60)
    assert "# 5 calls, an agent runtime: consider replans and a budget, 2 refused" in path.read_text()


def test_agents_come_from_a_file_too(access, tmp_path, capsys):
    agents = tmp_path / "agents"
    agents.write_text("# ours\n^agent-\n^shop$\n")
    code, out, _ = run(capsys, "learn", access, *OPTIONS, "--agents", agents, "--json")
    assert code == 0
    assert [one["agent"] for one in json.loads(out)["tenants"]] == [True, True, False]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--agents", "("), "Invalid value for '--agents': '(': '(' is no regular expression"),
        (("--refusals", "4xx"), "Invalid value for '--refusals': '4xx': expected HTTP statuses such as 429,503"),
        (("--within", "5"), "Invalid value for '--within': '5': expected a duration with its unit"),
        (("--from", "soon"), "--from: 'soon' is no time; write 2015-05-17T10:05:00"),
        (("--zone", "X"), "Invalid value for '--zone': 'X' is no time zone"),
        (
            ("-o", "/nowhere/x.yaml"),
            "/nowhere/x.yaml: cannot be written (No such file or directory)",
        ),
    ],
)
def test_bad_options_are_one_message_and_code_2(access, capsys, args, message):
    code, out, err = run(capsys, "learn", access, *OPTIONS, *args)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
