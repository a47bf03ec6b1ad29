"""Defects at less than their full strength, to find the smallest breach that a check sees.

A defect at full strength is easily caught: every decision is wrong. Here the same defect is laid over one decision in
two, in ten, in a hundred (`diluted`), a figure is wrong by one instead of by all (`SMALL`), and a service loses a
stated share of some tenants' calls (`lossy`). None of them is in the registry: nothing says that a check must see them.
Source of the idea: Just et al., Are mutants a valid substitute for real faults in software testing?, FSE 2014.

How it is diluted: parts are looked at before and after a defect is laid. Where a part has become of another class, or
has another function in the place of one of its own, both are kept and a coin decides which is asked: the same side for
all that is asked about one step, run, request or tenant, so that a defect in two places is met in both. What a defect
changes otherwise (a figure, a whole other policy) cannot be laid over one call in k; such defects are in `WHOLE`, with
the reason. Deterministic: the coin is drawn from the trial's seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import Any

from stub_service.admission.policy import GONE, Ticket
from stub_service.defects.registry import CALLER, CAPACITY, DEFECTS, SHARED, Defect

_MISSING = object()
_BY_NAME = {"cancel", "submit", "_deal", "bucket_of"}
"""Methods whose first text names their subject: a run, or a tenant."""
_BOOKKEEPING = {"__init__", "_next_of", "finished", "rate_per_s"}
"""Never mixed: what they write down must be there for both sides."""
_ONLY = {
    "round_robin_forgets_place": {"take"},
    "idle_tenant_banks_credit": {"take"},
}
"""Of these the methods that decide; the others keep what the decision needs."""

_FIGURE = "it is a figure, and no decision: see the small breaches of its check"
_POLICY = "it is another policy altogether: two cannot decide in turn about one queue"
WHOLE: dict[str, str] = {
    "weights_ignored": _POLICY,
    "weights_stale": _POLICY,
    "hard_quota": _POLICY,
    "idle_tenant_banks_credit": _POLICY,
    "replans_keep_overload_alive": _POLICY,
    "shadow_is_another_policy": _POLICY,
    "shadow_has_other_bounds": _FIGURE,
    "check_then_act_budget": "it is a race: how often it is met is up to the profile",
    "retry_token_spent_late": "it is a race: how often it is met is up to the profile",
    "limit_per_replica": "there are two replicas, or one",
    "one_queue_for_class": "a queue is shared, or it is not",
    "tenant_cap_without_queue": "a queue is shared, or it is not",
    "floor_lent": _FIGURE,
    "one_global_semaphore": _FIGURE,
    "reads_and_writes_in_one_pool": "a pool is shared, or it is not",
    "no_jitter": _FIGURE,
    "circuit_closes_on_one": _FIGURE,
    "circuit_for_all": "a circuit is shared, or it is not",
    "backlog_unbounded": _FIGURE,
    "cost_admits_too_little": _FIGURE,
    "cost_admits_too_much": _FIGURE,
    "cost_one_queue": "a queue is shared, or it is not",
    "cost_never_learns": "a forecast that has half of the runs to learn from follows all the same: the rule holds",
    "shadow_takes_workers": "what is taken from one start is back at the next, a millisecond later: shares stay within "
    "their margin",
    "tree_all_cost_one": "it is a price, the same for all",
    "tree_delegation_free": "it is a price, the same for all",
    "tree_tools_cost_as_delegations": "it is a price, the same for all",
    "budget_per_run_only": "a rule is kept, or it is not",
    "backoff_alone": "there is a budget, or there is none",
    "refusal_as_error": "it replaces the part that waits",
}
"""Defects without a natural dilution, and why."""


@dataclass(frozen=True, slots=True)
class Coin:
    """Whether this is one of the decisions that go wrong: one in `one_in`."""

    one_in: int
    seed: str
    rng: Random

    def __call__(self, name: str, arguments: Sequence[Any]) -> bool:
        subject = _subject(name, arguments)
        if subject is None:
            return self.rng.randrange(self.one_in) == 0
        drawn = blake2b(f"{self.seed}:{subject}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "big") % self.one_in == 0


def _subject(name: str, arguments: Sequence[Any]) -> str | None:
    """What a decision is about, where that can be told from what is asked."""
    for one in arguments:
        found = one if isinstance(one, str) and name in _BY_NAME else _named_by(one)
        if found is not None:
            return found
    return None


def _named_by(one: Any) -> str | None:
    run, step = getattr(one, "run", None), getattr(one, "step", None)
    run, step = getattr(run, "id", run), getattr(step, "step", step)
    if isinstance(run, str) and isinstance(step, str):  # of the controller: a step, a call of it, or its failure
        return f"{run}/{step}"
    if isinstance(run, int):  # a caller's call, by the call that it descends from
        return f"{getattr(one, 'tenant', '')}/{run}"
    name, request = getattr(one, "id", None), getattr(one, "request", None)
    if isinstance(name, str) and hasattr(one, "envelope"):
        return name
    return request if isinstance(request, str) else None


# Both sides of a part


def either(
    wrong: Callable[..., Any], healthy: Callable[..., Any], coin: Coin, name: str, of_self: int = 0
) -> Callable[..., Any]:
    """Asks the one or the other; what it is asked about decides which. of_self: 1 if the first argument is the part."""

    def ask(*given: Any, **named: Any) -> Any:
        return (wrong if coin(name, given[of_self:]) else healthy)(*given, **named)

    return ask


def mixed(wrong: type, healthy: type, coin: Coin, only: set[str] | None = None) -> type:
    """A class of which each method that `wrong` replaces is, now and then, that of `healthy`."""
    own = [kind for kind in wrong.__mro__ if kind not in healthy.__mro__]
    names = dict.fromkeys(name for kind in own for name, value in vars(kind).items() if callable(value))
    replaced = [n for n in names if n not in _BOOKKEEPING and hasattr(healthy, n) and (only is None or n in only)]
    methods = {name: either(getattr(wrong, name), getattr(healthy, name), coin, name, 1) for name in replaced}
    return type(f"Sometimes{wrong.__name__}", (wrong,), {"__slots__": (), **methods})


def _attributes(part: Any) -> dict[str, Any]:
    slots = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(part, name)]
    return {**{name: getattr(part, name) for name in slots if name != "__dict__"}, **getattr(part, "__dict__", {})}


@dataclass(frozen=True, slots=True)
class _Before:
    part: Any
    kind: type
    had: dict[str, Any]

    def mix(self, coin: Coin, only: set[str] | None) -> int:
        """How many places of the part have two sides now."""
        part, places = self.part, 0
        if type(part) is not self.kind:
            part.__class__ = mixed(type(part), self.kind, coin, only)
            places += 1
        for name, wrong in _attributes(part).items():
            healthy = self.had.get(name, _MISSING)
            if healthy is _MISSING and hasattr(self.kind, name):
                healthy = getattr(self.kind, name).__get__(part)  # a method, replaced on the part itself
            if wrong is not healthy and healthy is not _MISSING:
                places += _replace(part, name, wrong, healthy, coin, only)
        return places


def _replace(part: Any, name: str, wrong: Any, healthy: Any, coin: Coin, only: set[str] | None) -> int:
    if callable(wrong) and callable(healthy):
        setattr(part, name, either(wrong, healthy, coin, name))
    elif type(wrong) is not type(healthy) and isinstance(wrong, type(healthy)):
        wrong.__class__ = mixed(type(wrong), type(healthy), coin, only)
    else:
        return 0
    return 1


def _parts(part: Any, of: str) -> Iterator[Any]:
    """Everything that defects are laid over."""
    if of == SHARED:
        yield from (one for one in (part, part.policy, part.shadow) if one is not None)
    elif of == CALLER:
        for caller in part:
            yield caller
            held = (getattr(caller, name, None) for name in ("budgets", "planner", "retries", "throttle"))
            yield from (one for one in held if one is not None)
    else:
        flow, dispatch = part.flow, part.dispatch
        yield from (part, flow, flow.retry, flow.coalescer, flow.readback, part.events, dispatch, dispatch.ceiling)
        yield from (*dispatch.circuits.values(), *dispatch.ramps.values(), part.trees)
        for bulkhead in dispatch.bulkheads.values():
            yield from (bulkhead, bulkhead.slots, bulkhead.waiting)
            yield from (bulkhead.adaptive,) if bulkhead.adaptive is not None else ()
        if part.costs is not None:
            yield from (part.costs, part.costs.forecasts, part.costs.sessions)


def _once_each(parts: Iterator[Any]) -> list[Any]:
    return list({id(part): part for part in parts}.values())


def diluted(defect: Defect, one_in: int) -> Defect:
    """The defect, met once in so many decisions. Raises ValueError, with the reason, for one that has no dilution."""
    if defect.name in WHOLE:
        raise ValueError(f"{defect.name} has no dilution: {WHOLE[defect.name]}")

    def lay(part: Any, config: Any) -> None:
        seed = f"{getattr(config, 'seed', 0)}:{defect.name}:{one_in}"
        before = [_Before(one, type(one), _attributes(one)) for one in _once_each(_parts(part, defect.part))]
        defect.lay(part, config)
        coin = Coin(one_in, seed, Random(seed))
        for one in before:
            one.mix(coin, _ONLY.get(defect.name))

    return replace(defect, name=f"{defect.name}~{one_in}", about=f"{defect.about}; one in {one_in}", lay=lay)


# A loss of a stated share


def lossy(share: float, tenants: Sequence[str], from_ns: int, to_ns: int) -> Defect:
    """Refuses this share of the tenants' calls that come in the window, whatever room there is: each by a coin."""
    lost_of = frozenset(tenants)

    def lay(service: Any, config: Any) -> None:
        healthy, rng = service.offer, Random(f"{config.seed}:lossy:{share}")

        def offer(ticket: Ticket, now_ns: int) -> str | None:
            if ticket.tenant in lost_of and from_ns <= now_ns < to_ns and rng.random() < share:
                ticket.state = GONE
                return "lossy"
            refused: str | None = healthy(ticket, now_ns)
            return refused

        service.offer = offer

    about = f"{share:.1%} of the ordinary tenants' calls in the burst are refused"
    return Defect(f"lossy_for_ordinary~{share:g}", about, ("fairness.ordinary_unmoved",), lay, part=SHARED)


