"""The capacity layer's cost forecast on a recorded log: what it would have forecast for each call when that came.

The very `Forecasts` of the controller: one factor for each tenant, corrected when a call has ended and its cost is
known, never before. A static forecast is the same with nothing learned. Calls end when they have been served for as
long as their service time, without a queue: that is the soonest at which anything can be learned of them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from harness.measure.forecast_error import Floats, ForecastError, bias_over_time, forecast_error
from harness.recorded.errors import RecordedError
from harness.shadow.traffic import Traffic
from stub_service.capacity.cost_config import CHAT_TURN, ClassForecast, Learning
from stub_service.capacity.forecast import Forecasts

CALIBRATION = 100
PARTS = 24
LOW = 0.05
"""A tenant whose forecasts are lower than its costs by more than this, on the whole, is forecast too low."""
STATIC = Learning(weight=0.0)


@dataclass(frozen=True, slots=True)
class Judged:
    """One way to forecast. by_tenant: in the order of the tenants. bias: of all, over time (PARTS runs of calls)."""

    name: str
    total: ForecastError
    by_tenant: tuple[ForecastError, ...]
    tenants_under: int
    bias: tuple[float | None, ...]


def basis_of(traffic: Traffic) -> int:
    """What somebody who saw the first calls would configure: their mean cost. Raises RecordedError if none is known."""
    known = traffic.cost[traffic.cost >= 0]
    if not len(known):
        raise RecordedError("--forecast", "no call has a cost", "name the field: --map cost=FIELD")
    return max(1, round(float(known[:CALIBRATION].mean())))


def forecasts_of(traffic: Traffic, basis: int, learning: Learning) -> Floats:
    """The forecast of each call, when it was due; 0 for calls whose cost the log does not have."""
    made = Forecasts([ClassForecast(CHAT_TURN, "short", basis)], learning)
    names, ended = traffic.tenants, list[tuple[int, int, str]]()
    found = np.zeros(len(traffic))
    rows = zip(
        traffic.due_ns.tolist(),
        traffic.service_ns.tolist(),
        traffic.tenant.tolist(),
        traffic.cost.tolist(),
        strict=True,
    )
    for place, (due, service, tenant, cost) in enumerate(rows):
        if cost < 0:
            continue
        while ended and ended[0][0] <= due:
            _, actual, who = heapq.heappop(ended)
            made.learn(who, CHAT_TURN, basis, actual)
        found[place] = made.forecast(names[tenant], CHAT_TURN, basis, None)
        heapq.heappush(ended, (due + service, round(cost), names[tenant]))
    return found


def judge(traffic: Traffic, basis: int, learning: Learning, name: str) -> Judged:
    """Forecasts every call and says how far off that was."""
    known = traffic.cost >= 0
    forecast, cost, tenant = forecasts_of(traffic, basis, learning)[known], traffic.cost[known], traffic.tenant[known]
    by_tenant = tuple(
        forecast_error(forecast[tenant == place], cost[tenant == place]) for place in range(len(traffic.tenants))
    )
    under = sum(one.bias is not None and one.bias < -LOW for one in by_tenant)
    return Judged(name, forecast_error(forecast, cost), by_tenant, under, bias_over_time(forecast, cost, PARTS))
