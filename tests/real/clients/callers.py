"""Real clients, each as its own documentation would have it used. Run in the clients' own virtual environment:

    python callers.py CLIENT    with, on standard input, a JSON object: scenario -> {"url": ..., "calls": n}

Every scenario runs in threads of its own, so that the long pauses of one do not hold the others up. For each that ends
it prints one JSON line: the scenario, and what became of its calls. Imports nothing of the project.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
import time
import uuid

MESSAGES = [{"role": "user", "content": "How are you?"}]


def openai_default(url: str, number: int) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="stand-in")
    client.chat.completions.create(model="stand-in", messages=MESSAGES, user=str(number))


def openai_with_key(url: str, number: int) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="stand-in")
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    client.chat.completions.create(model="stand-in", messages=MESSAGES, user=str(number), extra_headers=headers)


def anthropic_default(url: str, number: int) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="stand-in")
    client.messages.create(model="stand-in", max_tokens=100, messages=MESSAGES, metadata={"user_id": str(number)})


def tenacity_bare(url: str, number: int) -> None:
    """The decorator without arguments."""
    import httpx
    import tenacity

    client = httpx.Client(base_url=url)

    @tenacity.retry
    def call() -> None:
        client.post("/service", json={"number": number}).raise_for_status()

    call()


def tenacity_backoff(url: str, number: int) -> None:
    """With backoff and an end, as its documentation goes on to say."""
    import httpx
    import tenacity

    client = httpx.Client(base_url=url)
    wait = tenacity.wait_random_exponential(multiplier=1, max=10)

    @tenacity.retry(wait=wait, stop=tenacity.stop_after_attempt(3), reraise=True)
    def call() -> None:
        client.post("/service", json={"number": number}).raise_for_status()

    call()


def requests_plain(url: str, number: int) -> None:
    import requests

    requests.post(f"{url}/service", json={"number": number}, timeout=30).raise_for_status()


def requests_retry(url: str, number: int) -> None:
    _requests_session(0.5).post(f"{url}/service", json={"number": number}, timeout=30).raise_for_status()


def requests_retry_bare(url: str, number: int) -> None:
    """Without a backoff factor, which is the default."""
    _requests_session(0).post(f"{url}/service", json={"number": number}, timeout=30).raise_for_status()


def _requests_session(factor: float):
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util.retry import Retry

    statuses = (429, 500, 502, 503, 504)
    retry = Retry(total=2, status_forcelist=statuses, allowed_methods=None, backoff_factor=factor)
    session = requests.Session()
    session.mount("http://", HTTPAdapter(max_retries=retry))
    return session


def aiohttp_plain(url: str, number: int) -> None:
    import aiohttp

    async def call() -> None:
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.post(f"{url}/service", json={"number": number}) as answer,
        ):
            await answer.read()

    asyncio.run(call())


_boto = threading.Lock()
_boto_session: list = []


def botocore_default(url: str, number: int) -> None:
    import botocore.session

    with _boto:  # making a client is not safe in threads; using one is
        if not _boto_session:
            _boto_session.append(botocore.session.Session())
        client = _boto_session[0].create_client(
            "dynamodb", endpoint_url=url, region_name="us-east-1", aws_access_key_id="STANDIN",
            aws_secret_access_key="stand-in",
        )  # fmt: skip
    client.update_item(
        TableName="t", Key={"k": {"S": str(number)}}, UpdateExpression="ADD n :o",
        ExpressionAttributeValues={":o": {"N": "1"}},
    )  # fmt: skip


_tasks: list = []


def _celery():
    """A worker in a thread of this process, with a broker in memory, and a task for each SDK below it."""
    if _tasks:
        return _tasks
    from celery import Celery
    from celery.contrib.testing.worker import start_worker

    app = Celery("callers", broker="memory://", backend="cache+memory://")

    @app.task(bind=True, max_retries=2)
    def over_openai(self, url: str, number: int) -> None:
        try:
            openai_default(url, number)
        except Exception as error:
            raise self.retry(countdown=0.2, exc=RuntimeError(type(error).__name__)) from None

    @app.task(bind=True, max_retries=2)
    def over_requests(self, url: str, number: int) -> None:
        try:
            _requests_session(0.15).post(f"{url}/service", json={"number": number}).raise_for_status()
        except Exception as error:
            raise self.retry(countdown=1.5, exc=RuntimeError(type(error).__name__)) from None

    worker = start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, loglevel="CRITICAL")
    worker.__enter__()
    _tasks.extend((over_openai, over_requests, worker))  # the worker ends when nobody holds it
    return _tasks


def celery_over_openai(url: str, number: int) -> None:
    _celery()[0].delay(url, number).get(timeout=60)


def celery_over_requests(url: str, number: int) -> None:
    _celery()[1].delay(url, number).get(timeout=60)


MODULES = {
    "openai": ("openai", "openai.resources.chat"), "anthropic": ("anthropic", "anthropic.resources.messages"),
    "tenacity": ("httpx", "tenacity"), "requests": ("requests",), "aiohttp": ("aiohttp",),
    "botocore": ("botocore.session", "botocore.client"), "celery": ("celery", "openai", "requests"),
}  # fmt: skip
CLIENTS = {
    "openai": openai_default,
    "openai_with_key": openai_with_key,
    "anthropic": anthropic_default,
    "tenacity_bare": tenacity_bare,
    "tenacity_backoff": tenacity_backoff,
    "requests": requests_plain,
    "requests_retry": requests_retry,
    "requests_retry_bare": requests_retry_bare,
    "aiohttp": aiohttp_plain,
    "botocore": botocore_default,
    "celery_over_openai": celery_over_openai,
    "celery_over_requests": celery_over_requests,
}


def live_through(client: str, scenario: str, url: str, calls: int) -> None:
    said: list[str] = []

    def one(number: int) -> None:
        try:
            CLIENTS[client](url, number)
            said.append("served")
        except Exception as error:
            said.append(type(error).__name__)

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps({"scenario": scenario, "said": said}) + "\n")  # in one piece: threads share it
    sys.stdout.flush()


def main() -> None:
    client, wanted = sys.argv[1], json.load(sys.stdin)
    for module in MODULES.get(client.partition("_")[0], ()):
        importlib.import_module(module)  # before the clock runs
    if client.startswith("celery"):
        _celery()  # its worker wants to be started from the main thread
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threads = [
        threading.Thread(target=live_through, args=(client, name, told["url"], told["calls"]), daemon=True)
        for name, told in wanted.items()
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.03)  # all at once they would wait for each other, and a retry at once would look like a pause
    for thread in threads:
        thread.join()
    # A worker in a thread would keep the process for a while.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
