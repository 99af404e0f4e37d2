"""Temporary folders that the next process removes if the one that made them is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_NEW_SECONDS = 10.0
"""Age below which a folder may still be one that its process has not locked yet."""
_SWEPT: set[str] = set()
"""Where this process has looked already."""


class TemporaryFolder:
    """A folder of this process alone, held by a lock that ends with it.

    Args:
        prefix: of its name. Those of that prefix whose processes have ended are removed first.
    """

    def __init__(self, prefix: str) -> None:
        beside = str(Path(tempfile.gettempdir()) / prefix)
        left = () if beside in _SWEPT else Path(tempfile.gettempdir()).glob(f"{prefix}*")
        _SWEPT.add(beside)
        for folder in left:
            with contextlib.suppress(OSError):
                about = folder.lstat()
                if about.st_uid == os.getuid() and time.time() - about.st_mtime > _NEW_SECONDS:
                    held = _lock(folder)
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(held)
        self.path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        self._held = _lock(self.path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._held)


def _lock(folder: Path) -> int:
    """Hold a folder until this process ends, however it ends.

    Raises:
        OSError: another one holds it.
    """
    held = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held