# Wrong by one


SMALL: dict[str, Defect] = {}
"""Small breaches by name, each of the check that ought to see it."""


def _small(name: str, about: str, check: str, lay: Callable[[Any, Any], None], part: str = CAPACITY) -> None:
    SMALL[name] = Defect(name, about, (check,), lay, part=part)


def _slots(controller: Any) -> Iterator[Any]:
    yield from (bulkhead.slots for bulkhead in controller.dispatch.bulkheads.values())
    yield controller.dispatch.ceiling


def _reserve_short(controller: Any, config: Any) -> None:
    for slots in _slots(controller):
        slots.reserves = [max(0, n - 1) for n in slots.reserves]
        slots.floors = [min(floor, n) for floor, n in zip(slots.floors, slots.reserves, strict=True)]
        slots._all_reserved = sum(slots.reserves)


def _floor_short(controller: Any, config: Any) -> None:
    for slots in _slots(controller):
        slots.floors = [max(0, n - 1) for n in slots.floors]


def _share_short(controller: Any, config: Any) -> None:
    for slots in _slots(controller):
        slots.shares = {tenant: max(0, n - 1) for tenant, n in slots.shares.items()}
        slots.shares_unmet = sum(slots.shares.values())


def _limits_exceeded(controller: Any, config: Any) -> None:
    for slots in _slots(controller):
        slots.limit += 1


