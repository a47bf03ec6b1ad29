"""The controller's HTTP API without HTTP: method, path, body and headers in; status, headers and body out.

docs/controller.md describes it, docs/openapi.yaml too. The stub's shell and the simulator both answer with this code.
It decides nothing: what becomes of a run or a step is the controller's. Whatever a caller sends, the answer is typed: a
malformed request is 400 and names the field, the rule and the remedy; another tenant's run is as unknown as no run.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from stub_service.capacity import wishes
from stub_service.capacity.ports import Batch, BatchResult, RunWish, StepResult
from stub_service.capacity.runs import Opened, Refused, Run, remaining
from stub_service.capacity.wishes import BadRequest

STATUS_OF = {
    "served": 200,
    "coalesced": 200,
    "throttled": 429,
    "budget_exhausted": 429,
    "dependency_unavailable": 503,
    "expired": 504,
    "cancelled": 409,
    "needs_person": 409,
    "failed": 502,
}
_RUN_ID = re.compile(r"[!-~]{1,200}", re.ASCII)
_REQUEST_ID = _RUN_ID
Tasks = set[asyncio.Task[Any]]
_left_alone: Tasks = set()


class Controls(Protocol):
    """What this needs of a controller. dependencies: names of those that it knows. tenant_of: whose run it is; None:
    no such run. view: `deadline_ns`, `outcome` (None while the run is open), `remaining`, `steps`."""

    @property
    def dependencies(self) -> tuple[str, ...]: ...
    @property
    def runs(self) -> Mapping[str, Run]: ...
    async def open(self, tenant: str, wish: RunWish, request: str | None = None) -> Opened | Refused: ...
    async def submit(self, run_id: str, batch: Batch) -> BatchResult: ...
    def cancel(self, run_id: str, request: str | None = None) -> Any: ...
    def finish(self, run_id: str, request: str | None = None) -> Any: ...
    def view(self, run_id: str) -> dict[str, Any]: ...
    def tenant_of(self, run_id: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """What the caller is to be answered: status, headers beside the content type, and the body as JSON would say it."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


async def handle(
    controller: Controls,
    tenant: str,
    method: str,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    left_alone: Tasks = _left_alone,
) -> ApiAnswer:
    """Answers one request of an authenticated tenant, whatever it holds.

    left_alone: where batches that nobody waits for are kept while they run (a loop has only weak references to tasks).
    """
    parts = path.split("/")[1:]
    if parts[0] != "runs" or len(parts) > 3 or (len(parts) == 3 and parts[2] not in _ACTIONS):
        return _error(404, "not_found", f"there are /runs, /runs/<run> and /runs/<run>/{{{', '.join(_ACTIONS)}}}")
    wanted = "GET" if len(parts) == 2 else "POST"
    if method != wanted:
        answer = _error(405, "method_not_allowed", f"use {wanted}")
        return ApiAnswer(answer.status, answer.body, {"Allow": wanted})
    request = _request_id(headers)
    try:
        if len(parts) == 1:
            return await _open(controller, tenant, body, request)
        run = parts[1]
        if controller.tenant_of(run) != tenant:
            return _error(404, "unknown_run", "there is no such run of this tenant; POST /runs opens one")
        if len(parts) == 2:
            return ApiAnswer(200, _shown(controller.view(run)))
        if parts[2] == "steps":
            return await _submit(controller, run, body, request, left_alone)
        if parts[2] == "cancel":
            controller.cancel(run, request)
        else:
            controller.finish(run, request)
        return ApiAnswer(200, _shown(controller.view(run)))
    except BadRequest as bad:
        answer = _error(400, "bad_request", str(bad))
        return ApiAnswer(400, {**answer.body, "field": bad.field})


_ACTIONS = ("steps", "cancel", "finish")


