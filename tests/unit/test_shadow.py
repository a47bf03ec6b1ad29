"""The what-if: the very service in virtual time, columns out of a log, policies by name, how many workers it takes."""

import numpy as np
import pytest

from harness.measure.tally import Tally
from harness.profile.loader import from_document
from harness.recorded.account import Account
from harness.recorded.errors import RecordedError
from harness.recorded.prepare import Bound
from harness.recorded.reader import Reading
from harness.shadow import find, policies
from harness.shadow.figures import as_json, tried
from harness.shadow.find import Point, Unmoved, find_workers
from harness.shadow.page import page
from harness.shadow.play import ABANDONED, REFUSED, SERVED, most_at_once, play, service_of
from harness.shadow.traffic import Serving, Traffic, gather
from harness.shadow.view import spark
from harness.simulate.driver import Simulation
from harness.workload.callers import Arrival
from tests.unit.recorded_fixtures import COMBINED, source

MS, S = 1_000_000, 1_000_000_000
SPECS = (
    "shared_fifo:queue=3",
    "fair_queues:queue=2",
    "tenant_cap:queue=3,cap=1",
    "shuffle_sharded:queues=4,hand=2,queue=2",
)


def traffic(calls, tenants=("a", "b"), refused=()):
    """calls: (tenant's place, due, service) in order of due."""
    tenant, due, service = (np.array(column) for column in zip(*calls, strict=True))
    none = np.zeros(len(calls), dtype=bool)
    mask = none.copy()
    mask[list(refused)] = True
    return Traffic(
        tenants, (1,) * len(tenants), tenant.astype(np.int32), due.astype(np.int64), service.astype(np.int64), mask,
        none, np.full(len(calls), -1.0), 0, int(due[-1]) + 1, len(calls), len(calls),
    )  # fmt: skip


def burst(n=40, seed=3):
    rng = np.random.default_rng(seed)
    due = np.sort(rng.integers(0, 20, n)) * 10 * MS
    calls = [(int(rng.integers(0, 2)), int(at), int(rng.integers(1, 12)) * 10 * MS) for at in due]
    return sorted(calls, key=lambda call: (call[1], call[0]))  # of one instant in the order of the tenants, as it does


def agrees_with_the_simulator(found, spec, workers, patience_ns):
    """Plays it both ways, tenant by tenant; returns how many calls were lost."""
    admission = policies.parse(spec).config(workers)
    columns = (found.tenant.tolist(), found.due_ns.tolist(), found.service_ns.tolist())
    played = play(found.tenants, *columns, service_of(admission, workers), patience_ns)
    keys = ("queue", "queue_per_tenant", "cap", "queues", "hand")
    document = {
        "name": "x", "duration": "3s", "drain": "10m", "seed": 0,
        "service": {
            "workers": workers, "service_time": {"distribution": "recorded_cost", "base": "0s", "per_unit": "1ns"},
            "admission": {"policy": admission.policy} | {k: v for k in keys if (v := getattr(admission, k))}
            | ({"weights": dict(admission.weights)} if admission.weights else {}),
        },
        "tenants": {name: {"recorded": {"file": name}} for name in found.tenants},
        **({"patience": f"{patience_ns}ns", "patience_until": "start"} if patience_ns else {}),
    }  # fmt: skip

    def recorded(name):
        rows = zip(*columns, strict=True)
        return iter([Arrival(due, float(cost)) for place, due, cost in rows if found.tenants[place] == name])

    tally = Tally(list(found.tenants))
    Simulation(from_document(document).profile, tally.add, recorded=recorded).run()
    for place, row in enumerate(tally.tenants):
        mine = found.tenant == place
        mine_by_word = [int((played.outcome[mine] == word).sum()) for word in (SERVED, REFUSED, ABANDONED)]
        assert [row.served, row.refused, row.abandoned] == mine_by_word
        assert row.wait_ns == played.wait_ns[mine & (played.outcome == SERVED)].sum()
    return int((played.outcome != SERVED).sum())


@pytest.mark.parametrize("patience_ns", [None, 50 * MS])
@pytest.mark.parametrize("spec", SPECS)
def test_it_decides_as_the_simulator_does(spec, patience_ns):
    assert agrees_with_the_simulator(traffic(burst()), spec, 2, patience_ns) > 0


def test_nobody_waits_with_as_many_workers_as_are_ever_busy_and_somebody_does_with_one_less():
    found = traffic(burst())
    most = most_at_once(found.due_ns, found.service_ns)
    for workers, waits in ((most, False), (most - 1, True)):
        one = tried(found, policies.parse("shared_fifo"), workers)
        assert (one.total.delayed > 0) is waits


def test_one_that_ends_frees_its_worker_for_one_that_comes_in_that_instant():
    assert most_at_once(np.array([0, 10]), np.array([10, 10])) == 1
    found = tried(traffic([(0, 0, 10), (0, 10, 10)]), policies.parse("shared_fifo"), 1)
    assert found.total.delayed == 0


