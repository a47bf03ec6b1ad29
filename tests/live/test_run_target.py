"""`--target` at a stub that runs already: what it does not serve is found out before anything is sent."""

from __future__ import annotations

import pytest

from harness import checks, trial
from harness.errors import BadInput
from harness.profile.loader import from_document, load
from harness.simulate.service import capacity_config, shared_service
from harness.target.stub import StubProcess
from tests.conftest import ROOT

pytestmark = [pytest.mark.live, pytest.mark.untimed]

TICKETS = ROOT / "profiles" / "support_ticket.yaml"
PLAIN = {
    "name": "plain",
    "duration": "1s",
    "service": {"workers": 4, "service_time": "10ms", "admission": {"policy": "shared_fifo", "queue": 10}},
    "tenants": {"A": {"rate": "5/s"}},
}


def test_a_stub_that_lacks_what_the_tenants_call_is_sent_nothing(tmp_path):
    plain, tickets = from_document(PLAIN, checks=checks.PARAMETERS), load(TICKETS, checks=checks.PARAMETERS)
    for served, loaded, missing in (
        ({"config": shared_service(plain.profile), "capacity": None}, tickets, "has no capacity layer"),
        ({"config": None, "capacity": capacity_config(tickets.profile)}, plain, "has no shared service"),
    ):
        with StubProcess(evidence_dir=tmp_path, **served) as stub:
            folder = trial.new_folder(tmp_path, "trial")
            with pytest.raises(BadInput, match=f"{missing}, which the tenants of profile '{loaded.profile.name}' call"):
                trial.run(loaded, folder, stub.url)
            assert not folder.exists()
            assert not (tmp_path / "decisions.jsonl").read_text()
