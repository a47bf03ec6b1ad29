"""What the tabs of Locust's page show, and where. The page itself: tests/browser/test_web_ui.py."""

from __future__ import annotations

import socket

import pytest

from harness.errors import BadInput
from harness.live.progress import Tally
from harness.live.web_ui import OTHERS, Shown, opened
from harness.profile.model import Profile
from tests.conftest import WORKED_EXAMPLE

S = 1_000_000_000


def counts(due=0, replans=0, **values):
    tally = Tally()
    tally.due, tally.replans = due, replans
    for name, value in values.items():
        setattr(tally, name, value)
    return tally.counts()


def event(now_s, rest=None, **tenants):
    return {"now_ns": now_s * S, "tenants": tenants} | ({"rest": rest} if rest else {})


def test_tenants_busiest_first_and_the_rest_last():
    shown = Shown(Profile.model_validate(WORKED_EXAMPLE))
    shown.look(event(1, counts(100), A=counts(4, in_flight=1), D=counts(8, 2)))
    rows = shown.tenants()
    assert [(row["tenant"], row["role"], row["due"], row["replan_share"]) for row in rows] == [
        ("D", "", 8, 25.0), ("A", "ordinary", 4, 0.0), (OTHERS, "", 100, 0.0),
    ]  # fmt: skip
    assert rows[1]["in_flight"] == 1


def test_what_happens_counts_in_the_phase_that_it_was():
    shown = Shown(Profile.model_validate(WORKED_EXAMPLE))
    for now_s, due, replans in ((10, 100, 0), (29.5, 200, 0), (30.0, 210, 0), (69.5, 610, 300), (71, 620, 305)):
        shown.look(event(now_s, A=counts(due, replans)))
    rows = {row["phase"]: row for row in shown.phases()}
    assert [(row["phase"], row["state"]) for row in shown.phases()] == [
        ("calm", "over"), ("burst", "over"), ("recovery", "now"),
    ]  # fmt: skip
    assert [rows[name]["due"] for name in rows] == [210, 410, 0]
    assert rows["burst"]["replan_share"] == pytest.approx(100 * 305 / 410)


def test_another_trial_begins_anew_and_none_changes_nothing():
    shown = Shown(Profile.model_validate(WORKED_EXAMPLE))
    shown.look(event(40, A=counts(50)))
    shown.look(None)
    assert shown.tenants()[0]["due"] == 50
    shown.look(event(1, A=counts(3)))
    assert sum(row["due"] for row in shown.phases()) == 3


def test_a_profile_without_phases_has_one_row():
    document = {key: value for key, value in WORKED_EXAMPLE.items() if key != "phases"}
    shown = Shown(Profile.model_validate(document))
    shown.look(event(1, A=counts(3)))
    assert [(row["phase"], row["state"], row["due"]) for row in shown.phases()] == [("(no phase)", "now", 3)]


def test_a_port_that_is_taken_is_bad_input():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInput, match="that port is taken"):
            opened(None, taken.getsockname()[1], None)
