"""Judges a trial by every check that its profile asks for, and always by those that say whether to trust it.

Absolute bounds are written for scale 1: a check's parameters shrink with the trial. Nothing that a check does may
end the judging of the others: one that breaks is INVALID, with its reason, for an error proves nothing of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from harness.checks.context import time_scale
from harness.checks.registry import CHECKS
from harness.checks.tiers import Judgeable, clock_problem, judgeable, tiers_of
from harness.checks.verdict import Verdict, Word
from harness.errors import BadInput
from harness.ledger.reader import Trial
from harness.profile.model import CheckRef
from harness.profile.scale import scaled

ALWAYS = ("trial.conserved", "trial.on_time")


class UnknownCheck(BadInput):
    """A name that no check has; the message says which there are."""


def judge_all(trial: Trial, only: Sequence[str] | None = None) -> list[Verdict]:
    """A verdict a check: those of the profile, in its order, then ALWAYS. only: these instead, in this order, with the
    profile's parameters where it has them, and after them those of ALWAYS that say that the trial is not to be trusted.
    Raises UnknownCheck for a name in `only`; nothing else is raised."""
    wanted = list(dict.fromkeys(full for name in only or () for full in known(name)))
    params = _asked(trial)
    names = wanted if only else list(params)
    verdicts = [judge_one(trial, name, params.get(name, {})) for name in names]
    always = [judge_one(trial, name, params.get(name, {})) for name in ALWAYS if name not in names]
    return verdicts + [verdict for verdict in always if not only or verdict.word is Word.INVALID]


def known(name: str) -> list[str]:
    """The check of this name, or those of a family by the part before the dot: `v05`, `trial`. Raises UnknownCheck with
    what was perhaps meant."""
    found = [name] if name in CHECKS else [full for full in CHECKS if full.partition(".")[0] == name]
    if not found:
        near = get_close_matches(name, CHECKS, 1, 0.6)
        hint = f": did you mean {near[0]}?" if near else ""
        raise UnknownCheck(f"there is no check '{name}'{hint} (known: {', '.join(sorted(CHECKS))})")
    return found


def judge_one(trial: Trial, name: str, params: dict[str, Any]) -> Verdict:
    """params: as the profile has them, at scale 1."""
    try:
        if known(name) != [name]:
            raise UnknownCheck(f"'{name}' is a family of checks; a profile gives each by its whole name")
        check = CHECKS[name]
        given = tiers_of(trial.manifest)
        if given is not None and (missing := judgeable(name, given)).missing:
            return withheld(missing)
        if (unclear := clock_problem(name, trial.manifest)) is not None:
            remedy = "a log on the callers' machine (`same_clock`), or quicker answers: they bound the offset"
            return Verdict(name, Word.INCONCLUSIVE, None, None, "", 0, f"Cannot be judged: {unclear}.", add=remedy)
        return check.judge(trial, scaled(check.params.model_validate(params), time_scale(trial)))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return _broken(name, f"its parameters or the manifest's profile are not valid: {where}: {first['msg']}")
    except UnknownCheck as error:
        return _broken(name, str(error))
    except BadInput as error:
        return _broken(name, f"what it needs cannot be read ({type(error).__name__}: {error})")
    except Exception as error:  # whatever it is: the other verdicts must still be given
        return _broken(name, f"the check itself broke ({type(error).__name__}: {error}); please report it")


def withheld(found: Judgeable) -> Verdict:
    """The target does not let this be seen: said before the trial, and now again."""
    lacks = " and ".join(tier.value for tier in found.missing)
    sentence = f"Cannot be judged: the target file gives no {lacks}."
    return Verdict(found.check, Word.INCONCLUSIVE, None, None, "", 0, sentence, add="add " + "; ".join(found.add))


def _broken(name: str, reason: str) -> Verdict:
    return Verdict(name, Word.INVALID, None, None, "", 0, f"Could not be judged: {reason}.")


def _asked(trial: Trial) -> dict[str, dict[str, Any]]:
    """Checks named in the manifest's profile, with their parameters. What cannot be read is judged, and so reported."""
    asked: dict[str, dict[str, Any]] = {}
    listed = trial.manifest["profile"].get("checks") or []
    for entry in listed if isinstance(listed, list) else [listed]:
        try:
            ref = CheckRef.model_validate(entry)
            asked[ref.name] = dict(ref.params)
        except ValidationError:
            asked[str(entry)[:100]] = {}
    return asked
