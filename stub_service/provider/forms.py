"""How an answer is written for each kind of client: bodies, error bodies and streams of the interfaces stood in for.

    openai      POST /v1/chat/completions (plain and as server-sent events), POST /v1/responses (plain), GET /v1/models
    anthropic   POST /v1/messages (plain and as server-sent events)
    aws         POST / with X-Amz-Target (JSON 1.0, as DynamoDB and its like), error types that botocore understands
    service     any method on /service, and below it

Pure: it is given ids and instants. Only as much of each interface as the official clients need to be content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from stub_service.provider.scenario import Answer

OPENAI, ANTHROPIC, AWS, SERVICE = "openai", "anthropic", "aws", "service"
FORMS = (SERVICE, OPENAI, ANTHROPIC, AWS)

CHAT, RESPONSES, MODELS, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/models", "/v1/messages"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
REPEATABLE_METHODS = ("PUT", "DELETE")
_AWS_READS = ("Get", "BatchGet", "List", "Describe", "Query", "Scan", "TransactGet")
_AWS_REPEATABLE = ("Put", "Delete")
BODY_TOKENS = ("ClientRequestToken", "ClientToken", "clientToken", "IdempotencyToken", "idempotency_key")
"""Members of a JSON body that make a repeat harmless, as AWS and others have them."""
_WORDS = ("All ", "is ", "well.")
_MODEL = "stand-in"

JSON, AWS_JSON, EVENTS = "application/json", "application/x-amz-json-1.0", "text/event-stream"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request is: its form; the operation where the path does not say it (AWS); whether it wants a stream.

    nature: `read`, `repeatable` (a write that may be repeated without harm) or `write`. token: it carries one of
    BODY_TOKENS. model, tokens: named in the body, and the body's length in tokens, roughly.
    """

    form: str
    path: str
    operation: str = ""
    stream: bool = False
    nature: str = "write"
    token: bool = False
    model: str = _MODEL
    tokens: int = 1


def form_of(method: str, path: str, target: str | None, only: str | None = None) -> str | None:
    """The form that serves this request, or None. target: X-Amz-Target. only: no other form is served."""
    form = None
    if path == "/service" or path.startswith("/service/"):
        form = SERVICE
    elif (method, path) in (("POST", CHAT), ("POST", RESPONSES), ("GET", MODELS)):
        form = OPENAI
    elif (method, path) == ("POST", MESSAGES):
        form = ANTHROPIC
    elif method == "POST" and path == "/" and target:
        form = AWS
    return form if only is None or form == only else None


def read_body(form: str, method: str, path: str, target: str | None, body: bytes, length: int) -> Asked:
    """body: what was kept of it; one that was too long to keep is as good as none. length: of all of it, in bytes."""
    operation = (target or "").rpartition(".")[2][:80] if form == AWS else ""
    try:
        document = orjson.loads(body) if body else {}
    except orjson.JSONDecodeError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    model = document.get("model")
    return Asked(
        form,
        path,
        operation,
        stream=document.get("stream") is True and path in (CHAT, MESSAGES),
        nature=_nature(form, method, operation),
        token=any(isinstance(document.get(name), str) and document[name] for name in BODY_TOKENS),
        model=model[:100] if isinstance(model, str) and model.isprintable() else _MODEL,
        tokens=max(1, length // 4),
    )


def _nature(form: str, method: str, operation: str) -> str:
    if form == AWS:
        return "read" if operation.startswith(_AWS_READS) else (
            "repeatable" if operation.startswith(_AWS_REPEATABLE) else "write"
        )  # fmt: skip
    return "read" if method in SAFE_METHODS else "repeatable" if method in REPEATABLE_METHODS else "write"


def success(asked: Asked, name: str, epoch_s: int, effect: int | None, replayed: bool) -> dict[str, Any]:
    """The body of a success. name: a unique one of this answer."""
    used = len(_WORDS)
    if asked.path == MODELS:
        return {"object": "list", "data": [{"id": _MODEL, "object": "model", "created": 0, "owned_by": "overload"}]}
    if asked.path == CHAT:
        message = {"role": "assistant", "content": "".join(_WORDS), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return _chat(asked, name, epoch_s, "chat.completion", [choice]) | {"usage": _usage(asked, used)}
    if asked.path == RESPONSES:
        return _response(asked, name, epoch_s, used)
    if asked.form == ANTHROPIC:
        return _message(asked, name, [{"type": "text", "text": "".join(_WORDS)}], "end_turn", used)
    if asked.form == AWS:
        return {}
    return {"outcome": "served"} | ({"effect": effect, "replayed": replayed} if effect is not None else {})


def stream(asked: Asked, name: str, epoch_s: int) -> list[bytes]:
    """The events of a streamed success, in order."""
    return _message_events(asked, name) if asked.form == ANTHROPIC else _chat_events(asked, name, epoch_s)


def error(form: str, answer: Answer) -> dict[str, Any]:
    """The body of an error, in the words of the interface."""
    message = f"the stand-in answers {answer.status}, as its scenario says"
    wait = {"retry_after_s": answer.retry_after_s} if answer.retry_after_s is not None else {}
    code, kind = answer.code or _CODES.get(answer.status, "server_error"), _TYPES.get(answer.status, "api_error")
    if form == OPENAI:
        return {"error": {"message": message, "type": code, "param": None, "code": code, **wait}}
    if form == ANTHROPIC:
        return {"type": "error", "error": {"type": kind, "message": message, **wait}}
    if form == AWS:
        return {"__type": f"com.amazonaws#{_AWS_TYPES.get(answer.status, 'InternalServerError')}", "message": message}
    outcome = "throttled" if answer.kind == "refused" else "failed"
    return {"outcome": outcome, "reason": answer.code or f"scenario_{answer.status}", "message": message, **wait}


def content_type(form: str) -> str:
    return AWS_JSON if form == AWS else JSON


def variables(url: str, only: str | None = None) -> Mapping[str, str]:
    """Environment variables that lead a client here. The credentials are no secrets: they name no one."""
    chosen: dict[str, dict[str, str]] = {
        SERVICE: {"OVERLOAD_URL": f"{url}/service"},
        OPENAI: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "stand-in"},
        ANTHROPIC: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "stand-in"},
        AWS: {
            "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "STANDIN", "AWS_SECRET_ACCESS_KEY": "stand-in",
            "AWS_DEFAULT_REGION": "us-east-1",
        },
    }  # fmt: skip
    return {name: value for form in FORMS if only in (None, form) for name, value in chosen[form].items()}


