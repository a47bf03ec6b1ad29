"""Several trials of one situation as one: how much trials differ from each other becomes part of every interval.

Inside one trial nobody sees that the next one will go another way: who gets the last place of a full queue hangs on a
millisecond. With k trials of estimates e the interval is that of one more trial (a prediction interval), and never
narrower than what the trials' own intervals say:

    mean(e) -+ t(k - 1) * s * sqrt(1 + 1/k)        s: standard deviation of e
    mean(e) -+ root of the mean square of their own half widths
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from harness.baseline.model import CONFIDENCE, CheckFigures, Quantity, Situation, Tenant, Window
from harness.checks.verdict import worst
from harness.measure.intervals import t_of


def together(situations: Sequence[Situation]) -> Situation:
    """Of one situation, in one environment, of one profile: seeds may differ. One alone is itself."""
    first = situations[0]
    if len(situations) == 1:
        return first
    tenants = {
        name: Tenant(ordinary=tenant.ordinary, phases=_windows([one.tenants[name].phases for one in situations]))
        for name, tenant in first.tenants.items()
        if all(name in one.tenants for one in situations)
    }
    checks = {
        name: _check([one.checks[name] for one in situations])
        for name in first.checks
        if all(name in one.checks for one in situations)
    }
    made = {"tenants": tenants, "pooled": _windows([one.pooled for one in situations]), "checks": checks}
    return first.model_copy(update={**made, "trials": sum(one.trials for one in situations)})


def _windows(of_trials: Sequence[dict[str, Window]]) -> dict[str, Window]:
    return {
        phase: Window(
            due=sum(one[phase].due for one in of_trials),
            offered=sum(one[phase].offered for one in of_trials),
            quantities={
                name: _quantity([one[phase].quantities[name] for one in of_trials])
                for name in window.quantities
                if all(name in one[phase].quantities for one in of_trials)
            },
        )
        for phase, window in of_trials[0].items()
        if all(phase in one for one in of_trials)
    }


def _quantity(of_trials: Sequence[Quantity]) -> Quantity:
    k, estimates = len(of_trials), [one.estimate for one in of_trials]
    mean = fmean(estimates)
    between = t_of(CONFIDENCE, k - 1) * stdev(estimates) * math.sqrt(1 + 1 / k)
    down = max(between, math.sqrt(fmean((one.estimate - one.low) ** 2 for one in of_trials)))
    up = max(between, math.sqrt(fmean((one.high - one.estimate) ** 2 for one in of_trials)))
    share = of_trials[0].hits is not None
    low, high = max(0.0, mean - down), min(1.0, mean + up) if share else mean + up
    hits = sum(one.hits or 0 for one in of_trials) if share else None
    made = (float(f"{value:.6g}") for value in (mean, min(low, mean), max(high, mean)))
    estimate, low, high = made
    return Quantity(estimate=estimate, low=low, high=high, n=sum(one.n for one in of_trials), hits=hits)


def _check(of_trials: Sequence[CheckFigures]) -> CheckFigures:
    """The worst word, with the figures of the first trial that had it."""
    word = worst(one.word for one in of_trials)
    telling = next(one for one in of_trials if one.word is word)
    return telling.model_copy(update={"samples": sum(one.samples for one in of_trials)})
