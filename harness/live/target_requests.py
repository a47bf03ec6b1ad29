"""The requests that a target file describes, as bytes: beside `Requests`, and called as it is.

Templates are filled with a call's values and with data drawn by seed, tenant and sequence. What does not change from
call to call is built once. A recorded call keeps its method and its path, mapped as `recorded` says. The credential is
in the request and nowhere else, and nothing that a value holds can end a header, add one, or leave its place.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import orjson

from harness.ledger.call import CALL_STEP, Call
from harness.live.requests import METHODS, WITH_BODY, Target, Unsendable, decimal_ms, encode_path
from harness.profile.model import Claims
from harness.target.model import Request, TargetFile
from harness.target.runs import SUBMIT, request_for, values_of
from harness.target.templates import Draws, Filled, RequestTemplate, names_of
from harness.workload.claims import claimed_by

_PATHS_KEPT = 4096


class TargetRequests:
    """The requests of one tenant. token: None sends no credential. queue_deadline_ns: told to the service, if given."""

    __slots__ = (
        "_base", "_call", "_claims", "_constant", "_downstream", "_draws", "_file", "_forms", "_id", "_paths",
        "_recorded", "_tenant", "_tools",
    )  # fmt: skip

    def __init__(
        self,
        tenant: str,
        index: int,
        target: Target,
        file: TargetFile,
        draws: Draws,
        token: str | None,
        queue_deadline_ns: int | None,
        claims: Claims | None = None,
    ) -> None:
        self._tenant = tenant
        self._id = f"{index}."
        self._base = target.base
        self._file = file
        self._draws = draws
        self._claims = claims
        self._downstream = file.evidence.dependencies is not None
        constant = [("Host", target.host), ("User-Agent", "overload"), ("Accept", "*/*")]
        if token is not None:
            constant.append((file.credentials.header, file.credentials.form.replace("{token}", token)))
        if queue_deadline_ns is not None:
            constant.append(("Overload-Queue-Deadline-Ms", decimal_ms(queue_deadline_ns)))
        self._constant = constant
        self._call = _Form(file.call, self)
        self._tools: dict[str, _Form] = {}
        self._forms: dict[str, _Form] = {}
        recorded = Request(method="POST", headers=file.recorded.headers, body=file.recorded.body)
        self._recorded = _Form(recorded, self)
        self._paths: dict[str, str] = {}

    def of(self, call: Call) -> bytes:
        """Raises Unsendable for what HTTP cannot carry."""
        if call.action is not None:
            return self._of_run(call, call.action)
        if call.method is not None or call.path is not None or call.body is not None:
            return self._of_recorded(call)
        form = self._call if call.tool is None else self._of_tool(call.tool)
        return form.bytes_of(call, {})

    def poll_of(self, call: Call) -> bytes:
        """Asks how the batch of a call stands."""
        return self._of_run(call, "read")

    def constant_lines(self, instead: frozenset[str]) -> str:
        """The headers of every request, without those that a template gives itself."""
        return "".join(f"{name}: {value}\r\n" for name, value in self._constant if name.lower() not in instead)

    def values(self, call: Call, drawn: bool) -> dict[str, Any]:
        """What a template may name."""
        values = self._draws.of(self._tenant, call.seq) if drawn else {}
        values |= {"call": call.id, "attempt": f"{call.id}.{call.attempt}", "tenant": self._tenant, "seq": call.seq}
        values |= {"round": call.round, "due_ms": call.due_ns // 1_000_000}
        return values

    def drawn_names(self) -> frozenset[str]:
        return frozenset(("uuid", *self._file.data))

    def path_of(self, path: str) -> str:
        return encode_path(self._base + path)

    def last_lines(self, call: Call) -> bytes:
        """Whose call it is, for the service's log and for ours."""
        own, seq = self._id, call.seq
        lines = (
            f"Overload-Call: {own}{seq}\r\nOverload-Attempt: {own}{seq}.{call.attempt}\r\n"
            f"Overload-Round: {call.round}\r\n"
        )
        if self._downstream and call.action is None:
            # For whoever calls a dependency on behalf of this call and passes these on (docs/controller.md).
            lines += (
                f"Overload-Run: {own}{seq}\r\nOverload-Step: {CALL_STEP}\r\n"
                f"Overload-Attempt-Number: {call.attempt}\r\nOverload-Owner: caller\r\nOverload-Layer: caller\r\n"
                f"Overload-Tenant: {quote(self._tenant, safe='')}\r\n"
            )
        if self._claims is not None:
            lines += f"{self._claims.header}: {quote(claimed_by(call, self._claims), safe='')}\r\n"
        return lines.encode()

    def _of_tool(self, tool: str) -> _Form:
        form = self._tools.get(tool)
        if form is None:
            path, question, query = self._file.call.path.partition("?")
            named = f"{path.rstrip('/')}/{quote(tool, safe='')}{question}{query}"
            form = self._tools[tool] = _Form(self._file.call.model_copy(update={"path": named}), self)
        return form

    def _of_recorded(self, call: Call) -> bytes:
        method = call.method or self._file.call.method
        if method not in METHODS:
            raise Unsendable("unsendable_method")
        if call.body is not None and method not in WITH_BODY:
            raise Unsendable("unsendable_body")
        return self._recorded.as_recorded(call, method, self._mapped(call.path))

    def _mapped(self, path: str | None) -> str:
        """A recorded path at this target."""
        if path is None:
            return self.path_of(self._file.call.path if "{" not in self._file.call.path else "/")
        found = self._paths.get(path)
        if found is None:
            how = self._file.recorded
            mapped, question, query = path.partition("?")
            if how.strip is not None and mapped.startswith(how.strip):
                mapped = mapped[len(how.strip) :]
            mapped = (how.prefix or "").rstrip("/") + "/" + mapped.lstrip("/")
            found = self.path_of(mapped + (question + query if how.query == "keep" else ""))
            if len(self._paths) >= _PATHS_KEPT:
                self._paths.clear()
            self._paths[path] = found
        return found

    def _of_run(self, call: Call, action: str) -> bytes:
        runs = self._file.runs
        assert runs is not None
        form = self._forms.get(action)
        if form is None:
            request = runs.read if action == "read" else request_for(runs, action)
            if request is None:
                raise Unsendable(f"no_{action}")
            form = self._forms[action] = _Form(request, self)
        asked = orjson.loads(call.body) if call.body else {}
        return form.bytes_of(call, values_of(runs, call.run_id, asked if action in ("open", SUBMIT, "read") else {}))


