"""A growing log: what was added and no more, over rotation and truncation; figures, alerts, Prometheus."""

import json
import os
import shlex
import urllib.error
import urllib.request
from functools import partial

import pytest

from harness.cli.following import Follower
from harness.cli.metrics_port import served
from harness.cli.watch import Looks, command, textfile_writer
from harness.recorded import watching
from harness.recorded.account import Account
from harness.recorded.errors import RecordedError
from harness.recorded.lines import MAX_LINE_BYTES
from harness.recorded.reader import Growing, Reading
from harness.recorded.record import Record
from harness.recorded.watch_metrics import LINES, families
from harness.recorded.watching import LEVEL, OTHERS, RISE, Rules, Watch
from stub_service.exposition import Busiest, family, text

S = 1_000_000_000
T0 = 1_431_857_100


def clf(at, tenant="a", status=200):
    return f'{tenant} - - [17/May/2015:10:{at // 60:02d}:{at % 60:02d} +0000] "GET /a HTTP/1.1" {status} 1 "-" "-"\n'


def record(at_s, tenant="a", status=200, **changed):
    return Record(int(at_s * S), 0, tenant, status, **changed)


@pytest.fixture
def follow():
    made = []

    def follower(*args, **how):
        made.append(Follower(*args, **how))
        return made[-1]

    yield follower
    for one in made:
        one.close()


# A file that grows


def test_only_what_was_added_and_only_whole_lines(tmp_path, follow):
    log = tmp_path / "x.log"
    log.write_bytes(b"one\ntwo\r\nthr")
    follower = follow(log)
    assert list(follower.poll()) == [b"one", b"two"]
    assert list(follower.poll()) == []
    with log.open("ab") as file:
        file.write(b"ee\n\nfour\n")
    assert list(follower.poll()) == [b"three", b"", b"four"]


def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(tmp_path, follow):
    log = tmp_path / "x.log"
    log.write_bytes(b"one\n")
    follower = follow(log)
    assert list(follower.poll()) == [b"one"]
    with log.open("ab") as file:
        file.write(b"two\nthree")
    log.rename(tmp_path / "x.log.1")
    assert list(follower.poll()) == [b"two"]  # gone for a moment
    log.write_bytes(b"four\n")
    assert list(follower.poll()) == [b"three", b"four"]
    assert follower.rotations == 1


def test_a_truncated_file_is_read_from_its_beginning(tmp_path, follow):
    log = tmp_path / "x.log"
    log.write_bytes(b"one\ntwo\nhal")
    follower = follow(log)
    list(follower.poll())
    os.truncate(log, 0)
    assert list(follower.poll()) == []
    with log.open("ab") as file:
        file.write(b"new\n")
    assert list(follower.poll()) == [b"new"]
    assert follower.truncations == 1


def test_new_only_begins_with_the_next_whole_line(tmp_path, follow):
    log = tmp_path / "x.log"
    log.write_bytes(b"old\nunder w")
    follower = follow(log, from_end=True)
    with log.open("ab") as file:
        file.write(b"ay\nnew\n")
    assert list(follower.poll()) == [b"new"]


def test_an_endless_line_is_told_once_and_held_never(tmp_path, follow):
    log = tmp_path / "x.log"
    log.write_bytes(b"x" * (3 * MAX_LINE_BYTES))
    follower = follow(log)
    assert list(follower.poll()) == []
    assert len(follower._rest) <= MAX_LINE_BYTES
    with log.open("ab") as file:
        file.write(b"x\nnext\n")
    assert list(follower.poll()) == [None, b"next"]


def test_a_file_that_is_not_there_says_so(tmp_path, follow):
    with pytest.raises(RecordedError, match="cannot be read"):
        follow(tmp_path / "none.log")


# The figures


def test_figures_of_the_window_and_since_the_beginning():
    watch = Watch(Rules(window_ns=60 * S))
    watch.add_all([record(0), record(1, status=503), record(2), record(3, status=500), record(100, status=404)])
    (row,) = watch.rows()
    assert (row.window.offered, row.total.offered) == (1, 5)
    assert (row.total.served, row.total.refused, row.total.failed, row.total.after_failure) == (2, 1, 1, 2)


def test_a_replan_is_inferred_within_w_of_a_failure_of_the_same_tenant_only():
    watch = Watch(Rules(within_ns=5 * S))
    watch.add_all([record(0, "a", 429), record(5, "a"), record(5.1, "a"), record(2, "b"), record(3, "a", 404)])
    shares = {row.tenant: row.window.after_failure for row in watch.rows()}
    assert shares == {"a": 2, "b": 0}  # at 5 s and, out of order, at 3 s


