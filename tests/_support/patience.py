"""One patience for all tests: they wait for events, and give up only when one never comes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0 * float(os.environ.get("SKILLOPT_TEST_PATIENCE", "10"))
"""Seconds until something that has to happen counts as never happening, on a machine that is ten
times overloaded; no test that passes takes so long."""
_LOOK = 0.005


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], object], what: str = "it has not happened") -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(_LOOK)
