"""What goes wrong with a target, told in one sentence: before anything was sent, or in the middle of a trial."""

from __future__ import annotations

from harness.errors import BadInput, TrialBroken


class TargetError(Exception):
    """The target cannot be used, or is gone; the message says which and what to do."""


class TargetUnusable(TargetError, BadInput):
    """Found before the first call: an address that is not accepted, nothing there, a stub that refuses to start."""


class TargetGone(TargetError, TrialBroken):
    """It died or was killed, no longer answers, or was never ready in time: at any moment, also while it started."""
