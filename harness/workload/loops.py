"""What an agent's own loop allows a run, whatever its budgets hold: iterations of the run, tokens of a branch.

An iteration is an attempt that leaves. A branch is a call with the calls that it follows from, back to the original
one; it may spend so many tokens, as the recording tells the cost of a call, one token where it tells none. Budgets
refill with time; these never do: they end a loop.
"""

from __future__ import annotations

from harness.ledger.call import Call

ITERATIONS, BRANCH_TOKENS = "loop_iterations", "branch_tokens"


class LoopGuard:
    """One tenant's; state of a run or branch is forgotten when the caller says that it is over."""

    def __init__(self, iterations: int | None, branch_tokens: int | None) -> None:
        self.iterations = iterations
        self.branch_tokens = branch_tokens
        self._of_run: dict[int, int] = {}
        self._of_branch: dict[int, float] = {}

    def refuses(self, call: Call) -> str | None:
        """Why the attempt may not leave; None: it may."""
        if self.iterations is not None and self._of_run.get(call.run, 0) >= self.iterations:
            return ITERATIONS
        spent = self._of_branch.get(call.seq, 0.0) + tokens_of(call)
        return BRANCH_TOKENS if self.branch_tokens is not None and spent > self.branch_tokens else None

    def leaves(self, call: Call) -> None:
        self._of_run[call.run] = self._of_run.get(call.run, 0) + 1
        self._of_branch[call.seq] = self._of_branch.get(call.seq, 0.0) + tokens_of(call)

    def spent(self, call: Call) -> float:
        """Tokens of the branch that ends with this call."""
        return self._of_branch.get(call.seq, 0.0)

    def branches(self, call: Call, spent: float) -> None:
        """A new call continues a branch on which so much has been spent."""
        self._of_branch[call.seq] = spent

    def call_over(self, call: Call) -> None:
        self._of_branch.pop(call.seq, None)

    def run_over(self, run: int) -> None:
        self._of_run.pop(run, None)


def tokens_of(call: Call) -> float:
    return call.cost if call.cost >= 0 else 1.0
