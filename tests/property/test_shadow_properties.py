"""Whatever the calls and the policy: a what-if decides as the simulator does, and every call ends in one way."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_shadow import MS, agrees_with_the_simulator, traffic

CALLS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=40)
POLICIES = st.one_of(
    st.builds("shared_fifo:queue={}".format, st.integers(1, 5)),
    st.builds("fair_queues:queue={}".format, st.integers(1, 3)),
    st.builds("fair_queues:queue={},weights=a*2+b*1".format, st.integers(1, 3)),
    st.builds("tenant_cap:queue={},cap={}".format, st.integers(1, 5), st.integers(1, 3)),
    st.builds("shuffle_sharded:queues=4,hand=2,queue={}".format, st.integers(1, 3)),
)


@settings(max_examples=60, deadline=None)
@given(calls=CALLS, spec=POLICIES, workers=st.integers(1, 4), patience=st.one_of(st.none(), st.integers(1, 60)))
def test_it_decides_as_the_simulator_does(calls, spec, workers, patience):
    ordered = sorted(((who, at * 5 * MS, took * 5 * MS) for who, at, took in calls), key=lambda one: (one[1], one[0]))
    agrees_with_the_simulator(traffic(ordered, tenants=("a", "b", "c")), spec, workers, patience and patience * 5 * MS)
