"""What a run may still use: attempts, retry tokens, calls of each dependency. Counters, taken before work starts.

    a batch      takes one attempt and one unit of its dependency's budget for each step; all of them, or nothing
    a retry      takes one attempt, one unit of the budget and one retry token
    a read-back  takes one attempt (it repeats no work: neither a token nor budget)
    a step that never started, a coalesced follower included, gives its attempt and unit back

so that what reaches the dependencies on behalf of a run never exceeds its attempts, nor its budgets. A child's envelope
is carved out of its parent's: the parent has that much less until the child has ended and hands back what it left.

Check and take happen in one plain function: nothing may be awaited between them, or parallel batches overshoot.
Source: Google SRE book, "Handling Overload" (per-request and per-client retry budgets).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stub_service.capacity.config import EnvelopeDefaults
from stub_service.capacity.ports import RunWish, Step

NO_ATTEMPT, NO_TOKEN = "attempts", "retry_tokens"


def no_budget(dependency: str) -> str:
    """The reason of a refusal for want of a dependency's budget."""
    return f"budget:{dependency}"


class Envelope:
    """budgets: dependency -> calls left; a dependency that is not named is bounded by the attempts alone."""

    __slots__ = ("attempts", "budgets", "closed", "parent", "retry_tokens")

    def __init__(
        self, attempts: int, retry_tokens: int, budgets: Mapping[str, int], parent: Envelope | None = None
    ) -> None:
        self.attempts = attempts
        self.retry_tokens = retry_tokens
        self.budgets = dict(budgets)
        self.parent = parent
        self.closed = False

    def take(self, steps: Sequence[Step], round_: int = 0) -> str | None:
        """Takes what the whole batch needs (None), or nothing at all and says what was missing.

        round_: how many re-plans deep; re-plans count as original work does.
        """
        if len(steps) > self.attempts:
            return NO_ATTEMPT
        wanted = Counter(step.dependency for step in steps) if len(steps) > 1 else {s.dependency: 1 for s in steps}
        budgets = self.budgets
        for dependency, calls in wanted.items():
            if calls > budgets.get(dependency, calls):
                return no_budget(dependency)
        self.attempts -= len(steps)
        for dependency, calls in wanted.items():
            if dependency in budgets:
                budgets[dependency] -= calls
        return None

    def give_back(self, dependency: str) -> None:
        """A step ended without having started. After the run has ended, what it leaves is its parent's."""
        owner = self
        while owner.closed and owner.parent is not None:
            owner = owner.parent
        owner.attempts += 1
        if dependency in owner.budgets:
            owner.budgets[dependency] += 1

    def take_retry(self, dependency: str) -> str | None:
        """Takes an attempt, a unit of budget and a token for one retry (None), or nothing and says what was missing."""
        if self.attempts < 1:
            return NO_ATTEMPT
        if self.budgets.get(dependency, 1) < 1:
            return no_budget(dependency)
        if self.retry_tokens < 1:
            return NO_TOKEN
        self.attempts -= 1
        self.retry_tokens -= 1
        if dependency in self.budgets:
            self.budgets[dependency] -= 1
        return None

    def take_look(self) -> bool:
        """Takes the attempt of a read-back, if one is left."""
        if self.attempts < 1:
            return False
        self.attempts -= 1
        return True

    def carve(self, wish: RunWish, defaults: EnvelopeDefaults) -> Envelope | str:
        """A child's envelope out of this one, or what is missing for it.

        What the child asks for must be there. What it leaves out is the default, cut to what is left here; a child that
        names budgets gets none of those dependencies that it does not name and that are limited here.
        """
        attempts = min(defaults.attempts, self.attempts) if wish.attempts is None else wish.attempts
        tokens = min(defaults.retry_tokens, self.retry_tokens) if wish.retry_tokens is None else wish.retry_tokens
        if attempts > self.attempts or attempts < 1:
            return NO_ATTEMPT
        if tokens > self.retry_tokens:
            return NO_TOKEN
        budgets = self._carved_budgets(wish.budgets, dict(defaults.budgets))
        for dependency, calls in budgets.items():
            if calls > self.budgets.get(dependency, calls):
                return no_budget(dependency)
        self.attempts -= attempts
        self.retry_tokens -= tokens
        for dependency, calls in budgets.items():
            if dependency in self.budgets:
                self.budgets[dependency] -= calls
        return Envelope(attempts, tokens, budgets, self)

    def _carved_budgets(self, asked: Mapping[str, int] | None, defaults: Mapping[str, int]) -> dict[str, int]:
        if asked is not None:
            return {**dict.fromkeys(self.budgets, 0), **asked}
        mine = {dependency: min(left, defaults.get(dependency, left)) for dependency, left in self.budgets.items()}
        return {**defaults, **mine}

    def close(self) -> None:
        """The run has ended: what it has left goes back to its parent, now and later."""
        if self.closed:
            return
        self.closed = True
        parent = self.parent
        if parent is None:
            return
        while parent.closed and parent.parent is not None:
            parent = parent.parent
        parent.attempts += self.attempts
        parent.retry_tokens += self.retry_tokens
        for dependency, left in self.budgets.items():
            if dependency in parent.budgets:
                parent.budgets[dependency] += left
        self.attempts = self.retry_tokens = 0
        self.budgets = dict.fromkeys(self.budgets, 0)


def envelope_of(wish: RunWish, defaults: EnvelopeDefaults) -> Envelope:
    """The envelope of a run without a parent: what it asks for, and the defaults for the rest."""
    return Envelope(
        defaults.attempts if wish.attempts is None else wish.attempts,
        defaults.retry_tokens if wish.retry_tokens is None else wish.retry_tokens,
        {**dict(defaults.budgets), **(wish.budgets or {})},
    )
