"""What must hold for every log of arrivals: nothing is lost, no order of rows matters, one layer is never two."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.callers.calls import calls_of
from harness.callers.judge import CHECKS
from harness.callers.layers import layers_of
from harness.callers.parameters import Params
from harness.callers.seen import seen
from harness.checks.verdict import Word
from stub_service.provider.machine import Machine
from stub_service.provider.scenarios import SCENARIOS
from tests.unit.callers_logs import Arrivals, instants

S = 10**9
rows = st.lists(
    st.fixed_dictionaries(
        {
            "at_s": st.integers(0, 4000).map(lambda n: n / 100),
            "answer": st.sampled_from(["served", "refused", "failed", "reset", "hang"]),
            "status": st.sampled_from([200, 400, 429, 500, 503]),
            "body": st.sampled_from("ab"),
            "said": st.fixed_dictionaries(
                {},
                optional={
                    "key": st.sampled_from(["k", "l"]),
                    "retry_count": st.sampled_from(["0", "1", "2", "x", "9" * 30]),
                    "invocation": st.sampled_from(["i", "j"]),
                    "sdk_request": st.sampled_from(["attempt=1", "attempt=2; max=3", "attempt=0", "?"]),
                    "call": st.sampled_from(["c"]),
                    "round": st.sampled_from(["0", "1", "-1"]),
                },
            ),
            "told": st.fixed_dictionaries({}, optional={"retry-after": st.sampled_from(["1", "0", "x", "600"])}),
            "took_s": st.sampled_from([0.001, 0.5]),
        }
    ),
    max_size=14,
)


def log_of(made):
    arrivals = Arrivals(ended_ns=100 * S)
    for row in made:
        arrivals.at(**row)
    return arrivals


@given(rows)
def test_every_arrival_is_in_exactly_one_call(made):
    log = log_of(made).log()
    calls = calls_of(log.arrivals, 60 * S)
    ids = [attempt.id for call in calls for attempt in call.attempts]
    assert sorted(ids) == sorted(arrival.id for arrival in log.arrivals)
    unnamed = [call for call in calls if not any(attempt.said for attempt in call.attempts)]
    assert all(len({attempt.body for attempt in call.attempts}) == 1 for call in unnamed)


@given(rows, st.randoms())
def test_the_order_of_rows_does_not_matter(made, random):
    first = log_of(made)
    shuffled = Arrivals(ended_ns=100 * S)
    shuffled.rows = list(first.rows)
    random.shuffle(shuffled.rows)
    for name, check in CHECKS.items():
        one, other = (check.judge(seen(arrivals.log(), Params())) for arrivals in (first, shuffled))
        assert one == other, name


@given(rows)
def test_no_check_breaks_and_none_passes_on_nothing(made):
    view = seen(log_of(made).log(), Params())
    for name, check in CHECKS.items():
        verdict = check.judge(view)
        assert verdict.check == name
        if verdict.word is Word.INCONCLUSIVE:
            assert verdict.add, name
        if verdict.word is Word.PASS:
            assert verdict.samples > 0, name
        if verdict.word is Word.FAIL:
            assert set(verdict.witnesses) <= {arrival.id for arrival in view.log.arrivals}


@given(st.lists(st.floats(0.2, 0.4), min_size=1, max_size=8), st.floats(1.3, 3))
def test_a_backoff_that_grows_is_one_layer(jitters, factor):
    gaps = [0.3 * factor**place * (jitter / 0.4) for place, jitter in enumerate(jitters)]
    (call,) = calls_of(Arrivals().each(instants(*gaps)).log().arrivals, 600 * S)
    assert layers_of(call).owners == 1 or not layers_of(call).sure


@given(st.integers(2, 4), st.integers(3, 4), st.floats(0, 0.3), st.floats(1, 3), st.data())
def test_a_layer_over_a_layer_is_two_also_with_a_busy_machine(inner, outer, pause, between, data):
    noise = st.floats(0, 0.03)
    gaps: list[float] = []
    for run in range(outer):
        gaps += [between + pause + data.draw(noise)] if run else []
        gaps += [pause + data.draw(noise) for _ in range(inner - 1)]
    (call,) = calls_of(Arrivals().each(instants(*gaps)).log().arrivals, 600 * S)
    layers = layers_of(call)
    assert (layers.owners, layers.inner, layers.outer, layers.sure) == (2, inner, outer, (inner, outer) != (2, 3))


@given(
    st.sampled_from(sorted(SCENARIOS)),
    st.lists(
        st.tuples(st.integers(0, 10 * S), st.sampled_from("abc"), st.sampled_from([None, "k"]), st.booleans()),
        max_size=40,
    ),
)  # fmt: skip
def test_the_machine_never_does_work_under_one_key_twice(name, asked):
    machine, effects = Machine(SCENARIOS[name]), []
    for at_ns, content, key, writes in sorted(asked, key=lambda one: one[0]):
        ticket = machine.arrive(at_ns, content, key, writes)
        machine.ended(ticket, True)
        if ticket.effect is not None:
            assert writes
            if key is not None and not ticket.replayed:
                effects.append(ticket.effect)
    assert len(effects) <= 1
    assert all(count == 0 for count in machine._probing)
