"""The campaign against false alarms and misses: healthy services, again and again, and nothing but PASS; broken ones,
and nothing but FAIL.

In virtual time with other seeds and phases; over real HTTP as they are. Counts are printed (`-s` shows them as they
come); a failure says which trials, and why. SEEDS and LIVE_TIMES are what the figures in docs are from.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest

from benchmarks.judge import cells
from benchmarks.judge.campaign import Campaign
from harness import verify
from harness.checks.verdict import Word
from harness.machine import usable_cores
from harness.matrix import judge_in_virtual_time
from tests.conftest import FAIR, WORKED_EXAMPLE, with_values
from tests.defects.profiles import FAIRNESS, REFUSALS, UNEVEN, WORKED, at_phase

pytestmark = pytest.mark.slow

SEEDS = 200
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


def test_no_miss_and_no_false_alarm_in_two_hundred_seeds_of_every_situation_defect_and_twin():
    """Trials that are on record for this code already are not driven again: the campaign resumes."""
    parts = (cells.HEALTHY, cells.DEFECT, cells.TWIN)
    campaign = Campaign(dict.fromkeys(parts, SEEDS), jobs=usable_cores())
    campaign.go()
    rows = [row for row in campaign.done.values() if cells.parsed(row.key).part in parts]
    tell("situations, defects and twins", [word for row in rows for word in set(row.words.values())])
    assert {row.key: row.said for row in rows if not is_right(row)} == {}
    assert len({row.series for row in rows}) * SEEDS <= len(rows)


def is_right(row):
    """The defect's checks FAIL and no other does; the twin's, and those that a situation is there for, PASS."""
    cell = cells.parsed(row.key)
    must, may = cells.must_see(cell), cells.may_fail(cell)
    if cell.part == cells.DEFECT:
        return all(row.words[check] == "FAIL" for check in must) and not wrong(row, {*must, *may})
    decided = must if cell.part == cells.TWIN else row.words
    return all(row.words[check] == "PASS" for check in decided) and not wrong(row, ())


def wrong(row, may):
    return [check for check, word in row.words.items() if word in ("FAIL", "INVALID") and check not in may]


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
