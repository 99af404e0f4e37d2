"""An optimizer that sees what every optimizer sees and answers with lines of the pool.

It reads which lines the document has and which the prompt lists as tried, and knows nothing of what
a line does. As a model in the trainer's form, and as a server that speaks Chat Completions.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import Completion, Usage
from real.pool import POOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OBEYS = 0.8
"""Chance of leaving out what the prompt lists as tried before."""


def offer(
    pool: Sequence[str], messages: Sequence[dict[str, Any]], luck: random.Random
) -> dict[str, Any]:
    """One or two lines that the document has not, as the edits of an answer."""
    prompt = "\n\n".join(message["content"] for message in messages)
    document = prompt.partition("[end of data")[0]
    lines = [line for line in pool if line not in document]
    if luck.random() < _OBEYS:
        lines = [line for line in lines if line not in prompt] or lines
    chosen = luck.sample(lines, min(len(lines), luck.choice((1, 2))))
    edits = [{"op": "append", "target": "", "content": f"- {line}"} for line in chosen]
    return {"reasoning": "what may help", "edits": edits}


class PoolOptimizer:
    """The optimizer model of a simulated training."""

    name = "simulated:pool"
    fingerprint = "pool"
    simulated = True

    def __init__(self, pool: Sequence[str], seed: int) -> None:
        self._pool = pool
        self._seed = seed
        self.calls = 0

    def complete(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        sample: str,
        **details: Any,
    ) -> Completion:
        self.calls += 1
        answer = offer(self._pool, messages, random.Random(f"{self._seed}/{sample}"))
        return Completion(json.dumps(answer), usage=Usage(calls=1))


@contextlib.contextmanager
def offering(suite: str, seed: int) -> Iterator[str]:
    """Yield the base URL of a loopback server that answers so, as long as the block lasts."""
    luck = random.Random(seed)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = json.dumps(offer(POOL[suite], body["messages"], luck))
            usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            answer = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"],
                      "choices": [choice], "usage": usage}  # fmt: skip
            sent = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
