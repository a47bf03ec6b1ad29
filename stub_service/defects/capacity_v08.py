"""Circuits gone wrong, for `v08.circuit` to catch; and twins that are slower or stricter than they need to be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stub_service.capacity.circuit import OPEN, Circuit, Pass
from stub_service.capacity.config import CapacityConfig
from stub_service.capacity.controller import Controller
from stub_service.defects.registry import become, broken, twin

CIRCUIT, RECOVERY = "v08.circuit", "v10.outage_recovery"
HOUR_NS = 3_600_000_000_000


class LetsAllThrough(Circuit):
    """When the cool-down ends, whoever asks is a probe."""

    __slots__ = ()

    def admits(self, now_ns: int) -> bool:
        self.refresh(now_ns)
        return self.state != OPEN


class NeverHalfOpens(Circuit):
    """The cool-down has no end."""

    __slots__ = ()

    def _become(self, state: str, now_ns: int, reason: str) -> None:
        super()._become(state, now_ns, reason)
        if state == OPEN:
            self.open_until_ns = now_ns + HOUR_NS


class ForgivesProbes(Circuit):
    """A failed probe is forgotten."""

    __slots__ = ()

    def _probed(self, now_ns: int, failed: bool, slow: bool, in_time: bool) -> None:
        if not (failed or slow):
            super()._probed(now_ns, failed, slow, in_time)


class BlindToLatency(Circuit):
    """Only failures count."""

    __slots__ = ()

    def end(self, passed: Pass, now_ns: int, latency_ns: int, failed: bool | None) -> None:
        super().end(passed, now_ns, 0, failed)


class BlindToFailures(Circuit):
    """Only latency counts."""

    __slots__ = ()

    def end(self, passed: Pass, now_ns: int, latency_ns: int, failed: bool | None) -> None:
        super().end(passed, now_ns, latency_ns, None if failed is None else False)


def _circuits(kind: type[Circuit]) -> Any:
    def lay(controller: Controller, config: CapacityConfig) -> None:
        for circuit in controller.dispatch.circuits.values():
            become(circuit, kind)

    return lay


def _rule(**changes: Any) -> Any:
    """Other figures in the rule of each circuit: a number, or how to make one from the healthy rule."""

    def lay(controller: Controller, config: CapacityConfig) -> None:
        for circuit in controller.dispatch.circuits.values():
            made = {name: change(circuit.config) if callable(change) else change for name, change in changes.items()}
            circuit.config = replace(circuit.config, **made)

    return lay


def _one_for_all(controller: Controller, config: CapacityConfig) -> None:
    """What one dependency does wrong opens the circuit of all."""
    dispatch = controller.dispatch
    listeners = [circuit.on_change for circuit in dispatch.circuits.values()]
    one = next(iter(dispatch.circuits.values()))

    def on_change(now_ns: int, outcome: str, reason: str | None) -> None:
        for listener in listeners:
            listener(now_ns, outcome, reason)

    one.on_change = on_change
    for name in dispatch.circuits:
        dispatch.circuits[name] = one
    for bulkhead in dispatch.bulkheads.values():
        bulkhead.circuit = one


broken("circuit_lets_all_through", "when the cool-down ends, every waiter goes", _circuits(LetsAllThrough), CIRCUIT)
broken("circuit_closes_on_one", "one success closes it though the rule says three", _rule(close_after=1), CIRCUIT)
broken("circuit_never_half_opens", "once open, it stays open", _circuits(NeverHalfOpens), CIRCUIT, also=(RECOVERY,))
broken("circuit_for_all", "one circuit for all dependencies", _one_for_all, CIRCUIT)
broken("circuit_forgives_probes", "a failed probe does not reopen it", _circuits(ForgivesProbes), CIRCUIT)
broken("circuit_blind_to_latency", "latency never opens it", _circuits(BlindToLatency), CIRCUIT)
broken("circuit_blind_to_failures", "failures never open it", _circuits(BlindToFailures), CIRCUIT)
twin(
    "twin_circuit_opens_late",
    "it opens on half as many calls again, soon after its rule is met",
    _rule(min_calls=lambda rule: rule.min_calls * 3 // 2),
    CIRCUIT,
)
twin(
    "twin_circuit_cools_longer",
    "its cool-down is half as long again",
    _rule(open_ns=lambda rule: rule.open_ns * 3 // 2),
    CIRCUIT,
)
twin(
    "twin_circuit_careful",
    "one probe at a time, and one success more than asked for",
    _rule(probes=1, close_after=lambda rule: rule.close_after + 1),
    CIRCUIT,
)
