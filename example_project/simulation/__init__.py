"""The simulated models of this project: a Chat Completions server in this process.

What they answer is computed from the prompt by simple rules about supplier invoices (``README.md``
beside this file); it needs no network and no key, and says nothing about a real model.
"""

from __future__ import annotations

import os
import threading

__all__ = ["serve"]

_lock = threading.Lock()
_urls: dict[int, str] = {}


def serve() -> str:
    """Base URL of this process's server, which the first call starts.

    A forked child does not inherit the threads of its parent and gets a server of its own.
    """
    with _lock:
        pid = os.getpid()
        if pid not in _urls:
            from simulation.server import start

            _urls[pid] = start()
        return _urls[pid]
