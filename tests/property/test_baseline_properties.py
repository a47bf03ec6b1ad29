"""Whatever a file holds, reading it as a baseline is a baseline or one message; and a comparison is two-sided."""

from __future__ import annotations

import contextlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harness.baseline import model
from harness.baseline.compare import Change, compare
from harness.baseline.model import Baseline, Quantity, Situation, Tenant, Window
from harness.errors import BadInput
from harness.measure.intervals import wilson, z_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
SHARES = st.integers(1, 20_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def built(hits: int, n: int) -> Baseline:
    made = wilson(hits, n, z_of(0.95))
    served = Quantity(estimate=made.estimate, low=made.low, high=made.high, n=n, hits=hits)
    window = Window(due=n, offered=n, quantities={"served": served})
    situation = Situation(
        profile="p", profile_hash="h", time_scale=1.0, parts={}, served_by={}, wait="queue wait", pooled={}, checks={},
        tenants={"A": Tenant(ordinary=True, phases={"burst": window})},
    )  # fmt: skip
    return Baseline(environment={}, situations={"p": situation})


DOCUMENT = built(90, 100).model_dump(mode="json", by_alias=True)


@given(st.sampled_from(sorted(DOCUMENT)), JSON)
def test_a_document_of_any_shape_is_a_baseline_or_one_message(key, value):
    with contextlib.suppress(BadInput):
        model.dump(model.parse({**DOCUMENT, key: value}, Path("x.json")))


@given(SHARES, SHARES)
def test_worse_one_way_is_better_the_other(one, two):
    there, back = (compare(*sides).rows[0] for sides in ((built(*one), built(*two)), (built(*two), built(*one))))
    assert there.change.estimate == -back.change.estimate
    if Change.THIN not in (there.word, back.word):
        assert (there.word is Change.WORSE) == (back.word is Change.BETTER)
    if there.word is Change.WORSE:
        assert there.change.estimate < -1
        assert there.change.high < 0


@given(SHARES)
def test_nothing_is_a_regression_against_itself(one):
    side = built(*one)
    assert compare(side, side).count(Change.WORSE) == 0
