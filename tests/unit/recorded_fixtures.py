"""Small logs, written out in tests, and the way from their text to records."""

from __future__ import annotations

import io

from harness.recorded.account import Account
from harness.recorded.lines import Source
from harness.recorded.reader import Reading, read

COMBINED = (
    '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a/b?q=1 HTTP/1.1" 200 203 "-" "browser"\n'
    '10.0.0.2 - frank [17/May/2015:12:05:02 +0200] "POST /login HTTP/1.1" 429 - "-" "agent \\"x\\""\n'
    '2001:db8::1 - - [17/May/2015:10:05:59 +0000] "-" 408 0 "-" "-"\n'
)
JSON_LINES = (
    '{"ts": 1431857103, "auth": {"sub": "alice"}, "code": 200, "tokens": 12, "url": "/x", "verb": "GET"}\n'
    '{"ts": 1431857104.5, "auth": {"sub": "bob"}, "code": "429", "tokens": "7.5", "url": "http://h/y", "verb": "get"}\n'
)
CSV = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.03196,3180,8"
)


def source(text: str | bytes, name: str = "access.log", tenant: str = "access") -> Source:
    data = text.encode() if isinstance(text, str) else text
    return Source(name, io.BytesIO(data), len(data), tenant)


def records(text: str | bytes, **how):
    account = Account()
    found = list(read([source(text)], Reading(**how), account))
    return found, account
