"""The campaign against false alarms: healthy services, again and again, and nothing but PASS.

In virtual time with other seeds and phases; over real HTTP as they are. Counts are printed (`-s` shows them as they
come); a failure says which trials, and why. SEEDS and LIVE_TIMES are what the figures in docs are from.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from harness import verify
from harness.checks.verdict import Word
from harness.machine import usable_cores
from harness.matrix import Job, judge_in_virtual_time, judge_job, profile_of_defect
from harness.shipped import VERIFICATION
from stub_service.defects.registry import DEFECTS
from tests.conftest import FAIR, WORKED_EXAMPLE, with_values
from tests.defects.profiles import FAIRNESS, REFUSALS, UNEVEN, WORKED, at_phase

pytestmark = pytest.mark.slow

SEEDS = 200
TWIN_SEEDS = 40
LIVE_TIMES = 20
MOST_LATE = 2
UNMOVED, STRUCTURED = "fairness.ordinary_unmoved", "fairness.refusals_structured"
TEN = ",".join(f"v{number:02}" for number in range(1, 11))

SHARED = {
    "fair_queues": (with_values(WORKED_EXAMPLE, {"service.admission": FAIR}), (UNMOVED,)),
    "budget": (WORKED["budget"][0], (UNMOVED, "agent.budget_at_source")),
    "workers_doubled": (WORKED["workers_doubled"][0], (UNMOVED,)),
    "fairness": (FAIRNESS, (UNMOVED, STRUCTURED)),
    "refusals": (REFUSALS, (STRUCTURED,)),
    "uneven": (UNEVEN, (UNMOVED,)),
}
"""Of the kind of the worked example: what must pass whatever the phases."""


def judge_shared(job):
    """(number, verdicts that are no PASS) of one trial of the shared service."""
    name, number = job
    document, wanted = SHARED[name]
    cell = judge_in_virtual_time(at_phase(document, number), None, [*wanted, "trial.conserved", "trial.on_time"])
    return number, [(v.check, v.word.value, v.sentence) for v in cell.verdicts if v.word is not Word.PASS]


def in_processes(function, jobs):
    with ProcessPoolExecutor(min(2, usable_cores())) as pool:
        return list(pool.map(function, jobs, chunksize=5))


def tell(name, words):
    print(f"\n{name}: {', '.join(f'{n} {word}' for word, n in sorted(Counter(words).items()))}")


def alarms(rows):
    return [(row.job.number, v.check, v.word.value, v.sentence) for row in rows for v in row.alarms]


@pytest.mark.parametrize("path", sorted(VERIFICATION.rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_healthy_service_is_never_an_alarm(path):
    rows = in_processes(judge_job, [Job(path, None, number) for number in range(SEEDS)])
    tell(f"{path.stem}, healthy", [row.own.word.value for row in rows])
    assert alarms(rows) == []


@pytest.mark.parametrize("name", sorted(name for name, defect in DEFECTS.items() if defect.healthy))
def test_a_twin_is_never_an_alarm(name):
    path = profile_of_defect(DEFECTS[name])
    rows = in_processes(judge_job, [Job(path, name, number) for number in range(TWIN_SEEDS)])
    tell(name, [row.own.word.value for row in rows])
    assert alarms(rows) == []


@pytest.mark.parametrize("name", SHARED)
def test_a_fair_shared_service_is_never_an_alarm(name):
    made = in_processes(judge_shared, [(name, number) for number in range(SEEDS)])
    tell(f"{name}, healthy", ["alarm" if found else "PASS" for _, found in made])
    assert [(number, found) for number, found in made if found] == []


@pytest.mark.live
@pytest.mark.parametrize("number", range(LIVE_TIMES))
def test_the_ten_over_real_http_are_never_an_alarm(number, tmp_path):
    """A trial in which the harness itself was late says nothing of the stub: it is counted apart, and may not be
    frequent."""
    outcomes = verify.run(verify.chosen(TEN), verify.Options(reports=tmp_path))
    late = [outcome for outcome in outcomes if was_late(outcome)]
    words = ["late" if outcome in late else outcome.verdict.word.value for outcome in outcomes]
    tell(f"live, {number + 1} of {LIVE_TIMES}", words)
    verdicts = [(o.case.name, v) for o in outcomes if o not in late for v in o.judged.verdicts]
    assert [(name, v.check, v.word.value, v.sentence) for name, v in verdicts if v.word is not Word.PASS] == []
    assert len(late) <= MOST_LATE


def was_late(outcome):
    return any(v.check == verify.ON_TIME and v.word is Word.INVALID for v in outcome.judged.verdicts)
