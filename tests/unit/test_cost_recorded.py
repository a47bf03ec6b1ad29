"""Forecasts on recorded costs: generated tokens of two real services, known afterwards only."""

from __future__ import annotations

import csv
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from stub_service.capacity.bucket import Bucket, Claim
from stub_service.capacity.cost_config import ClassForecast, Learning
from stub_service.capacity.forecast import Forecasts

pytestmark = pytest.mark.recorded

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
FIRST_GUESS = 1000
WINDOW = 500


def calls(name):
    """(when [ns], generated tokens), in order."""
    path = DATA / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"{name} is not there")
    with path.open(newline="") as lines:
        rows = [(datetime.fromisoformat(row["TIMESTAMP"][:26]), int(row["GeneratedTokens"])) for row in
                csv.DictReader(lines)]  # fmt: skip
    begin = rows[0][0]
    return [(round((at - begin).total_seconds() * 1e9), tokens) for at, tokens in rows]


def forecasts(weight=0.02):
    return Forecasts([ClassForecast("chat_turn", "short", FIRST_GUESS)], Learning(weight, 0.001, 1000.0))


@pytest.mark.parametrize(("name", "first_error"), [("azure_llm_code", 30), ("azure_llm_conv", 3)])
def test_an_error_that_persists_is_gone_after_a_few_hundred_calls(name, first_error):
    """In windows of 500 calls, all forecasts over all that was used: 30 and 4 times too much at first, then right."""
    made, ratios = forecasts(), []
    recorded = calls(name)
    for place in range(0, len(recorded) - WINDOW, WINDOW):
        forecast = actual = 0
        for _, tokens in recorded[place : place + WINDOW]:
            forecast += made.forecast(name, "chat_turn", FIRST_GUESS, None)
            actual += tokens
            made.learn(name, "chat_turn", FIRST_GUESS, tokens)
        ratios.append(forecast / actual)
    unlearned = FIRST_GUESS * len(recorded) / sum(tokens for _, tokens in recorded)
    assert unlearned > first_error
    assert all(0.6 < ratio < 1.6 for ratio in ratios[1:])
    assert 0.97 < sum(ratios[1:]) / len(ratios[1:]) < 1.1
    assert ratios[0] > ratios[1]


@pytest.mark.parametrize(("name", "least"), [("azure_llm_code", 0.65), ("azure_llm_conv", 0.95)])
def test_what_is_admitted_stays_within_the_bucket_though_no_forecast_is_right(name, least):
    """Half of the recorded mean rate, each call in flight for two seconds: what is used is what the bucket held
    (between bursts of code it runs over). A debt is never more than all in flight used beyond its forecasts."""
    recorded = calls(name)
    took_ns, total = 2_000_000_000, sum(tokens for _, tokens in recorded)
    rate = total / (recorded[-1][0] / 1e9) / 2
    bucket, made = Bucket(rate, round(60 * rate)), forecasts()
    flying: list[tuple[int, int, Claim]] = []
    used = refused = 0
    deepest = beyond = 0.0
    for now_ns, tokens in recorded:
        while flying and flying[0][0] <= now_ns:
            ended_ns, cost, claim = flying.pop(0)
            bucket.spend(claim, cost)
            bucket.settle(claim, ended_ns)
            deepest = min(deepest, bucket.balance(ended_ns))
            made.learn(name, "chat_turn", FIRST_GUESS, cost)
        forecast = made.forecast(name, "chat_turn", FIRST_GUESS, bucket.burst)
        claim = bucket.reserve(forecast, now_ns)
        if isinstance(claim, Claim):
            used += tokens
            flying.append((now_ns + took_ns, tokens, claim))
            beyond = max(beyond, sum(max(0, cost - one.forecast) for _, cost, one in flying))
        else:
            refused += 1
    held = bucket.burst + rate * recorded[-1][0] / 1e9
    assert refused > 1000
    assert least * held < used < 1.05 * held
    assert -beyond <= deepest < 0
    assert all(first[0] <= second[0] for first, second in pairwise(recorded))