def test_what_is_older_than_everything_kept_is_counted_as_late():
    watch = Watch(Rules(window_ns=60 * S, baseline=1))
    watch.add_all([record(1_000), record(950), record(10)])
    assert (watch.late, watch.total.offered) == (1, 2)


def test_memory_is_bounded_and_nobody_is_lost(monkeypatch):
    monkeypatch.setattr(watching, "MOST_TENANTS", 3)
    watch = Watch(Rules(window_ns=60 * S))
    watch.add_all(record(i / 10, f"t{i}") for i in range(10))
    assert sum(row.window.offered for row in watch.rows()) == 10
    assert {row.tenant: row.window.offered for row in watch.rows()} == {OTHERS: 7, "t7": 1, "t8": 1, "t9": 1}


def test_slots_are_forgotten():
    watch = Watch(Rules(window_ns=12 * S, baseline=2))
    watch.add_all(record(i) for i in range(10_000))
    assert len(watch._tenants["a"].slots) <= 12 * 3 + 1


def replanning(begin, calls, share):
    """`calls` calls 6 s apart, of which a share comes a second after a refusal."""
    for i in range(int(calls * share)):
        yield record(begin + 12 * i, status=503)
        yield record(begin + 12 * i + 1)
    for i in range(int(calls * (1 - 2 * share))):
        yield record(begin + 12 * calls * share + 6 * i + 6)


def test_an_alert_begins_and_ends_once():
    watch = Watch(Rules(window_ns=600 * S, share=0.2, least_calls=20))
    watch.add_all(replanning(0, 60, 0.4))
    (alert,) = watch.alerts()
    assert (alert.kind, alert.began, alert.bound) == (LEVEL, True, 0.2)
    assert alert.value > 0.2
    assert str(alert).startswith("a: inferred re-plan share ")
    assert (watch.alerts(), watch.alerting()) == ([], ["a"])
    watch.add_all(record(1_000 + i) for i in range(600))
    (alert,) = watch.alerts()
    assert (alert.began, watch.alerting()) == (False, [])
    assert "no longer over 20" in str(alert)


def test_too_few_calls_alert_nobody():
    watch = Watch(Rules(least_calls=50))
    watch.add_all(replanning(0, 20, 0.5))
    assert watch.alerts() == []


def test_a_rise_alerts_below_the_level_and_a_steady_share_does_not():
    rules = Rules(window_ns=600 * S, share=0.5, rise=0.1, least_calls=20)
    steady, rising = Watch(rules), Watch(rules)
    for watch, late in ((steady, 0.1), (rising, 0.3)):
        watch.add_all(replanning(0, 300, 0.1))
        watch.add_all(replanning(1_900, 100, late))
    assert steady.alerts() == []
    assert [alert.kind for alert in rising.alerts()] == [RISE]


# Looking


def looks(log, follow, fail=False, told=(), rules=Rules(window_ns=60 * S, least_calls=5)):  # noqa: B008
    account = Account()
    watch = Watch(rules)
    seen = []
    made = Looks(follow(log), Growing(str(log), Reading(paths=False), account), watch, account, seen.append,
                 list(told), fail)  # fmt: skip
    return made, seen


def test_it_looks_until_an_alert_and_the_window_moves_on_in_a_silence(tmp_path, follow):
    log = tmp_path / "x.log"
    log.write_text("".join(clf(i) for i in range(10)))
    made, seen = looks(log, follow, fail=True)
    clock = [0]
    offered = []

    def wait(seconds):
        offered.append(sum(row.window.offered for row in made.watch.rows()))
        clock[0] += int(seconds * S)
        if len(offered) == 20:
            with log.open("a") as file:
                file.writelines(clf(120 + i, status=503) for i in range(10))

    made.until(False, 5 * S, lambda: clock[0], wait)
    assert (offered[0], offered[-1]) == (10, 0)
    assert len(offered) == 20  # it ended by itself
    assert [alert.tenant for alerts in seen for alert in alerts] == ["a"]


def test_ctrl_c_ends_it(tmp_path, follow):
    log = tmp_path / "x.log"
    log.write_text(clf(0))
    made, seen = looks(log, follow)

    def wait(seconds):
        raise KeyboardInterrupt

    made.until(False, S, lambda: 0, wait)
    assert len(seen) == 1


def test_a_log_that_is_empty_at_first_finds_its_format_later(tmp_path, follow):
    log = tmp_path / "x.log"
    log.write_text("")
    made, _ = looks(log, follow)
    assert made.look() == 0
    with log.open("a") as file:
        file.write(f'{{"ts": {T0}, "status": 200}}\n')
    assert made.look() == 1


# Prometheus