async def _open(controller: Controls, tenant: str, body: bytes, request: str | None) -> ApiAnswer:
    wish = wishes.read_wish(body, controller.dependencies)
    if wish.parent_run is not None and controller.tenant_of(wish.parent_run) != tenant:
        return _error(404, "unknown_run", "parent_run: there is no such run of this tenant")
    opened = await controller.open(tenant, wish, request)
    if isinstance(opened, Refused):
        refusal: dict[str, Any] = {
            "outcome": opened.outcome, "reason": opened.reason, "user_status": opened.user_status
        }  # fmt: skip
        headers = {}
        if opened.retry_after_s is not None:
            refusal["retry_after_s"] = max(1, math.ceil(opened.retry_after_s))
            headers["Retry-After"] = str(refusal["retry_after_s"])
        return ApiAnswer(STATUS_OF.get(opened.outcome, 502), refusal, headers)
    told: dict[str, Any] = {
        "outcome": "served",
        "run": opened.run,
        "deadline_ns": opened.deadline_ns,
        "remaining": {
            "attempts": opened.attempts,
            "retry_tokens": opened.retry_tokens,
            "budgets": dict(opened.budgets),
        },
    }
    if opened.cost is not None:
        told["cost"] = dict(opened.cost)
    if opened.tree is not None:
        told["tree"] = dict(opened.tree)
    return ApiAnswer(201, told, {"Location": f"/runs/{opened.run}"})


async def _submit(controller: Controls, run: str, body: bytes, request: str | None, left_alone: Tasks) -> ApiAnswer:
    batch, wait = wishes.read_batch(body, request, controller.dependencies)
    if wait:
        return _told(controller, await controller.submit(run, batch))
    task = asyncio.get_running_loop().create_task(controller.submit(run, batch))
    left_alone.add(task)
    task.add_done_callback(left_alone.discard)
    await asyncio.sleep(0)  # its admission happens; what is refused whole is told now, not at the next poll
    if task.done():
        return _told(controller, task.result())
    poll = f"/runs/{run}"
    return ApiAnswer(202, {"outcome": "queued", "run": run, "batch": batch.batch, "poll": poll}, {"Location": poll})


def _told(controller: Controls, result: BatchResult) -> ApiAnswer:
    run = controller.runs.get(result.run)
    body: dict[str, Any] = {
        "outcome": result.outcome,
        "reason": result.reason,
        "user_status": result.user_status,
        "run": result.run,
        "batch": result.batch,
        "steps": [step_told(step) for step in result.steps],
    }
    if run is not None:  # it may have ended, and been forgotten, while its last batch was under way
        body["remaining"] = remaining(run)
    headers = {}
    if result.outcome == "throttled":
        stated = [step.retry_after_s for step in result.steps if step.retry_after_s is not None]
        wait_s = max(1, math.ceil(max(stated, default=1.0)))
        headers["Retry-After"] = str(wait_s)
        body["retry_after_s"] = wait_s
    return ApiAnswer(STATUS_OF.get(result.outcome, 502), body, headers)


def step_told(step: StepResult) -> dict[str, Any]:
    """A step's end as the API says it."""
    told: dict[str, Any] = {
        "step": step.step,
        "outcome": step.outcome,
        "reason": step.reason,
        "attempts": step.attempts,
        "user_status": step.user_status,
        "queue_wait_ms": step.queue_wait_ns / 1e6,
    }
    if step.retry_after_s is not None:
        told["retry_after_s"] = step.retry_after_s
    if "value" in step.body:
        told["value"] = step.body["value"]
    if "effect" in step.body:
        told["effect"] = step.body["effect"]
    if "usage" in step.body:
        told["usage"] = step.body["usage"]
    return told


def _shown(view: dict[str, Any]) -> dict[str, Any]:
    """A run as it is read. `outcome` is this request's own, as everywhere; the run's is `run_outcome`."""
    return {**view, "run_outcome": view.get("outcome"), "outcome": "served", "reason": None}


def _request_id(headers: Mapping[str, str]) -> str | None:
    """The id of the request that brought this, for the record; one that cannot be written down is none."""
    told = headers.get("Overload-Attempt") or headers.get("Overload-Call")
    return told if told is not None and _REQUEST_ID.fullmatch(told) else None


def _error(status: int, error: str, message: str) -> ApiAnswer:
    return ApiAnswer(status, {"error": error, "message": message})
