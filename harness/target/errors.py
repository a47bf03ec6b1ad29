"""What goes wrong with a target, told in one sentence."""

from __future__ import annotations


class TargetError(Exception):
    """The target cannot be used, or is gone; the message says which and what to do."""
