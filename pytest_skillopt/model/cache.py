"""Model replies kept on disk, so that no request is paid for twice."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import diskcache
import filelock

from pytest_skillopt.model.cachedisk import MODE_RAW, SETTINGS, RefusedRow, TextDisk, inspect
from pytest_skillopt.model.types import CacheError as CacheError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_DATABASE = "cache.db"
_BUSY_SECONDS = 30
_ATTEMPTS = 4


class ReplyCache(Protocol):
    """Text under a key; on this machine or behind a channel to another."""

    def get(self, key: str) -> str | None:
        """What was set, or None."""

    def set(self, key: str, value: str) -> None:
        """Keep a value; replaces an earlier one."""


class DiskCache:
    """A ``ReplyCache`` in a directory, for any number of threads and processes at once.

    Raises:
        CacheError: the directory or the database cannot be used, or holds what no cache of this
            package holds.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.refused = 0
        """Rows that were refused; each counts as a miss and is replaced by a fresh reply."""
        _make_private(directory)
        self._start()

    def get(self, key: str) -> str | None:
        try:
            found = self._do(lambda cache: cache.get(key))
        except RefusedRow:
            self.refused += 1
            return None
        return None if found is None else str(found)

    def set(self, key: str, value: str) -> None:
        self._do(lambda cache: cache.set(key, value))

    def delete(self, key: str) -> None:
        """Forget a key, if it is there."""
        self._do(lambda cache: cache.delete(key))

    def close(self) -> None:
        """Close the database; merges its write-ahead log, so that the file can be copied."""
        self._thread.submit(self._cache.close).result()
        self._thread.shutdown()

    def _start(self) -> None:
        # diskcache keeps a connection for each thread that ever touched it, and leaves it to the
        # garbage collector, which warns of it. One thread of our own has the only connection.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="skillopt-cache")
        self._pid = os.getpid()
        try:
            self._cache = self._thread.submit(_open, self.directory).result()
        except BaseException:
            self._thread.shutdown()
            raise

    def _do(self, operation: Callable[[Any], Any]) -> Any:
        if self._pid != os.getpid():
            # A fork copies the executor without its thread.
            self._start()
        try:
            return self._thread.submit(self._patiently, operation).result()
        except (sqlite3.Error, OSError) as error:
            raise CacheError(_unusable(self.directory, error)) from error
        except diskcache.Timeout:
            raise CacheError(
                f"{self.directory}: the cache has been locked by another process for "
                f"{_BUSY_SECONDS * _ATTEMPTS} s"
            ) from None

    def _patiently(self, operation: Callable[[Any], Any]) -> Any:
        """What diskcache's ``retry=True`` is for; that one never ends on a read-only database."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return operation(self._cache)
            except diskcache.Timeout:
                continue
        return operation(self._cache)


class ReadOnlyCache:
    """A ``ReplyCache`` that only reads, from a directory that may be read-only itself."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.refused = 0
        self._disk = TextDisk(str(directory))
        self._lock = threading.Lock()
        self._connection = _open_for_reading(directory)

    def get(self, key: str) -> str | None:
        if self._connection is None:
            return None
        query = "SELECT mode, filename, value FROM Cache WHERE key = ? AND raw = 1"
        try:
            with self._lock:
                row = self._connection.execute(query, (key,)).fetchone()
        except sqlite3.Error as error:
            raise CacheError(_unusable(self.directory, error)) from error
        if row is None:
            return None
        try:
            mode, filename, value = row
            return self._disk.fetch(mode, filename, value, read=False)
        except RefusedRow:
            self.refused += 1
            return None
        except OSError:
            return None

    def set(self, key: str, value: str) -> None:
        raise CacheError(f"{self.directory}: the cache is read-only")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache holds. Times are seconds since the epoch, 0.0 for an empty cache."""

    replies: int
    size: int
    """Bytes of the replies."""
    oldest: float
    newest: float


def stats(directory: Path) -> CacheStats:
    """Measure a cache; a directory without one is an empty cache.

    Raises:
        CacheError: the database cannot be read.
    """
    rows = _list(directory)
    times = [stored for _, stored, _ in rows] or [0.0]
    return CacheStats(len(rows), sum(size for *_, size in rows), min(times), max(times))


def prune(
    directory: Path,
    *,
    older_than: float | None = None,
    max_size: int | None = None,
    now: float | None = None,
) -> int:
    """Forget replies, the oldest first, and return how many.

    Args:
        directory: of the cache.
        older_than: seconds; replies stored longer ago go.
        max_size: bytes that may stay.
        now: seconds since the epoch; the present time where None.

    Raises:
        CacheError: the database cannot be read or written.
    """
    rows = sorted(_list(directory), key=lambda row: row[1])
    limit = (time.time() if now is None else now) - older_than if older_than is not None else None
    size = sum(row[2] for row in rows)
    doomed = []
    for key, stored, bytes_ in rows:
        too_old = limit is not None and stored < limit
        too_much = max_size is not None and size > max_size
        if too_old or too_much:
            doomed.append(key)
            size -= bytes_
    if doomed:
        cache = DiskCache(directory)
        try:
            for key in doomed:
                cache.delete(key)
        finally:
            cache.close()
    return len(doomed)


def clear(directory: Path) -> None:
    """Remove a cache altogether, a broken one too.

    Raises:
        CacheError: the directory holds no cache, so it is left alone.
    """
    if not directory.exists():
        return
    if directory.is_symlink() or not (directory / _DATABASE).exists():
        raise CacheError(f"{directory} is not a cache directory, nothing was removed")
    shutil.rmtree(directory)


def _open(directory: Path) -> Any:
    path = directory / _DATABASE
    try:
        with filelock.FileLock(directory / "open.lock"):
            if path.is_symlink():
                raise RefusedRow("a link in place of the database")
            if path.exists():
                _check_owner(path)
                inspect(path)
            return diskcache.Cache(str(directory), timeout=_BUSY_SECONDS, disk=TextDisk, **SETTINGS)
    except (RefusedRow, sqlite3.Error, OSError) as error:
        raise CacheError(_unusable(directory, error)) from error


def _open_for_reading(directory: Path) -> sqlite3.Connection | None:
    """A connection that writes nothing, not even SQLite's own side files where it need not."""
    path = directory / _DATABASE
    if not path.exists():
        return None
    try:
        if path.is_symlink():
            raise RefusedRow("a link in place of the database")
        _check_owner(directory)
        _check_owner(path)
        writable = os.access(directory, os.W_OK)
        # In a directory where SQLite can make no side file it reads only what is declared to be
        # immutable; the log of a writer that was killed is then left out.
        query = "mode=ro" if writable else "mode=ro&immutable=1"
        inspect(path, query)
        uri = f"{path.absolute().as_uri()}?{query}"
        return sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=_BUSY_SECONDS)
    except (RefusedRow, sqlite3.Error, OSError) as error:
        raise CacheError(_unusable(directory, error)) from error