def _attempt_more(controller: Any, config: Any) -> None:
    healthy = controller.envelope_for

    def envelope_for(*given: Any) -> Any:
        envelope = healthy(*given)
        if not isinstance(envelope, str):
            envelope.attempts += 1
        return envelope

    controller.envelope_for = envelope_for


def _retry_token_more(controller: Any, config: Any) -> None:
    healthy = controller.envelope_for

    def envelope_for(*given: Any) -> Any:
        envelope = healthy(*given)
        if not isinstance(envelope, str):
            envelope.retry_tokens += 1
        return envelope

    controller.envelope_for = envelope_for


def _jitter(jitter: float) -> Callable[[Any, Any], None]:
    def lay(controller: Any, config: Any) -> None:
        controller.flow.retry.config = replace(config.retry, jitter=jitter)

    return lay


def _early(by: float) -> Callable[[Any, Any], None]:
    """Retries come this share of what was stated too early."""

    def lay(controller: Any, config: Any) -> None:
        owner = controller.flow.retry
        healthy = owner.delay_ns
        owner.delay_ns = lambda failed, stated_ns, now_ns: healthy(
            failed, int(stated_ns * (1 - by)) if stated_ns else stated_ns, now_ns
        )

    return lay


def _circuit(**more: int) -> Callable[[Any, Any], None]:
    def lay(controller: Any, config: Any) -> None:
        for circuit in controller.dispatch.circuits.values():
            changed = {name: getattr(circuit.config, name) + n for name, n in more.items()}
            circuit.config = replace(circuit.config, **changed)

    return lay


