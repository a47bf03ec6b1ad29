"""The view of a running trial: rates from events, one line now and then, and no event that can end a trial."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from harness.profile.model import Profile
from harness.report.progress import CountProgress, TrialProgress, View, picture, plain_line
from tests.unit.report_trials import HOSTILE, profile

S = 1_000_000_000


def loop_profile(**more: Any) -> Profile:
    document = profile(["alice", "loop"], ["alice"], duration="60s", **more)
    document["tenants"]["loop"] = {"rate": ["8/s", {"from": "4s", "to": "8s", "rate": "40/s"}]}
    return Profile.model_validate(document)


def event(at_s: float, alice: int, loop: int, **more: int) -> dict[str, Any]:
    counts = {"served": 0, "refused": 0, "abandoned": 0, "held_back": 0, "in_flight": 0, "replans": 0}
    return {
        "event": "progress",
        "now_ns": int(at_s * S),
        "tenants": {"alice": counts | {"due": alice, "served": alice}, "loop": counts | {"due": loop} | more},
        "late_p99_ns": 400_000,
    }


def lines_of(progress: TrialProgress, stream: io.StringIO, events: list[dict[str, Any]]) -> list[str]:
    with progress as on_progress:
        for one in events:
            on_progress(one)
    return stream.getvalue().splitlines()


def test_rates_are_of_the_last_two_seconds() -> None:
    view = View(loop_profile())
    for i in range(13):
        view.add(event(i / 2, alice=4 * i, loop=30 * i, replans=10 * i, held_back=5 * i))
    assert view.phase() == "burst"
    assert view.asked("loop") == 40
    line = plain_line(view)
    assert line.startswith("6 s burst, 54 s left, asked 48.0/s, achieved 48.0/s, sent 58.0/s; alice served 48 ")
    assert line.endswith("loop served 0 refused 0 abandoned 0 waiting 0 held back 60")


def test_what_is_served_now_is_of_the_last_two_seconds() -> None:
    view = View(loop_profile())
    assert view.served_now("loop") is None
    for i in range(11):
        lost = max(0, i - 5)
        view.add(event(i, alice=8 * i, loop=8 * i, served=2 * i, refused=6 * lost))
    assert view.served_now("alice") == 1
    assert view.served_now("loop") == 0.25
    text = picture(view, "t", Console(file=io.StringIO(), width=80))
    assert text.plain.splitlines()[3].split()[:5] == ["tenant", "served", "refused", "waiting", "now"]
    loop = text.plain.splitlines()[5]
    assert loop.split()[:5] == ["loop", "20", "30", "0", "25"]
    styles = {str(span.style) for span in text.spans if loop in text.plain[span.start : span.end]}
    assert styles == {"yellow"}


@pytest.mark.parametrize(("losing", "style"), [("alice", "red"), ("loop", "yellow")])
def test_who_loses_now_is_coloured_and_an_ordinary_tenant_more_so(losing: str, style: str) -> None:
    view = View(loop_profile())
    for at in (1, 2):
        one = event(at, alice=8 * at, loop=8 * at, served=8 * at)
        one["tenants"][losing] |= {"served": at, "refused": 7 * at}
        view.add(one)
    text = picture(view, "t", Console(file=io.StringIO(), width=80))
    row = next(line for line in text.split("\n") if line.plain.startswith(losing))
    assert {str(span.style) for span in row.spans} == {style}


def test_the_bar_shows_the_phases_that_are_to_come() -> None:
    view = View(loop_profile())
    view.add(event(6, 1, 1))
    bar = picture(view, "t", Console(file=io.StringIO(), width=80)).split("\n")[1]
    assert bar.plain.startswith("━")
    assert [str(span.style) for span in bar.spans][:3] == ["green", "yellow", "dim yellow"]


def test_a_plain_line_every_ten_seconds_of_the_trial() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=False, width=40)
    lines = lines_of(TrialProgress(loop_profile(), "t", console), stream, [event(i / 2, i, i) for i in range(71)])
    assert [line.split(",")[0] for line in lines] == ["10 s running", "20 s running", "30 s running"]


def test_a_gap_between_events_is_one_line_and_not_many() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=False)
    lines = lines_of(TrialProgress(loop_profile(), "t", console), stream, [event(35, 1, 1), event(35.5, 1, 1)])
    assert len(lines) == 1


def test_a_short_trial_is_not_shown() -> None:
    stream = io.StringIO()
    short = loop_profile(phases={}).model_copy(update={"duration": 2 * S})
    assert (
        lines_of(TrialProgress(short, "t", Console(file=stream, force_terminal=True)), stream, [event(1, 1, 1)]) == []
    )


def test_on_a_terminal_the_view_renews_itself() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=90, height=30)
    lines_of(
        TrialProgress(loop_profile(), "worked [red]example", console), stream, [event(i, i * 8, i) for i in range(3)]
    )
    assert "worked [red]example" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_view_fits_its_terminal(width: int) -> None:
    hostile = [name for name in HOSTILE if "\x1b" not in name]  # a profile refuses control characters by itself
    view = View(Profile.model_validate(profile([*hostile, *(f"t{i}" for i in range(20))], [])))
    view.add({"now_ns": S, "tenants": {}})
    console = Console(file=io.StringIO(), width=width)
    text = picture(view, "title " * 50, console).plain
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "12 more tenants" in text
    assert not set(text) & set("\x1b\u202e\x07")


def test_recorded_arrivals_have_no_rate_to_ask_for() -> None:
    document = profile(["a"], [])
    document["tenants"]["a"] = {"recorded": {"file": "0000.jsonl"}}
    view = View(Profile.model_validate(document))
    view.add(event(1, 1, 1))
    assert "asked –, achieved" in plain_line(view)


_ANYTHING = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["due", "alice", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["now_ns", "tenants", "late_p99_ns", "event"]), _ANYTHING))
@settings(deadline=None)
def test_no_event_can_end_a_trial(broken: dict[str, Any]) -> None:
    stream = io.StringIO()
    with TrialProgress(loop_profile(), "t", Console(file=stream, force_terminal=True, width=80)) as on_progress:
        on_progress(broken)
        on_progress(event(1, 1, 1))
        on_progress(broken)


def test_an_ensemble_says_how_far_it_is() -> None:
    stream = io.StringIO()
    clock = iter(range(0, 100 * S, S))
    with CountProgress("ensemble", 50, Console(file=stream, force_terminal=False), lambda: next(clock)) as advance:
        for _ in range(10):
            advance(5)
    assert stream.getvalue().splitlines() == ["ensemble: 50 of 50, about 0 s left"]


def test_an_ensemble_on_a_terminal_is_quiet_for_two_seconds() -> None:
    stream = io.StringIO()
    clock = iter([0, S, 3 * S])
    with CountProgress("ensemble", 4, Console(file=stream, force_terminal=True), lambda: next(clock)) as advance:
        advance()
        assert stream.getvalue() == ""
        advance(2)
    assert "ensemble: 3 of 4, about 1 s left" in stream.getvalue()
