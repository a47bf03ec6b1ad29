"""What the fields of the lab say -> a profile's document, and a profile's problems -> the fields that are to blame.

Inputs are one flat mapping of text, as typed: `{"workers": "8", "agent.rate": "8/s", "tenant.0.name": "A", ...}`. That
is what the link in the address bar and an exported file hold. Nothing is judged here that a profile has a rule for
(harness/profile): text goes into the document as it is, and the problem that comes back goes to its field. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from harness.profile.errors import Problem, ProfileError
from harness.profile.loader import Loaded, from_document
from harness.profile.model import Admission
from harness.profile.paths import show_path
from harness.profile.units import parse_duration, show_duration

Inputs = Mapping[str, str]
Errors = dict[str, list[str]]
"""Field -> what is wrong with it, each with its remedy. "": of no single field."""

POLICIES: tuple[str, ...] = get_args(Admission.model_fields["policy"].annotation)
MOST_TENANTS = 12
"""Ordinary tenants: more than fit on a page are for a profile (`count: 9999`)."""
MOST_CHARACTERS = 200
ORIGIN = "lab"


@dataclass(frozen=True, slots=True)
class Field:
    """kind: `count`, `duration`, `rate`, `text`, `choice` or `switch` (`on` or nothing). policies: that use it; empty:
    all. about: a few words under the field."""

    name: str
    label: str
    default: str
    kind: str
    group: str
    about: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    policies: tuple[str, ...] = ()


_POLICY_WORDS = {
    "shared_fifo": "Shared FIFO",
    "tenant_cap": "Shared FIFO, tenant cap",
    "fair_queues": "Fair queues",
    "shuffle_sharded": "Shuffle-sharded queues",
}
_WITH_QUEUE = ("shared_fifo", "tenant_cap", "shuffle_sharded")

FIELDS: tuple[Field, ...] = (
    Field("workers", "Workers", "8", "count", "service"),
    Field("service_time", "Service time", "200ms", "duration", "service"),
    Field("policy", "Policy", "shared_fifo", "choice", "admission",
          choices=tuple((name, _POLICY_WORDS.get(name, name)) for name in POLICIES)),
    Field("queue", "Queue size", "200", "count", "admission", policies=_WITH_QUEUE),
    Field("queue_per_tenant", "Queue per tenant", "50", "count", "admission", policies=("fair_queues",)),
    Field("cap", "Cap per tenant", "4", "count", "admission", "running at once", policies=("tenant_cap",)),
    Field("queues", "Queues", "64", "count", "admission", policies=("shuffle_sharded",)),
    Field("hand", "Hand", "4", "count", "admission", "queues dealt to a tenant", policies=("shuffle_sharded",)),
    Field("agent.name", "Name", "D", "text", "agent"),
    Field("agent.rate", "Rate", "8/s", "rate", "agent"),
    Field("burst.rate", "Burst rate", "40/s", "rate", "agent"),
    Field("burst.from", "Burst from", "30s", "duration", "agent"),
    Field("burst.for", "Burst for", "40s", "duration", "agent"),
    Field("agent.weight", "Weight", "1", "count", "agent", policies=("fair_queues",)),
    Field("replans.calls", "New calls", "2", "count", "replans", "for each one refused"),
    Field("replans.rounds", "Rounds", "3", "count", "replans", "at most, each"),
    Field("replans.after", "Delay", "500ms", "duration", "replans", "before they are sent"),
    Field("budget", "Agent budget", "", "switch", "budget"),
    Field("budget.rate", "Budget rate", "10/s", "rate", "budget"),
    Field("budget.burst", "Budget burst", "10", "count", "budget"),
    Field("budget.scope", "Budget of", "tenant", "choice", "budget",
          choices=(("tenant", "the whole agent"), ("run", "each original call"))),
    Field("patience", "Patience", "2s", "duration", "trial", "in the queue; empty: endless"),
    Field("duration", "Duration", "120s", "duration", "trial"),
    Field("pace", "Arrivals", "even", "choice", "trial",
          choices=(("even", "evenly spaced"), ("poisson", "Poisson"))),
    Field("seed", "Seed", "1", "count", "trial"),
)  # fmt: skip
_BY_NAME = {field.name: field for field in FIELDS}
ROW = (("name", "text", ""), ("rate", "rate", "8/s"), ("weight", "count", "1"))
"""Of each ordinary tenant: `tenant.0.name` and so on; `tenants` says how many there are."""

DEFAULTS: dict[str, str] = {
    **{field.name: field.default for field in FIELDS},
    "tenants": "3",
    **{f"tenant.{i}.{part}": name if part == "name" else default
       for i, name in enumerate("ABC") for part, _, default in ROW},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the worked example: the variant of profiles/worked_example.yaml ("": as it is), the one change, and
    what to look at."""

    variant: str
    title: str
    change: tuple[tuple[str, str], ...]
    look: str