def _place_more(controller: Any, config: Any) -> None:
    for bulkhead in controller.dispatch.bulkheads.values():
        waiting = bulkhead.waiting
        waiting.most += 1
        waiting.tenant_most += 1


def _shadow_shorter(service: Any, config: Any) -> None:
    if service.shadow is not None:
        service.shadow.policy._bound -= 1


def _budget_times(factor: float) -> Callable[[Any, Any], None]:
    """Buckets of cost refill this much faster than was stated."""

    def lay(controller: Any, config: Any) -> None:
        if controller.costs is None:
            return
        healthy, seen = controller.costs.bucket_of, set()

        def bucket_of(tenant: str) -> Any:
            bucket = healthy(tenant)
            if bucket is not None and id(bucket) not in seen:
                seen.add(id(bucket))
                bucket.rate_per_s *= factor
            return bucket

        controller.costs.bucket_of = bucket_of

    return lay


_small("reserve_short_by_one", "each reserve is one slot short", "v02.foreground_first", _reserve_short)
_small("floor_short_by_one", "of each floor one slot is lent", "v02.foreground_first", _floor_short)
_small("share_short_by_one", "each tenant's share is one slot short", "v03.tenant_share", _share_short)
_small("limit_exceeded_by_one", "each limit and the ceiling are exceeded by one", "v04.bulkheads", _limits_exceeded)
_small("ceiling_exceeded_by_one", "a run may make one call more than it may", "v01.fan_out_ceiling", _attempt_more)
_small("retry_token_more", "a run has one retry token more than it has", "v05.one_retry_owner", _retry_token_more)
_small("jitter_a_fifth", "retries are spread over a fifth of what was stated", "v05.one_retry_owner", _jitter(0.08))
_small("retry_after_5_percent_early", "a retry comes 5 % too early", "v07.retry_after", _early(0.05))
_small("retry_after_1_percent_early", "a retry comes 1 % too early", "v07.retry_after", _early(0.01))
_small("one_probe_more", "one probe more than was stated", "v08.circuit", _circuit(probes=1))
_small("closes_one_early", "a circuit closes one success early", "v08.circuit", _circuit(close_after=-1))
_small("one_place_more", "a queue holds one more than it may", "v10.outage_recovery", _place_more)
_small("shadow_queue_one_shorter", "the shadow's queues are one place shorter", "fairness.shadow_agrees",
       _shadow_shorter, SHARED)  # fmt: skip
_small("bucket_refills_a_tenth_faster", "buckets of cost refill 10 % faster", "cost.bucket_per_tenant",
       _budget_times(1.1))  # fmt: skip
_small("bucket_refills_faster_by_a_half", "buckets of cost refill 50 % faster", "cost.bucket_per_tenant",
       _budget_times(1.5))  # fmt: skip


def known() -> dict[str, Defect]:
    """Every defect that has a natural dilution, by name: of the service, and of callers where those are registered."""
    return {name: one for name, one in DEFECTS.items() if not one.healthy and name not in WHOLE}
