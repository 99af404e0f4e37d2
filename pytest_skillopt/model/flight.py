"""One paid call when several ask for the same thing at once."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import filelock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_POLL_SECONDS = 0.02


class SingleFlight:
    """Lets one caller at a time work on a key, over all threads and processes of a machine.

    A lock file for each key, held through the operating system, so that it is free again when its
    holder is killed. (``diskcache.Lock`` is a row in the database: it outlives its holder.)

    Args:
        directory: where the lock files lie; None: threads of this process alone.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._here: dict[str, _Waiting] = {}
        self._lock = threading.Lock()

    @contextmanager
    def claim(self, key: str) -> Iterator[None]:
        """Wait until nobody else works on ``key``; look into the cache again once inside."""
        with self._one_thread(key):
            if self._directory is None:
                yield
                return
            with self._one_process(self._directory / f"{key}.lock"):
                yield

    @contextmanager
    def _one_thread(self, key: str) -> Iterator[None]:
        with self._lock:
            waiting = self._here.setdefault(key, _Waiting())
            waiting.count += 1
        try:
            with waiting.turn:
                yield
        finally:
            with self._lock:
                waiting.count -= 1
                if not waiting.count:
                    del self._here[key]

    @contextmanager
    def _one_process(self, path: Path) -> Iterator[None]:
        lock = _acquire(path)
        try:
            yield
        finally:
            if lock is not None:
                # While it is held, so that no other holder's file is removed. Who waits on the
                # removed file may come in beside who makes a new one; both then find the reply in
                # the cache, unless the call failed, when two may try again at once.
                with suppress(OSError):
                    path.unlink()
                lock.release()


def _acquire(path: Path) -> filelock.BaseFileLock | None:
    """The lock, once it is ours; None where the file system has no locks.

    Then two processes may pay for the same reply, which is no reason to pay for none.
    """
    lock = filelock.FileLock(path)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        lock.acquire(poll_interval=_POLL_SECONDS)
    except (OSError, NotImplementedError):
        return None
    return lock


class _Waiting:
    """Threads that want one key."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.count = 0