def test_metrics_have_the_names_of_a_trial_and_are_bounded():
    watch, account, busiest = Watch(Rules(least_calls=1)), Account(lines=5), Busiest(2)
    watch.add_all([record(0, 'a"\\', 503), record(1, 'a"\\'), record(2, "b"), record(2.5, "b"), record(3, "c", 500)])
    watch.alerts()
    said = text(families(watch, account, busiest)).decode()
    a = 'source="log",tenant="a\\"\\\\"'
    for line in (
        f"overload_offered_total{{{a}}} 2",
        f'overload_replans_total{{{a},rounds="inferred"}} 1',
        f'overload_replan_share{{{a},rounds="inferred"}} 0.5',
        f'overload_watch_alerting{{{a},kind="level"}} 1',
        'overload_offered_total{source="log",tenant="(others)"} 1',
        'overload_failed_total{source="log",tenant="(others)"} 1',
        'overload_watch_window_calls{source="log",tenant="(others)"} 1',
        "overload_watch_lines_total 5",
    ):
        assert line in said.splitlines()
    assert 'overload_replan_share{source="log",tenant="(others)"' not in said


def test_one_of_many_that_runs_away_late_has_series():
    watch, account, busiest = Watch(Rules(least_calls=1)), Account(), Busiest(3)
    watch.add_all(record(i / 10, f"t{i}") for i in range(20))
    assert 'tenant="t19"' not in text(families(watch, account, busiest)).decode()
    watch.add_all(record(3 + i / 100, "t19", 503) for i in range(100))
    watch.alerts()
    said = text(families(watch, account, busiest)).decode().splitlines()
    assert 'overload_refused_total{source="log",tenant="t19"} 100' in said
    assert 'overload_watch_alerting{source="log",tenant="t19",kind="level"} 1' in said
    assert 'overload_offered_total{source="log",tenant="(others)"} 17' in said


def test_metrics_are_served_on_loopback(capsys):
    with served(0) as tell:
        tell(lambda: [family(LINES, [((), 1)])])
        address = capsys.readouterr().err.split()[-1]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert answer.status == 200
            assert answer.read().splitlines()[-1] == b"overload_watch_lines_total 1"
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        asked = urllib.request.Request(address, headers={"Accept": "application/openmetrics-text;version=1.0.0"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            assert answer.read().endswith(b"\n# EOF\n")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(address.replace("/metrics", "/"), timeout=10)


def test_a_textfile_is_written_whole(tmp_path):
    path = tmp_path / "overload.prom"
    textfile_writer(path)(lambda: [family(LINES, [((), 1)])])
    assert path.read_text().endswith("\noverload_watch_lines_total 1\n")
    assert [one.name for one in tmp_path.iterdir()] == ["overload.prom"]


# The command


@pytest.fixture
def run(overload):
    return partial(overload, "watch")


@pytest.fixture
def log(tmp_path):
    """A minute: `agent` is refused every third call and comes at once again, `shop` is not."""
    lines = [clf(at, "agent", 503 if at % 3 == 0 else 200) for at in range(60)] + [clf(at, "shop") for at in range(60)]
    (tmp_path / "access.log").write_text("".join(lines))
    return tmp_path / "access.log"


def test_once_shows_a_table_and_ends(run, log):
    code, out, _ = run(log.name, "--once")
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[2:]}
    assert rows["shop"][:4] == ["60", "60", "0", "0"]
    assert rows["agent"][:4] == ["60", "40", "20", "0"]
    assert rows["ALERT"][0] == "agent:"
    assert "inferred" in out


def test_fail_gives_cron_an_exit_code(run, log):
    assert run(log.name, "--once", "--fail")[0] == 1
    assert run(log.name, "--once", "--fail", "--share", "100")[0] == 0


def test_json_is_a_line_a_look(run, log):
    _, out, _ = run(log.name, "--once", "--json")
    (line,) = out.splitlines()
    said = json.loads(line)
    assert said["replan_share"]["kind"] == "inferred"
    assert [(one["tenant"], one["offered"], one["refused"], one["alerting"]) for one in said["tenants"]] == [
        ("agent", 60, 20, ["level"]), ("shop", 60, 0, []),
    ]  # fmt: skip
    assert [alert["tenant"] for alert in said["alerts"]] == ["agent"]


def test_every_example_of_the_help_runs(run, log):
    for line in command.help.partition("Examples:")[2].splitlines():
        if line.strip():
            assert run(*shlex.split(line)[2:])[0] in (0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.log", "--once"], "does not exist"),
        (["access.log", "--format", "har"], "does not grow"),
        (["access.log", "--window", "0s"], "above zero"),
        (["access.log", "--format", "xml", "--once"], "is not known"),
        (["access.log", "--once", "--textfile", "no/such/x.prom"], "cannot be written"),
    ],
)
def test_bad_input_is_exit_code_2(run, log, arguments, message):
    code, _, err = run(*arguments)
    assert code == 2
    assert message in err