class _Form:
    """One template of one tenant, with the lines around it."""

    __slots__ = ("_drawn", "_first", "_lines", "_of", "_own_type", "_template", "_whole")

    def __init__(self, request: Request, of: TargetRequests) -> None:
        self._of = of
        self._template = RequestTemplate(request)
        names = names_of(request)
        own = frozenset(name.lower() for name in request.headers)
        self._own_type = "content-type" in own
        self._lines = of.constant_lines(own)
        self._drawn = bool(names & of.drawn_names())
        self._whole: tuple[bytes, bytes] | None = None
        if not names:
            self._whole = self._parts(self._template.fill({}))

    def bytes_of(self, call: Call, more: dict[str, Any]) -> bytes:
        whole = self._whole
        if whole is None:
            whole = self._parts(self._filled(call, more))
        return b"%b%b%b" % (whole[0], self._of.last_lines(call), whole[1])

    def as_recorded(self, call: Call, method: str, path: str) -> bytes:
        """The headers and the body of this template, with another method and path."""
        filled = self._filled(call, {})
        body = call.body if call.body is not None else filled.body
        headers = filled.headers
        if method not in WITH_BODY:
            body = None
            headers = tuple(one for one in headers if self._own_type or one[0] != "Content-Type")
        head, body = self._assembled(method, path, headers, body)
        return b"%b%b%b" % (head, self._of.last_lines(call), body)

    def _filled(self, call: Call, more: dict[str, Any]) -> Filled:
        values = {} if self._whole is not None else self._of.values(call, self._drawn) | more
        try:
            return self._template.fill(values)
        except (TypeError, ValueError):  # half a character, from a recording
            raise Unsendable("unsendable_value") from None

    def _parts(self, filled: Filled) -> tuple[bytes, bytes]:
        """What comes before the lines of the call, and what comes after them."""
        return self._assembled(filled.method, self._of.path_of(filled.path), filled.headers, filled.body)

    def _assembled(
        self, method: str, path: str, headers: tuple[tuple[str, str], ...], body: bytes | None
    ) -> tuple[bytes, bytes]:
        lines = [f"{method} {path} HTTP/1.1\r\n", self._lines, *(f"{name}: {value}\r\n" for name, value in headers)]
        if body is not None or method in WITH_BODY:
            lines.append(f"Content-Length: {len(body or b'')}\r\n")
        head = "".join(lines).encode("utf-8", "replace")
        return head, b"\r\n" + (body or b"")
