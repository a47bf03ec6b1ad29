"""Metrics of a trial over real HTTP: at its end they are the ledger's figures, whether one process drove it or two."""

from __future__ import annotations

import pytest

from harness import checks, trial
from harness.ledger.outcomes import TERMINAL
from harness.profile.loader import from_document
from harness.target.driver_process import Workers
from stub_service.exposition import MOST_LABELLED

pytestmark = [pytest.mark.live, pytest.mark.untimed]

ENDS = ("served", "abandoned", "failed", "dropped", "held_back")


def driven(tmp_path, tenants, workers=0, **more):
    document = {
        "name": "metrics",
        "duration": "1500ms",
        "patience": "200ms",
        "patience_until": "done",
        "service": {"workers": 2, "service_time": "20ms", "admission": {"policy": "shared_fifo", "queue": 8}},
        "tenants": tenants,
        **more,
    }
    made, events = from_document(document, origin="a test", checks=checks.PARAMETERS), []
    judged = trial.run(made, trial.new_folder(tmp_path, "trial"), trial.STUB, None, events.append, Workers(workers))
    return judged.trial, events[-1]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_last_event_has_every_call_of_the_ledger(tmp_path, workers):
    tenants = {
        "A": {"rate": "10/s"},
        "D": {
            "rate": "150/s",
            "replans": {"calls": 2, "after": "50ms", "rounds": 2},
            "budget": {"rate": "200/s", "burst": 20},
        },
    }
    found, last = driven(tmp_path, tenants, workers)
    for place, name in enumerate(found.tenants):
        said, mine = last["tenants"][name], found.calls.tenant == place
        outcomes = [TERMINAL[outcome] for outcome in found.calls.outcome[mine]]
        assert said["due"] == mine.sum()
        assert said["replans"] == (found.calls.round[mine] > 0).sum()
        assert said["in_flight"] == 0
        assert sum(said[end] for end in (*ENDS, "refused", "other")) == said["due"]
        assert {end: said[end] for end in ENDS} == {end: outcomes.count(end) for end in ENDS}
        assert sum(said["wait_counts"]) == said["served"]
    assert last["tenants"]["D"]["held_back"] > 0
    sent = sum(said["due"] - said["held_back"] for said in last["tenants"].values())
    assert sum(last["late_counts"]) == sent - sum(said["dropped"] for said in last["tenants"].values())


def test_of_very_many_tenants_the_rest_are_told_together(tmp_path):
    many = MOST_LABELLED + 50
    tenants = {"quiet": {"count": many, "rate": "1/s"}, "runaway": {"rate": "60/s"}}
    found, last = driven(tmp_path, tenants, duration="1s")
    assert len(last["tenants"]) == MOST_LABELLED
    assert last["tenants"]["runaway"]["due"] == 60
    assert sum(said["due"] for said in (*last["tenants"].values(), last["rest"])) == len(found.calls)
    assert last["rest"]["due"] == 51
