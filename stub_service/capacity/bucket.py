"""The bucket of cost of one tenant: rate and burst, reserved by forecast, settled by what was really used.

    balance(t) = min(burst, balance(t0) + rate * (t - t0)) - what was used          [cost]; it may be below zero: a debt
    free       = balance - sum over open claims of max(forecast, used so far)       [cost]

A claim is admitted if its forecast is free: so what runs at once never reserves more than there is, however much of it
is only known later. What is used beyond the forecast is held as soon as it is told, and what was not used is free again
at the settlement. After it the balance is that of what was really used, debt included, and until a debt is paid by time
nothing is admitted.

Source: Google SRE book, "Handling Overload" (cost, not requests); prepay and settle as metered services do it.
Plain arithmetic: no clock, nothing awaited between a check and what it takes. No bucket is ever shared by two tenants.
"""

from __future__ import annotations

from dataclasses import dataclass

NS_PER_S = 1_000_000_000
_DUST = 1e-6
"""Of a unit of cost: what rounding may leave."""


class Claim:
    """A reservation. used: as told so far; settled: it holds nothing more."""

    __slots__ = ("forecast", "settled", "used")

    def __init__(self, forecast: int) -> None:
        self.forecast = forecast
        self.used = 0
        self.settled = False

    @property
    def held(self) -> int:
        return 0 if self.settled else max(self.forecast, self.used)


@dataclass(frozen=True, slots=True)
class Short:
    """Not admitted now. wait_ns: when time alone will have paid for it. debt: the balance is below zero."""

    wait_ns: int
    debt: bool


class Bucket:
    """rate_per_s [cost/s] and burst [cost], both above zero. It starts full."""

    __slots__ = ("_at_ns", "_balance", "burst", "rate_per_s", "reserved")

    def __init__(self, rate_per_s: float, burst: int, now_ns: int = 0) -> None:
        self.rate_per_s = rate_per_s
        self.burst = burst
        self.reserved = 0
        self._balance = float(burst)
        self._at_ns = now_ns

    def balance(self, now_ns: int) -> float:
        """What there is, claims not counted; below zero: what is owed."""
        if now_ns > self._at_ns:
            refilled = self._balance + self.rate_per_s * (now_ns - self._at_ns) / NS_PER_S
            self._balance = min(float(self.burst), refilled)
            self._at_ns = now_ns
        return self._balance

    def short_of(self, forecast: int, now_ns: int) -> Short | None:
        """What is missing for the forecast; None: nothing."""
        balance = self.balance(now_ns)
        lacking = forecast - (balance - self.reserved)
        if lacking <= _DUST and balance >= -_DUST:
            return None
        needed = max(lacking, -balance)
        return Short(max(1, round(needed / self.rate_per_s * NS_PER_S)), balance < -_DUST)

    def reserve(self, forecast: int, now_ns: int) -> Claim | Short:
        """Takes the forecast, or says how long it lacks."""
        short = self.short_of(forecast, now_ns)
        if short is not None:
            return short
        self.reserved += forecast
        return Claim(forecast)

    def widen(self, claim: Claim, cost: int, now_ns: int) -> Short | None:
        """Adds to what a claim is forecast at (None), or says how long it lacks."""
        short = self.short_of(cost, now_ns)
        if short is None and not claim.settled:
            self.narrow(claim, -cost)
        return short

    def narrow(self, claim: Claim, cost: int) -> None:
        """Takes from what a claim is forecast at."""
        before = claim.held
        claim.forecast -= cost
        self.reserved += claim.held - before

    def spend(self, claim: Claim, cost: int) -> None:
        """More of the claim is known to be used. After its settlement it is taken from the balance at once."""
        if claim.settled:
            self.charge(cost)
            claim.used += cost
            return
        before = claim.held
        claim.used += cost
        self.reserved += claim.held - before

    def charge(self, cost: int) -> None:
        """Used without a claim."""
        self._balance -= cost

    def settle(self, claim: Claim, now_ns: int) -> None:
        """The claim is over: the balance is charged with what it used, and the rest is free. Once a claim."""
        if claim.settled:
            return
        self.balance(now_ns)
        self.reserved -= claim.held
        self.charge(claim.used)
        claim.settled = True
