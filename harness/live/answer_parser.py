"""An HTTP answer as its bytes arrive: a C parser (llhttp), limits, and nothing of sockets.

One parser a connection, for one answer after another; `reset` before each request. Interim answers (1xx) are passed
over. Bytes beyond the answer are seen, not kept: the connection must not be used again. Never trusts a length, a name
or a value that a server sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from harness.live.answers import KEPT_BODY_LIMIT, TYPED_BODY_LIMIT

HEAD_LIMIT = 64 * 1024
"""Most bytes of status line and headers, interim answers and trailers included."""
BODY_LIMIT = 8 * 1024 * 1024
RAW_LIMIT = 2 * BODY_LIMIT
"""Bytes on the wire: endless chunk extensions are no way around the limit."""

TOO_LARGE, BAD_ANSWER = "answer_too_large", "bad_answer"


class TooLarge(Exception):
    """The answer passed a limit."""


class AnswerParser:
    """`feed` until `complete`. body: of any answer, as long as it is small (larger, if asked for); else None.

    reusable: the connection may carry another request. Its methods named on_... are the C parser's callbacks.
    """

    __slots__ = (
        "_body_limit", "_extra", "_head_done", "_keep", "_named_bytes", "_no_body", "_parser",
        "_raw_bytes", "_until_eof", "body", "body_bytes", "complete", "retry_after", "server_timing", "status",
    )  # fmt: skip

    headers: Mapping[bytes, bytes] = MappingProxyType({})
    """Those of `KeepingParser`."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._extra = False
        self.reset(False)

    def reset(self, no_body: bool, keep_body: bool = False) -> None:
        """no_body: the request was a HEAD. keep_body: also of an answer larger than a typed refusal can be."""
        self.status = 0
        self.server_timing: bytes | None = None
        self.retry_after: bytes | None = None
        self.body: list[bytes] | None = None
        self.body_bytes = 0
        self.complete = False
        self._no_body = no_body
        self._body_limit = KEPT_BODY_LIMIT if keep_body else TYPED_BODY_LIMIT
        self._head_done = False
        self._raw_bytes = 0
        self._named_bytes = 0
        self._keep = False
        self._until_eof = True

    @property
    def reusable(self) -> bool:
        return self._keep and not self._extra

    def feed(self, data: bytes | memoryview) -> str | None:
        """Takes what has arrived. Returns why this is no answer, or None: look at `complete`."""
        self._raw_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.complete, self._keep, self.status = True, False, 101
        except HttpParserError as error:
            if self.complete:
                self._extra = True
                return None
            cause = error.__context__
            if isinstance(cause, TooLarge):
                return TOO_LARGE
            if isinstance(error, HttpParserCallbackError):
                raise
            return BAD_ANSWER
        if not self.complete and self._raw_bytes > (RAW_LIMIT if self._head_done else HEAD_LIMIT):
            return TOO_LARGE
        return None

    def end(self) -> bool:
        """The server has closed. Says whether that completes the answer."""
        if self._head_done and self._until_eof:
            self.complete = True
        return self.complete

    def close(self) -> None:
        """The parser and its callbacks hold each other."""
        self._parser = None

    def on_message_begin(self) -> None:
        if self.complete:
            self._extra = True

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name)
        self._named_bytes += size + len(value)
        if self._named_bytes > HEAD_LIMIT:
            raise TooLarge
        if self._head_done:
            return  # a trailer, or an answer that nobody asked for
        if size == 13 and name.lower() == b"server-timing":
            self.server_timing = value
        elif size == 11 and name.lower() == b"retry-after":
            self.retry_after = value
        elif size == 14:
            self._until_eof = self._until_eof and name.lower() != b"content-length"
        elif size == 17 and name.lower() == b"transfer-encoding":
            self._until_eof = self._until_eof and b"chunked" not in value.lower()

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status: int = self._parser.get_status_code()
        self._head_done = True
        if status < 200:
            return
        self.status = status
        self.body = []
        # The C parser cannot be told that this was a HEAD: what follows would be taken for a body.
        self.complete = self._no_body

    def on_body(self, data: bytes) -> None:
        if self.complete:
            self._extra = True
            return
        size = self.body_bytes = self.body_bytes + len(data)
        if self.body is not None:
            if size <= self._body_limit:
                self.body.append(data)
            else:
                self.body = None
        if size > BODY_LIMIT:
            raise TooLarge

    def on_message_complete(self) -> None:
        if self.complete:
            return
        if self.status:
            self.complete = True
            self._keep = self._parser.should_keep_alive()
        else:
            # An interim answer: the real one is still to come. Its bytes count towards the same limit.
            self._head_done = False
            self._until_eof = True


class KeepingParser(AnswerParser):
    """Keeps the headers that a target file names, too: lower-case name -> value, the last of several; of Server-Timing,
    all of them."""

    __slots__ = ("_wanted", "headers")

    def __init__(self, wanted: frozenset[bytes]) -> None:
        self._wanted = wanted
        self.headers: dict[bytes, bytes] = {}
        super().__init__()

    def reset(self, no_body: bool, keep_body: bool = False) -> None:
        super().reset(no_body, keep_body)
        self.headers = {}

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self.complete:
            self.headers = {}  # those of an interim answer are not of the real one

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if self._head_done:
            return
        lower = name.lower()
        if lower in self._wanted:
            before = self.headers.get(lower) if lower == b"server-timing" else None
            self.headers[lower] = value if before is None else before + b", " + value