_CODES = {400: "invalid_request_error", 401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}
_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error",
    503: "overloaded_error",
}  # fmt: skip
_AWS_TYPES = {
    400: "ValidationException", 401: "UnrecognizedClientException", 429: "ThrottlingException",
    503: "ServiceUnavailable",
}  # fmt: skip


def _usage(asked: Asked, used: int) -> dict[str, int]:
    return {"prompt_tokens": asked.tokens, "completion_tokens": used, "total_tokens": asked.tokens + used}


def _chat(asked: Asked, name: str, epoch_s: int, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": f"chatcmpl-{name}", "object": kind, "created": epoch_s, "model": asked.model, "choices": choices}


def _response(asked: Asked, name: str, epoch_s: int, used: int) -> dict[str, Any]:
    text = {"type": "output_text", "text": "".join(_WORDS), "annotations": []}
    message = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed", "content": [text]}
    usage = {
        "input_tokens": asked.tokens, "output_tokens": used, "total_tokens": asked.tokens + used,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    return {
        "id": f"resp_{name}", "object": "response", "created_at": epoch_s, "status": "completed", "error": None,
        "model": asked.model, "output": [message], "usage": usage, "parallel_tool_calls": True, "tools": [],
        "tool_choice": "auto", "instructions": None, "metadata": {}, "incomplete_details": None,
        "temperature": 1.0, "top_p": 1.0,
    }  # fmt: skip


def _chat_events(asked: Asked, name: str, epoch_s: int) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": word} for word in _WORDS)]
    chunks: list[list[dict[str, Any]]] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    chunks.append([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    told = [_chat(asked, name, epoch_s, "chat.completion.chunk", choices) for choices in chunks]
    told.append(_chat(asked, name, epoch_s, "chat.completion.chunk", []) | {"usage": _usage(asked, len(_WORDS))})
    return [b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in told] + [b"data: [DONE]\n\n"]


def _message(
    asked: Asked, name: str, content: list[dict[str, Any]], stop: str | None, used: int
) -> dict[str, Any]:  # fmt: skip
    return {
        "id": f"msg_{name}", "type": "message", "role": "assistant", "model": asked.model, "content": content,
        "stop_reason": stop, "stop_sequence": None, "usage": {"input_tokens": asked.tokens, "output_tokens": used},
    }  # fmt: skip


def _message_events(asked: Asked, name: str) -> list[bytes]:
    deltas = [{"type": "text_delta", "text": word} for word in _WORDS]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": _message(asked, name, [], None, 0)},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": len(_WORDS)},
        },
        {"type": "message_stop"},
    ]  # fmt: skip
    return [f"event: {event['type']}\n".encode() + b"data: " + orjson.dumps(event) + b"\n\n" for event in events]
