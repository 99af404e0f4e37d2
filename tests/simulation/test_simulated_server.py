"""The loopback server speaks Chat Completions well enough for the official client."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import openai
import pytest
import simulation
from simulation import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMPT = "Extract `total` as JSON.\n\nInvoice no: 7\nDate: 3 May 2025\nTotal EUR 12.00"
MESSAGES: list[Any] = [
    {"role": "system", "content": "Amounts are plain numbers."},
    {"role": "user", "content": PROMPT},
]


@pytest.fixture
def client() -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=serve(), api_key="none", max_retries=0) as client:
        yield client


def post(path: str, body: bytes) -> tuple[int, Any]:
    connection = HTTPConnection(urlsplit(serve()).netloc)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_one_server_a_process() -> None:
    assert serve() == serve()
    assert urlsplit(serve()).hostname == "127.0.0.1"


def test_the_official_client_is_answered_with_usage(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="sim-steady", messages=MESSAGES, seed=1)
    assert '"total": 12.0' in (reply.choices[0].message.content or "")
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.prompt_tokens > 10


def test_a_connection_is_kept_for_the_next_request() -> None:
    connection = HTTPConnection(urlsplit(serve()).netloc)
    body = json.dumps({"model": "sim", "messages": MESSAGES})
    sockets = set()
    for _ in range(3):
        connection.request("POST", "/v1/chat/completions", body)
        assert connection.getresponse().read()
        sockets.add(connection.sock)
    connection.close()
    assert len(sockets) == 1
    assert None not in sockets


def test_the_same_request_gets_the_same_reply_and_another_seed_another_draw() -> None:
    def draw(seed: int) -> Any:
        body = {"model": "sim", "messages": MESSAGES, "seed": seed}
        return post("/v1/chat/completions", json.dumps(body).encode())

    assert draw(3) == draw(3)
    assert len({json.dumps(draw(seed)) for seed in range(40)}) > 1


def test_many_threads_are_served_at_once(client: openai.OpenAI) -> None:
    def ask(seed: int) -> str | None:
        reply = client.chat.completions.create(model="sim", messages=MESSAGES, seed=seed)
        return reply.choices[0].message.content

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, range(64)))
    assert together == [ask(seed) for seed in range(64)]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/chat/completions", b"{", 400, "Expecting property name"),
        ("/v1/chat/completions", b"[]", 400, "list of objects"),
        ("/v1/chat/completions", b'{"model": "sim", "messages": []}', 400, "non-empty"),
        ("/v1/chat/completions", b'{"model": "gpt", "messages": [{}]}', 404, "no offline model"),
        ("/v1/embeddings", b"{}", 404, "/v1/embeddings"),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(
    path: str, body: bytes, status: int, words: str
) -> None:
    code, reply = post(path, body)
    assert code == status
    assert words in reply["error"]["message"]


def test_importing_the_package_starts_and_loads_nothing() -> None:
    code = (
        "import sys, threading, simulation\n"
        "loaded = {'http.server', 'openai', 'simulation.server'}\n"
        "assert not loaded & set(sys.modules), loaded & set(sys.modules)\n"
        "assert threading.active_count() == 1\n"
    )
    folder = Path(simulation.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
