"""`overload shadow --forecast`: a cost forecast that learns, judged beside one that does not, on a recorded log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

from harness.cli.output import echo_json
from harness.measure.forecast_error import ForecastError
from harness.recorded.account import Account
from harness.recorded.summary import read_lines
from harness.report.grid import Cell, grid, line
from harness.report.text import MISSING, clean, count, percent
from harness.shadow.forecast import CALIBRATION, LOW, STATIC, Judged, basis_of, judge
from harness.shadow.traffic import Traffic
from stub_service.capacity.cost_config import Learning

_HEADINGS = ("forecast", "bias", "error", "under", "uncovered", "ratio 5 %", "50 %", "95 %")


def judge_forecast(traffic: Traffic, account: Account, basis: int | None, weight: float, as_json: bool) -> int:
    """Shows both forecasts, and returns the exit code."""
    tokens = basis_of(traffic) if basis is None else basis
    found = [judge(traffic, tokens, STATIC, "static"), judge(traffic, tokens, Learning(weight), "learning")]
    if as_json:
        echo_json({"account": account.as_json(), "basis": tokens, "weight": weight, "forecasts": _json(traffic, found)})
        return 0
    console = Console()
    for text in read_lines(account):
        line(console, text)
    told = f"as given (--basis {tokens:,})" if basis is not None else f"the mean of the first {CALIBRATION} calls"
    line(console, f"forecast  {tokens:,} a call at first, {told}; learning takes over {weight:g} of each error")
    _show(traffic, found, console)
    return 0


def _show(traffic: Traffic, found: Sequence[Judged], console: Console) -> None:
    header = [("", "tenant"), ("", "way"), ("", "calls"), ("", "mean cost"), *(("", name) for name in _HEADINGS)]
    rows: list[list[Cell] | None] = []
    for place, name in enumerate(traffic.tenants):
        rows += [_row(clean(name, 40), one.name, one.by_tenant[place]) for one in found]
    if len(traffic.tenants) > 1:
        rows += [_row("all", one.name, one.total) for one in found]
    grid(console, header, rows, lead=2)
    for one in found:
        worst = max((abs(value) for value in one.bias if value is not None), default=0.0)
        said = " ".join(MISSING if value is None else f"{value:+.0%}" for value in one.bias[:: len(one.bias) // 8])
        line(console, f"{one.name:9} bias over time {said}; at most {worst:.0%} off; {one.tenants_under} of "
                      f"{len(traffic.tenants)} tenants forecast over {LOW:.0%} too low")  # fmt: skip
    line(console, "bias: all forecasts over all costs; error: sum of all differences over all costs")
    line(console, "under: calls that cost more than forecast; uncovered: what they cost more, of all costs")
    line(console, "ratio: forecast over cost of a call")


def _row(tenant: str, way: str, one: ForecastError) -> list[Cell]:
    ratios = (one.ratio_p05, one.ratio_p50, one.ratio_p95)
    return [
        Cell(tenant),
        Cell(way),
        Cell(count(one.calls)),
        Cell(_number(one.mean_cost)),
        Cell(_number(one.mean_forecast)),
        Cell(MISSING if one.bias is None else f"{one.bias:+.1%}"),
        *(Cell(percent(share)) for share in (one.error, one.under, one.uncovered)),
        *(Cell(MISSING if ratio is None else f"{ratio:.2f}") for ratio in ratios),
    ]


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.1f}"


def _json(traffic: Traffic, found: Sequence[Judged]) -> list[dict[str, object]]:
    return [
        {
            "forecast": one.name,
            "total": asdict(one.total),
            "tenants_under": one.tenants_under,
            "bias_over_time": one.bias,
            "tenants": [
                {"tenant": name, **asdict(error)} for name, error in zip(traffic.tenants, one.by_tenant, strict=True)
            ],
        }
        for one in found
    ]
