"""Files that several trainings share: changed under a lock, replaced in one piece."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE = 30.0
"""Seconds to wait for another process that changes the file."""


def change(path: Path, make: Callable[[str | None], str]) -> None:
    """Replace a text file by what ``make`` makes of its content, None where there is no file.

    Two processes never lose each other's change, and a kill leaves the old file or the new one.

    Raises:
        OSError: it cannot be written, or another process has held it for half a minute.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock"), timeout=_PATIENCE):
        try:
            before = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            before = None
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(make(before))
            Path(scratch).replace(path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