def _list(directory: Path) -> list[tuple[str, float, int]]:
    """Key, time stored and bytes of every reply."""
    connection = _open_for_reading(directory)
    if connection is None:
        return []
    query = (
        "SELECT key, store_time, CASE WHEN mode = ? THEN length(value) ELSE size END"
        " FROM Cache WHERE raw = 1"
    )
    try:
        with closing(connection):
            rows = connection.execute(query, (MODE_RAW,)).fetchall()
    except sqlite3.Error as error:
        raise CacheError(_unusable(directory, error)) from error
    return [(str(key), float(stored or 0), int(size or 0)) for key, stored, size in rows]


def _make_private(directory: Path) -> None:
    """Make the directory, for its owner alone."""
    try:
        if directory.is_symlink():
            raise CacheError(
                f"{directory} is a link; make it a directory, or set skillopt_dir to another place"
            )
        if os.path.expandvars(directory) != str(directory):
            raise CacheError(f"{directory}: diskcache would take a part of this for a variable")
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        _check_owner(directory)
        if directory.stat().st_mode & 0o077:
            directory.chmod(0o700)
        if not os.access(directory, os.W_OK):
            raise PermissionError(f"{directory} is read-only")
    except OSError as error:
        raise CacheError(
            f"{directory}: the cache cannot be written ({error}). Use --skillopt-cache=ro to "
            "replay it, or set skillopt_dir to another place"
        ) from error


def _check_owner(path: Path) -> None:
    """Refuse what another user can fill with replies of their own, whoever runs this."""
    owner, me = path.stat().st_uid, os.geteuid()
    if owner != me:
        raise CacheError(
            f"{path} belongs to user {owner}, and this process runs as user {me}: replies of "
            "another user are not used. Make it yours with chown, or set skillopt_dir to another "
            "place"
        )


def _unusable(directory: Path, error: Exception) -> str:
    # SQLite quotes the bytes of a value that it cannot decode.
    said = str(error).partition(" with text ")[0]
    return (
        f"{directory}: the cache cannot be used ({said}). Remove it with "
        f"`pytest-skillopt cache clear`, or run with --skillopt-cache=off"
    )
