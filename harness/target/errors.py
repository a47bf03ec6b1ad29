"""What goes wrong with a target, told in one sentence: before anything was sent, or in the middle of a trial."""

from __future__ import annotations

from harness.errors import BadInput, TrialBroken


class TargetError(Exception):
    """The target cannot be used, or is gone; the message says which and what to do."""


class TargetUnusable(TargetError, BadInput):
    """Found before the first call: an address that is not accepted, nothing there, a stub that does not start."""


class TargetGone(TargetError, TrialBroken):
    """Found after it had been ready: it died, or no longer answers."""