def test_agreement_with_the_log_counts_the_same_calls():
    found = traffic([(0, 0, S), (0, 1, S), (0, 2, S), (0, 3, S)], refused=(0, 3))
    one = tried(found, policies.parse("shared_fifo:queue=1"), 1)
    assert (one.total.refused, one.total.delayed) == (2, 1)  # one runs, one waits
    assert (one.agreement.both, one.agreement.only_log, one.agreement.only_policy) == (1, 1, 1)


def test_figures_are_of_each_tenant():
    one = tried(traffic([(0, 0, S), (0, 1, S), (1, 2, S)]), policies.parse("fair_queues:queue=1"), 1)
    a, b = one.figures
    assert (a.calls, a.refused, a.delayed, b.calls, b.refused, b.delayed) == (2, 0, 1, 1, 0, 1)
    assert (a.mean_wait_ns, b.p95_wait_ns) == ((S - 1) / 2, 2 * S - 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fair_quues", "did you mean fair_queues? known: shared_fifo"),
        ("fifo", "known: shared_fifo, tenant_cap"),
        ("shared_fifo:cap=2", "policy shared_fifo does not use cap"),
        ("shared_fifo:queue=0", "needs a queue of at least 1"),
        ("shared_fifo:queue=-1", "expected a whole number"),
        ("shared_fifo:workers=0", "expected a whole number"),
        ("shared_fifo:queue", "is not KEY=VALUE"),
        ("shared_fifo:colour=3", "is no parameter"),
        ("shared_fifo:queue=1,queue=2", "each key once"),
        ("shuffle_sharded:queues=2,hand=4", "cannot be dealt"),
        ("fair_queues:weights=A", "expected TENANT*WEIGHT"),
        ("fair_queues:weights=A*0", "weights"),
    ],
)
def test_what_is_no_policy_says_what_would_be(text, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?").replace("*", r"\*")):
        policies.parse(text)


def test_policies_have_defaults_and_parameters_of_their_own():
    assert policies.parse("tenant_cap").config(8).cap == 4
    assert policies.parse("fair_queues:queue=7").config(8).queue_per_tenant == 7
    assert policies.parse("fair_queues:weights=A*3+B*1").config(8).weights == (("A", 3), ("B", 1))
    assert policies.parse("shared_fifo:workers=16").workers == 16


LOGGED = [
    ("a", 200, 100, 20), ("a", 200, 60, 0), ("a", 429, 1, 0), ("b", 503, 1, 0), ("b", 200, 400, 0), ("c", 503, 2, 0),
]  # fmt: skip
TIMED = "".join(
    f'{{"ts": {1_431_857_100 + i}, "who": "{who}", "status": {status}, "took_ms": {took}, "queue_ms": {queue}}}\n'
    for i, (who, status, took, queue) in enumerate(
        [
            ("a", 200, 100, 20),
            ("a", 200, 60, 0),
            ("a", 429, 1, 0),
            ("b", 503, 1, 0),
            ("b", 200, 400, 0),
            ("c", 503, 2, 0),
        ]
    )
)
ROLES = {"time": "ts", "tenant": "who", "duration": "took_ms", "queue_time": "queue_ms"}


GIVEN = Serving(50 * MS)


def gathered(text=TIMED, serving=GIVEN, roles=ROLES, **how):
    account = Account()
    return gather([source(text)], Reading(roles=roles, paths=False), account, serving, **how), account


def test_service_times_are_the_logs_less_the_queue_and_means_where_it_refused():
    found, _ = gathered()
    of = {name: found.service_ns[found.tenant == place].tolist() for place, name in enumerate(found.tenants)}
    assert of == {"a": [80 * MS, 60 * MS, 70 * MS], "b": [400 * MS, 400 * MS], "c": [180 * MS]}
    assert (found.measured, found.with_status, int(found.refused.sum())) == (3, 6, 3)


def test_service_times_are_given_where_the_log_has_none_or_they_are_not_wanted():
    assert set(gathered(serving=Serving(5, from_log=False))[0].service_ns.tolist()) == {5}
    found, _ = gathered(COMBINED, roles={})
    assert set(found.service_ns.tolist()) == {50 * MS}


def test_a_cost_makes_a_service_time():
    text = '{"ts": 1431857100, "cost": 3}\n{"ts": 1431857101, "cost": "x"}\n'
    found, _ = gathered(text, Serving(5, per_unit_ns=10, base_ns=1), roles={"time": "ts"})
    assert found.service_ns.tolist() == [31, 1]


def test_the_others_are_pooled_and_a_window_is_cut():
    found, account = gathered(top=1, keep=["c"])
    assert (found.tenants, found.identities) == (("a", "b", "c"), (1, 1, 1))  # one alone is not pooled
    found, account = gathered(top=1)
    assert (found.tenants, found.identities, account.folded) == (("a", "rest"), (1, 2), 3)
    found, account = gathered(begin=Bound(1 * S, True), end=Bound(4 * S, True))
    assert (len(found), account.outside, account.balanced()) == (3, 3, True)
    assert found.due_ns.tolist() == [0, S, 2 * S]


def test_who_is_shown_as_the_rest_is_played_as_many():
    """Forty callers at one instant, each with a queue of its own: nobody is refused, however few have a line."""
    text = "".join(f'{{"ts": 1431857100, "who": "c{number:02}"}}\n' for number in range(40))
    fair = policies.parse("fair_queues:queue=2")
    for top in (None, 1):
        found, _ = gathered(text, roles={"time": "ts", "tenant": "who"}, top=top)
        assert sum(found.identities) == 40
        assert tried(found, fair, 1).total.refused == 0
        assert [figure.calls for figure in tried(found, fair, 1).figures] == ([1] * 40 if top is None else [1, 39])
    rule = Unmoved(lost=0.01, wait_ns=S, confidence=0.95, window_ns=60 * S, least_calls=1, noisy=(0,))
    assert not any(point.stopped for point in find_workers(found, fair, rule).points)  # in one queue they would lose


def test_silences_are_squeezed():
    text = "".join(f'{{"ts": {1_431_857_100 + at}}}\n' for at in (0, 1, 100, 101))
    found, account = gathered(text, roles={"time": "ts"}, squeeze_ns=5 * S)
    assert found.due_ns.tolist() == [0, S, 6 * S, 7 * S]
    assert (account.squeezed_gaps, account.squeezed_ns) == (1, 94 * S)


def test_windows_that_hold_nothing_say_so():
    with pytest.raises(RecordedError, match="no call lies in the window"):
        gathered(begin=Bound(1 * 3600 * S, True))
    with pytest.raises(RecordedError, match="ends before it begins"):
        gathered(begin=Bound(2 * S, True), end=Bound(S, True))


def steady(n=2_000):
    """Four calls a second that take 600 ms: 2.4 workers busy, three enough for all of them but those of an instant."""
    return traffic([(0, at * 250 * MS, 600 * MS) for at in range(n)], tenants=("a",))


def rule(**changed):
    return Unmoved(
        **{"lost": 0.01, "wait_ns": 50 * MS, "confidence": 0.95, "window_ns": 60 * S, "least_calls": 100} | changed
    )


def test_the_smallest_number_of_workers_is_found_and_its_neighbours_are_tried():
    found = find_workers(steady(), policies.parse("shared_fifo"), rule())
    assert (found.workers, found.monotone, found.judged, found.not_judged) == (3, True, 1, 0)
    assert [point.workers for point in found.points if not point.unmoved] == [1, 2]


def test_a_noisy_tenant_is_not_asked_whether_it_is_hurt():
    calls = [(0, at * 250 * MS, 100 * MS) for at in range(2_000)] + [
        (1, at * 10 * MS, 400 * MS) for at in range(40_000)
    ]
    both = traffic(sorted(calls, key=lambda call: call[1]), tenants=("ordinary", "noisy"))
    alone = find_workers(both, policies.parse("fair_queues"), rule(noisy=(1,), wait_ns=150 * MS))
    everyone = find_workers(both, policies.parse("fair_queues"), rule(wait_ns=150 * MS))
    assert alone.workers < everyone.workers
    assert alone.workers <= 6
    assert everyone.workers >= 40


def test_a_policy_that_no_number_of_workers_helps_has_none():
    found = find_workers(steady(), policies.parse("tenant_cap:queue=5,cap=1"), rule())
    assert (found.workers, found.points[-1].stopped) == (None, True)


def test_a_tenant_with_too_few_calls_is_not_judged_alone():
    calls = [(0, at * 250 * MS, 100 * MS) for at in range(2_000)] + [(1, 500_000 * MS, 100 * MS)]
    found = find_workers(traffic(calls), policies.parse("fair_queues"), rule())
    assert (found.judged, found.not_judged) == (1, 1)


def test_where_more_workers_hurt_it_moves_on_above_them():
    good = {5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20}
    points = {}

    def ask(workers):
        points[workers] = Point(workers, workers in good)
        return workers in good

    find._neighbours(ask, points, 5, 20)
    assert find._holding(points) == 8  # 7 was moved: 5 and 6 are no answer


def test_hostile_names_stay_text_in_the_page_and_it_fetches_nothing():
    name = "<script>alert(1)</script>\u202e"
    found = traffic([(0, 0, S), (0, 1, S)], tenants=(name,), refused=(1,))
    one = tried(found, policies.parse("shared_fifo:queue=1"), 1)
    text = page(found, [one], [find_workers(found, one.policy, rule())], f"What if: {name}", "as given")
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "default-src 'none'" in text
    assert as_json(found, [one])["policies"][0]["against_log"] == {"both": 0, "only_log": 1, "only_policy": 0}


def test_a_little_is_never_drawn_as_nothing():
    assert spark([0, 1, 1000, None], width=4) == " ▁█ "


def test_absurd_durations_and_queues_overflow_nothing():
    text = "".join(f'{{"ts": {1_431_857_100 + i}, "took_ms": 9e9, "queue_ms": 0}}\n' for i in range(300))
    found, _ = gathered(text, roles={"time": "ts", "duration": "took_ms"})
    one = tried(found, policies.parse("shared_fifo:queue=1000"), 1)
    assert one.total.refused == 0
    assert 0 < one.total.p95_wait_ns <= 10**17
    assert most_at_once(found.due_ns, found.service_ns) == 300
