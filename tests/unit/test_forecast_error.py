"""The error of a cost forecast, and what learning does to it on a log."""

import numpy as np
import pytest

from harness.measure.forecast_error import bias_over_time, forecast_error
from harness.recorded.errors import RecordedError
from harness.shadow.forecast import STATIC, basis_of, forecasts_of, judge
from stub_service.capacity.cost_config import Learning
from tests.unit.test_shadow import traffic

S = 1_000_000_000


def test_each_figure_by_hand():
    found = forecast_error(np.array([10.0, 10.0, 10.0, 10.0]), np.array([5.0, 20.0, 10.0, 0.0]))
    assert (found.calls, found.mean_cost, found.mean_forecast) == (4, 8.75, 10.0)
    assert found.bias == pytest.approx(5 / 35)
    assert found.error == pytest.approx(25 / 35)
    assert found.mape == pytest.approx((1 + 0.5 + 0) / 3)
    assert (found.ratio_p05, found.ratio_p50, found.ratio_p95) == (0.5, 1.0, 2.0)
    assert (found.under, found.uncovered) == (0.25, pytest.approx(10 / 35))


def test_quantiles_are_of_calls_that_cost_anything_however_little():
    """40 ratios from 0.1 to 4.0: the 2nd, the 20th and the 38th."""
    cost = np.full(41, 0.5)
    cost[40] = 0.0
    forecast = np.arange(1, 42) * 0.05
    found = forecast_error(forecast, cost)
    assert (found.ratio_p05, found.ratio_p50, found.ratio_p95) == pytest.approx((0.2, 2.0, 3.8))
    assert found.under == pytest.approx(9 / 41)
    assert found.uncovered == pytest.approx(sum(0.5 - 0.05 * k for k in range(1, 10)) / 20)
    assert found.mape == pytest.approx(sum(abs(0.05 * k - 0.5) / 0.5 for k in range(1, 41)) / 40)


def test_a_bias_over_time_is_that_of_equal_runs_of_neighbours():
    forecast, cost = np.array([2.0, 1.0, 1.0, 3.0, 5.0, 1.0]), np.array([1.0, 1.0, 2.0, 2.0, 4.0, 4.0])
    assert bias_over_time(forecast, cost, 3) == pytest.approx((0.5, 0.0, -0.25))
    assert bias_over_time(forecast, cost, 1) == pytest.approx((-1 / 14,))


def test_nothing_that_cost_anything_has_no_error():
    assert forecast_error(np.zeros(3), np.zeros(3)).bias is None
    assert forecast_error(np.zeros(0), np.zeros(0)).calls == 0
    assert bias_over_time(np.array([1.0, 2.0]), np.array([0.0, 1.0]), 2) == (None, 1.0)


def costly(costs, service=S // 2):
    found = traffic([(0, at * S, service) for at in range(len(costs))], tenants=("a",))
    return type(found)(
        **{name: getattr(found, name) for name in found.__slots__} | {"cost": np.array(costs, dtype=float)}
    )


def test_learning_follows_a_persistent_error_and_static_does_not():
    found = costly([100] * 100 + [400] * 400)
    basis = basis_of(found)
    static, learning = judge(found, basis, STATIC, "static"), judge(found, basis, Learning(0.2), "learning")
    assert basis == 100
    assert (static.bias[-1], static.tenants_under) == (-0.75, 1)
    assert abs(learning.bias[-1]) < 0.01
    assert (abs(learning.total.bias) < 0.02, learning.tenants_under) == (True, 0)


def test_nothing_is_learned_of_a_call_before_it_has_ended():
    assert forecasts_of(costly([500] * 4, service=10 * S), 100, Learning(1.0)).tolist() == [100.0] * 4
    assert forecasts_of(costly([500] * 4, service=S), 100, Learning(1.0)).tolist() == [100.0, 500.0, 500.0, 500.0]


def test_calls_without_a_cost_are_left_out_and_a_log_without_any_says_so():
    found = costly([100, -1, 100])
    assert judge(found, 100, STATIC, "static").total.calls == 2
    with pytest.raises(RecordedError, match="--map cost=FIELD"):
        basis_of(costly([-1, -1]))
