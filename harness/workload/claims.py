"""A caller that says in a header that it is somebody else, another one with each call; its credential stays.

Whoever believes the header finds as many tenants as there are names, and gives each a queue, a share or a budget of its
own. A name is a function of tenant and sequence alone, so that both drivers send the same.
"""

from __future__ import annotations

from harness.ledger.call import Call
from harness.profile.model import Claims


def claimed_by(call: Call, claims: Claims) -> str:
    """The tenant that this call claims to be."""
    return f"{call.tenant}-{call.seq % claims.values}"