TOUR: tuple[Step, ...] = (
    Step("", "Shared FIFO", (),
         "One queue for all. At 30 s the agent offers five times its rate, the queue fills, and each refusal comes "
         "back as two more calls. The agent takes the places of A, B and C."),
    Step("no_replans", "No re-plans", (("replans.calls", "0"),),
         "The burst alone, nothing sent again. The queue still grows until calls wait for as long as patience "
         "lasts: re-plans make it worse, they do not cause it."),
    Step("tenant_cap", "Tenant cap", (("policy", "tenant_cap"), ("cap", "4")),
         "The agent may have half of the workers, which leaves four to A, B and C, who need nearly five. And its calls "
         "still fill the one queue, so that theirs are refused at the door."),
    Step("fair_queues", "Fair queues", (("policy", "fair_queues"),),
         "A queue for each tenant, served in turn. The agent re-plans more than ever, and hurts only itself: A, B and "
         "C do not feel it."),
    Step("budget", "Agent budget", (("budget", "on"),),
         "Back to one queue, but the agent's own budget of 10/s is asked before a call leaves. Nothing is refused, so "
         "nothing is re-planned."),
    Step("workers_doubled", "Workers doubled", (("workers", "16"),),
         "Twice the workers take the burst without a queue. It works, and is paid for all day: worker-seconds double."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Read:
    """loaded: None where something is wrong, which `errors` says field by field."""

    loaded: Loaded | None
    errors: Errors


def read(inputs: Inputs) -> Read:
    """The profile that the fields describe, by the profile's own rules."""
    errors = _shape(inputs)
    if errors:
        return Read(None, errors)
    made, places = document(inputs)
    twice = _named_twice(inputs)
    try:
        loaded = from_document(made, origin=ORIGIN)
    except ProfileError as error:
        return Read(None, _merged(twice, _at_fields(error.problems, places)))
    return Read(None if twice else loaded, twice)


def _shape(inputs: Inputs) -> Errors:
    """What is no set of inputs at all: from a link or a file that somebody changed."""
    count = inputs.get("tenants", "")
    if not count.isascii() or not count.isdigit() or len(count) > 3 or not 1 <= int(count) <= MOST_TENANTS:
        return {"tenants": [f"the lab takes 1 to {MOST_TENANTS} ordinary tenants; write a profile for more"]}
    known = {*_BY_NAME, "tenants", *(f"tenant.{i}.{part}" for i in range(int(count)) for part, _, _ in ROW)}
    errors: Errors = {}
    for name in sorted(known - inputs.keys()):
        errors[name] = ["is missing"]
    if unknown := sorted(inputs.keys() - known):
        errors[""] = [f"there is no input '{unknown[0][:40]}'"]
    for name in known & inputs.keys():
        if len(inputs[name]) > MOST_CHARACTERS:
            errors[name] = [f"expected at most {MOST_CHARACTERS} characters"]
    return errors


def document(inputs: Inputs) -> tuple[dict[str, Any], dict[str, str]]:
    """(document, path in it -> field). Inputs of a sound shape; their values may be wrong."""
    places: dict[str, str] = {}
    agent, tenants = inputs["agent.name"], {}
    for i in range(int(inputs["tenants"])):
        name = inputs[f"tenant.{i}.name"]
        tenants[name] = {"rate": inputs[f"tenant.{i}.rate"], **_pace(inputs)}
        places |= {
            show_path(("tenants", name)): f"tenant.{i}.name",
            show_path(("tenants", name, "rate")): f"tenant.{i}.rate",
            show_path(("service", "admission", "weights", name)): f"tenant.{i}.weight",
        }
    ordinary = list(tenants)
    tenants[agent] = _agent(inputs)
    places |= _agent_places(agent)
    admission = _admission(inputs)
    places |= {
        f"service.admission.{key}": key for key in ("policy", "queue", "queue_per_tenant", "cap", "queues", "hand")
    }
    places |= {key: key for key in ("duration", "patience", "seed")}
    places |= {"service.workers": "workers", "service.service_time": "service_time", "service.admission": "policy"}
    places |= {"phases": "burst.for", "ordinary": ""}
    made: dict[str, Any] = {
        "name": "from-the-lab",
        "duration": inputs["duration"],
        "phases": _phases(inputs),
        "patience": inputs["patience"].strip() or None,
        "patience_until": "start",
        "seed": _number(inputs["seed"]),
        "service": {
            "workers": _number(inputs["workers"]),
            "service_time": inputs["service_time"],
            "admission": admission,
        },
        "tenants": tenants,
        "ordinary": ordinary,
        "checks": ["fairness.ordinary_unmoved", "agent.replan_share"],
    }
    return {key: value for key, value in made.items() if value not in (None, {})}, places


def _agent(inputs: Inputs) -> dict[str, Any]:
    step = {"from": inputs["burst.from"], "to": _burst_end(inputs), "rate": inputs["burst.rate"]}
    made: dict[str, Any] = {
        "rate": [inputs["agent.rate"], step],
        **_pace(inputs),
        "replans": {
            "calls": _number(inputs["replans.calls"]),
            "after": inputs["replans.after"],
            "rounds": _number(inputs["replans.rounds"]),
        },
    }
    if inputs["budget"] == "on":
        made["budget"] = {"rate": inputs["budget.rate"], "burst": _number(inputs["budget.burst"])}
        if inputs["budget.scope"] != "tenant":
            made["budget"]["scope"] = inputs["budget.scope"]
    return made


def _agent_places(name: str) -> dict[str, str]:
    fields: dict[tuple[str | int, ...], str] = {
        (): "agent.name",
        ("rate",): "burst.for",  # the rules of the step as a whole
        ("rate", 0): "agent.rate",
        ("rate", 1, "rate"): "burst.rate",
        ("rate", 1, "from"): "burst.from",
        ("rate", 1, "to"): "burst.for",
        **{("replans", part): f"replans.{part}" for part in ("calls", "after", "rounds")},
        **{("budget", part): f"budget.{part}" for part in ("rate", "burst", "scope")},
    }
    places = {show_path(("tenants", name, *rest)): field for rest, field in fields.items()}
    return {**places, show_path(("service", "admission", "weights", name)): "agent.weight"}


def _admission(inputs: Inputs) -> dict[str, Any]:
    policy = inputs["policy"]
    made: dict[str, Any] = {"policy": policy}
    for field in FIELDS:
        if field.group == "admission" and policy in field.policies:
            made[field.name] = _number(inputs[field.name])
    if policy == "fair_queues":
        weights = {inputs[f"tenant.{i}.name"]: inputs[f"tenant.{i}.weight"] for i in range(int(inputs["tenants"]))}
        weights[inputs["agent.name"]] = inputs["agent.weight"]
        other = {name: _number(weight) for name, weight in weights.items() if weight.strip() != "1"}
        made |= {"weights": other} if other else {}
    return made


def _pace(inputs: Inputs) -> dict[str, str]:
    return {} if inputs["pace"] == "even" else {"pace": inputs["pace"]}


def _burst_end(inputs: Inputs) -> str:
    """When the burst ends, as a profile says it. What cannot be added up is left for the profile's rules to refuse."""
    try:
        return show_duration(parse_duration(inputs["burst.from"]) + parse_duration(inputs["burst.for"]))
    except ValueError:
        return inputs["burst.for"]


def _phases(inputs: Inputs) -> dict[str, list[str]]:
    """calm before the burst, recovery after it; nothing where the times cannot be read."""
    try:
        begin, end = parse_duration(inputs["burst.from"]), parse_duration(_burst_end(inputs))
        duration = parse_duration(inputs["duration"])
    except ValueError:
        return {}
    cuts = {"calm": (0, begin), "burst": (begin, end), "recovery": (end, duration)}
    if not begin < end <= duration:
        return {}
    return {name: [show_duration(a), show_duration(b)] for name, (a, b) in cuts.items() if a < b}


def _number(text: str) -> int | str:
    """A whole number as one; anything else as it was typed, for the profile's rules to refuse."""
    plain = text.strip()
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) <= 19 else text


def _named_twice(inputs: Inputs) -> Errors:
    fields = [*(f"tenant.{i}.name" for i in range(int(inputs["tenants"]))), "agent.name"]
    seen: set[str] = set()
    errors: Errors = {}
    for field in fields:
        if inputs[field] in seen:
            errors[field] = ["another tenant has this name; give each its own"]
        seen.add(inputs[field])
    return errors


def _at_fields(problems: tuple[Problem, ...], places: Mapping[str, str]) -> Errors:
    errors: Errors = {}
    for problem in problems:
        messages = errors.setdefault(_field_of(problem.path, places), [])
        said = f"{problem.rule} {problem.hint}" if problem.hint.startswith("(") else problem.rule
        said += f"; {problem.hint}" if problem.hint and not problem.hint.startswith("(") else ""
        if said not in messages:
            messages.append(said)
    return errors


def _field_of(path: str, places: Mapping[str, str]) -> str:
    """The field of the longest path that this one lies in."""
    inside = [place for place in places if path == place or path.startswith(place + ".")]
    return places[max(inside, key=len)] if inside else ""


def _merged(one: Errors, other: Errors) -> Errors:
    return {field: [*one.get(field, []), *other.get(field, [])] for field in {**one, **other}}


def changed(inputs: Inputs) -> Iterator[tuple[str, str]]:
    """The inputs that differ from the worked example's, in the order of the fields."""
    return ((name, value) for name, value in inputs.items() if DEFAULTS.get(name) != value)
