"""Agent runs over real HTTP against the bundled stub: the same runs as in virtual time, and nothing lost."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from harness import trial
from harness.ledger.reader import ARRIVALS, CALLS, EFFECTS
from harness.profile.loader import from_document, load
from tests.conftest import ROOT

pytestmark = pytest.mark.live

TICKET = ROOT / "profiles" / "support_ticket.yaml"
SCALE = 0.2


def rows(folder, name=CALLS):
    return [orjson.loads(line) for line in (folder / name).read_bytes().splitlines()]


def told(folder):
    """What does not depend on the clock: calls by tenant, action, round and outcome."""
    return Counter((row["tenant"], row["action"], row["round"], row["outcome"]) for row in rows(folder))


def both(loaded, tmp_path):
    """(live verdicts, live folder, simulated folder)"""
    live, simulated = trial.new_folder(tmp_path, "live"), trial.new_folder(tmp_path, "simulated")
    judged = trial.run(loaded, live, trial.STUB)
    trial.simulate(loaded, simulated)
    return {verdict.check: verdict for verdict in judged.verdicts}, live, simulated


def test_the_running_example_live_is_that_of_virtual_time(tmp_path):
    verdicts, live, simulated = both(load(TICKET, time_scale=SCALE), tmp_path)
    assert verdicts["trial.conserved"].word.value == "PASS", verdicts["trial.conserved"]
    assert told(live) == told(simulated)
    assert {row["outcome"] for row in rows(live)} == {"served"}
    payments = [row["idempotency_key"] for row in rows(live, EFFECTS) if row["dependency"] == "billing"]
    assert len(payments) == len(set(payments)) == 58 + 30
    assert Counter(row["tool"] for row in rows(live, ARRIVALS) if row["operation"] == "write") == Counter(
        row["tool"] for row in rows(simulated, ARRIVALS) if row["operation"] == "write"
    )


STEP = {"dependency": "customer"}
EVERY_WAY = {
    "name": "every-way",
    "duration": "1s",
    "drain": "3s",
    "capacity": {
        "ceiling": 50,
        "dependencies": {
            "customer": {
                "workers": 50,
                "service_time": "20ms",
                "reads": {"limit": 40, "timeout": "1s"},
                "writes": {"limit": 10, "timeout": "1s"},
                "circuit": {"window": "1s", "slow": "500ms", "open_for": "1s", "lease": "1s"},
            }
        },
        "retry": {"base": "20ms", "most": "1s"},
        "recovery": {"from_rate": "50/s", "to_rate": "500/s", "ramp": "1s"},
    },
    "tenants": {
        "A": {
            "runs": [
                {"name": "plain", "at": "0s", "count": 3, "batches": [[STEP], [{**STEP, "operation": "write"}]]},
                {"name": "parallel", "at": "100ms", "parallel": True, "batches": [[STEP], [STEP], [STEP]]},
                {
                    "name": "greedy",
                    "at": "200ms",
                    "envelope": {"attempts": 4},
                    "batches": [[{**STEP, "repeat": 5}], [STEP]],
                    "replans": {"batch": [{**STEP, "repeat": 6}], "after": "10ms", "rounds": 2},
                },
                {
                    "name": "parent",
                    "at": "300ms",
                    "envelope": {"attempts": 10},
                    "batches": [[{**STEP, "repeat": 3}]],
                    "children": [
                        {"count": 2, "envelope": {"attempts": 4}, "batches": [[{**STEP, "repeat": 2}]]},
                        {"envelope": {"attempts": 9}, "batches": [[STEP]]},
                    ],
                },
                {"name": "stopped", "at": "400ms", "cancel_after": "50ms", "batches": [[STEP] for _ in range(9)]},
            ]
        }
    },
}


def test_every_way_of_a_run_ends_as_in_virtual_time(tmp_path):
    verdicts, live, simulated = both(from_document(EVERY_WAY), tmp_path)
    assert verdicts["trial.conserved"].word.value == "PASS", verdicts["trial.conserved"]
    by_run = {
        folder: Counter((row["task"], row["action"], row["round"], row["outcome"]) for row in named(folder))
        for folder in (live, simulated)
    }
    assert by_run[live] == by_run[simulated]
    assert by_run[live]["greedy", "submit", 0, "budget_exhausted"] == 1
    assert by_run[live]["greedy", "submit", 2, "budget_exhausted"] == 1
    assert by_run[live]["parent.child", "open", 0, "budget_exhausted"] == 1
    assert by_run[live]["stopped", "submit", 0, "cancelled"] == 1
    assert by_run[live]["stopped", "finish", 0, "served"] == 0


def named(folder):
    """Rows with the task class of their run, as the controller wrote it down; the stopped run's served submits are left
    out, since how many of them come before its cancellation is a matter of the clock."""
    opened = {}
    for row in rows(folder, "decisions.jsonl"):
        if row["kind"] == "run" and "request" in row:
            opened.setdefault(row["request"].rsplit(".", 1)[0], row["task_class"])
    for row in rows(folder):
        task = opened[f"0.{row['run']}"]
        if (task, row["action"], row["outcome"]) != ("stopped", "submit", "served"):
            yield {**row, "task": task}
