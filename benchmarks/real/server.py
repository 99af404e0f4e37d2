"""llama.cpp's server on the CPU, in a process of its own: ``python server.py FILE.gguf PORT``."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOTS = 20
"""Choices that are decoded together: the more, the less each costs."""
CONTEXT = 4096
"""Tokens of a conversation: a prompt of the optimizer has about 3,000."""


@contextlib.contextmanager
def serving(model: Path) -> Iterator[str]:
    """Yield the base URL of a server for the model, as long as the block lasts.

    Raises:
        RuntimeError: the server ended before it was ready.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, str(model), str(port)]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as server:
        said: list[bytes] = []
        threading.Thread(target=lambda: said.extend(server.stderr or ()), daemon=True).start()
        try:
            while not _ready(url):
                if server.poll() is not None:
                    raise RuntimeError(b"".join(said[-20:]).decode() or "the server ended")
                time.sleep(0.2)
            yield url
        finally:
            server.kill()


def post(url: str, path: str, body: dict[str, Any]) -> Any:
    """Return the server's answer as JSON."""
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=900) as answer:
        return json.load(answer)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=60):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False


def _serve(model: str, port: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = SLOTS
    params.n_ctx = CONTEXT * SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    parent = os.getppid()
    while server and os.getppid() == parent:
        time.sleep(1)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
