"""The simulated models of this project, served from this process (``README.md`` beside this file).

They answer by simple rules about supplier invoices and say nothing about a real model.
"""

from __future__ import annotations

import os
import threading

_lock = threading.Lock()
_urls: dict[int, str] = {}


def serve() -> str:
    """Return the base URL of this process's server, which the first call starts."""
    with _lock:
        # A forked child does not inherit the threads of its parent and needs a server of its own.
        if os.getpid() not in _urls:
            from simulation.server import start

            _urls[os.getpid()] = start()
        return _urls[os.getpid()]
