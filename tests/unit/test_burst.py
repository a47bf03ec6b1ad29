"""`overload burst`: the profile that one line makes, who is watched, and what is refused before anything is sent."""

from __future__ import annotations

import pytest

from harness.cli import burst
from tests.unit.test_cli import overload

TARGET = """\
name: shop
url: http://127.0.0.1:8080
credentials: {tenants: {A: TOKEN_A, B: TOKEN_B, D: TOKEN_D}}
limits: {max_rate: 100/s}
"""


class Stop(Exception):
    """Instead of a trial."""


@pytest.fixture
def made(monkeypatch):
    """The profile that a command line makes."""

    def of(*options):
        kept = []

        def keep(loaded, *_, **__):
            kept.append(loaded.profile)
            raise Stop

        monkeypatch.setattr(burst, "run_one", keep)
        with pytest.raises(Stop):
            burst.command.main(["--tenant", "D", *options], standalone_mode=False)
        return kept[0]

    return of


def test_one_line_is_a_whole_profile(made):
    profile = made("--rate", "40/s", "--for", "20s", "--replans", "2x3")
    assert list(profile.tenants) == ["ordinary-1", "ordinary-2", "ordinary-3", "D"]
    assert profile.ordinary == ["ordinary-1", "ordinary-2", "ordinary-3"]
    assert profile.duration == 50_000_000_000
    replans = profile.tenants["D"].replans
    assert (replans.calls, replans.rounds, replans.after) == (2, 3, 500_000_000)
    assert [check.name for check in profile.checks] == [
        "fairness.ordinary_unmoved", "fairness.refusals_structured", "agent.replan_share",
    ]  # fmt: skip


def test_what_is_not_sent_outside_the_burst_may_be_nothing_at_all(made):
    profile = made("--rate", "40/s", "--base-rate", "0/s")
    assert profile.tenants["D"].rate.base == 0


def test_watched_tenants_that_call_seldom_still_begin_within_the_calm(made):
    profile = made("--rate", "40/s", "--ordinary-rate", "1/m")
    assert max(profile.tenants[name].phase for name in profile.ordinary) < 40_000_000_000


def test_those_of_the_target_file_are_watched(made, tmp_path, monkeypatch):
    for name in "ABD":
        monkeypatch.setenv(f"TOKEN_{name}", "x")
    (tmp_path / "t.yaml").write_text(TARGET)
    assert made("--rate", "40/s", "--target", str(tmp_path / "t.yaml")).ordinary == ["A", "B"]


@pytest.mark.parametrize(("options", "said"), [
    (("--rate", "0/s"), "--rate 0/s: no burst, for 'D' sends 8/s without it"),
    (("--rate", "8/s"), "no burst"),
    (("--rate", "40/s", "--ordinary-rate", "0/s"), "who sends nothing cannot be hurt"),
    (("--rate", "40/s", "--ordinary", "D,E"), "'D' runs away, so it cannot be among those watched"),
    (("--rate", "40/s", "--for", "0s"), "must be longer than zero"),
    (("--rate", "40/s", "--target", ""), "there is no such file"),
    (("--rate", "40/s", "--target", "/"), "there is no such file"),
    (("--rate", "40/s", "--target", "http://10.1.2.3", "--dry-run"), "if you may load it, describe it in a"),
    (("--rate", "40/s", "--target", "http://127.0.0.1:x", "--dry-run"), "is not a URL"),
])  # fmt: skip
def test_what_makes_no_burst_is_told_in_one_line(options, said):
    done = overload("burst", "--tenant", "D", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_dry_run_says_what_would_be_sent_where(tmp_path, monkeypatch):
    line = ("burst", "--tenant", "D", "--rate", "40/s", "--replans", "2x3", "--dry-run", "--target")
    done = overload(*line, "http://127.0.0.1:8080")
    assert done.returncode == 0
    assert done.stderr == (
        "sends to http://127.0.0.1:8080: up to 64 calls/s for 90s, at most 624/s if every call is refused (one becomes "
        "15); at most 32,160 calls in all; no limits set (loopback); Ctrl-C stops sending and drains\n"
    )
    assert "nothing was sent" in done.stdout
    for name in "ABD":
        monkeypatch.setenv(f"TOKEN_{name}", "x")
    (tmp_path / "t.yaml").write_text(TARGET)
    done = overload(*line, tmp_path / "t.yaml")
    assert done.returncode == 2
    assert "target 'shop' allows 100/s (limits.max_rate)" in done.stderr
