"""Model replies kept on disk, so that no request is paid for twice.

diskcache keeps them. A cache may come from elsewhere, restored by a CI service or copied from a
colleague, and diskcache unpickles what a row marks as pickled (CVE-2025-69872), opens and removes
the files that rows name, and obeys the settings and triggers that the database holds. So a database
is looked at before it is opened, and its disk knows one kind of row: a plain text in the database.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import WeakValueDictionary

import diskcache
import filelock

from pytest_skillopt.model.types import CacheError, Completion, ToolCall, Usage
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

CacheMode = Literal["rw", "ro", "off", "refresh"]
FORMAT = 1
"""Version of the key and of the kept form."""
_DATABASE = "cache.db"
_BUSY_SECONDS = 120
_SETTINGS: dict[str, Any] = {
    "eviction_policy": "none",
    "size_limit": 2**62,
    "cull_limit": 0,
    "sqlite_mmap_size": 0,
    "sqlite_trusted_schema": 0,
    "disk_pickle_protocol": 4,
}
"""Of diskcache, where its defaults are not meant or not the same everywhere."""
_COUNTERS = frozenset({"count", "size", "hits", "misses"})


class ReplyCache(Protocol):
    """Text under a key; on this machine or behind a channel to another."""

    def get(self, key: str) -> str | None:
        """What was set, or None."""

    def set(self, key: str, value: str) -> None:
        """Keep a value; replaces an earlier one."""


class RefusedDatabase(Exception):
    """No cache of this package looks like that."""


class TextDisk(diskcache.Disk):  # type: ignore[misc]
    """Keeps text under text keys inside the database, and touches no file."""

    def put(self, key: object) -> tuple[object, bool]:
        return key, True

    def get(self, key: object, raw: object) -> object:
        raise NotImplementedError("diskcache unpickles keys; nobody here lists them with it")

    def store(self, value: object, read: bool, key: object = None) -> Any:
        return 0, diskcache.core.MODE_RAW, None, value

    def fetch(self, mode: object, filename: object, value: object, read: bool) -> str:
        return _fetch(mode, filename, value)

    def remove(self, file_path: object) -> None:
        """No row of ours has a file."""


def _fetch(mode: object, filename: object, value: object) -> str:
    """The text of a row; that of a row which is no plain text in the database is not looked at."""
    plain = mode == diskcache.core.MODE_RAW and filename is None and isinstance(value, str)
    return str(value) if plain else ""


class DiskCache:
    """A ``ReplyCache`` in a directory, for any number of threads and processes at once.

    Raises:
        CacheError: the directory or the database cannot be used, or holds what no cache of this
            package holds.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        _make_private(directory)
        self._start()

    def get(self, key: str) -> str | None:
        found: str | None = self._do(lambda cache: cache.get(key))
        return found

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
        with _told(self.directory):
            return self._thread.submit(operation, self._cache).result()


class ReadOnlyCache:
    """A ``ReplyCache`` that only reads, from a directory that may be read-only itself."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._connection = _open_for_reading(directory)

    def get(self, key: str) -> str | None:
        query = "SELECT mode, filename, value FROM Cache WHERE key = ? AND raw = 1"
        return next((_fetch(*row) for row in self.select(query, key)), None)

    def set(self, key: str, value: str) -> None:
        raise CacheError(f"{self.directory}: the cache is read-only")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def select(self, query: str, *values: str) -> list[Any]:
        """The rows of a query; none where there is no cache."""
        if self._connection is None:
            return []
        with self._lock, _told(self.directory):
            return self._connection.execute(query, values).fetchall()


class Replies:
    """What has been replied before, under one of the modes of ``skillopt_cache``.

    ``rw`` finds and keeps; ``ro`` only finds; ``off`` does neither; ``refresh`` keeps, and finds
    only what was kept since this object was made.

    Args:
        mode: one of the four.
        cache: where replies lie; None with ``off``.
    """

    def __init__(self, mode: CacheMode, cache: ReplyCache | None = None) -> None:
        self.mode: CacheMode = mode
        self.cache = cache if mode != "off" else None
        """Where replies lie; None with ``off``."""
        self._notes: dict[str, None] = {}
        self._refused = 0
        self._since = time.time() if mode == "refresh" else 0.0
        self._claims: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._lock = threading.Lock()

    @classmethod
    def open(cls, directory: Path, mode: CacheMode) -> Replies:
        """The replies in ``directory``, which is made unless the mode only reads.

        Raises:
            CacheError: the directory or its database cannot be used.
        """
        if mode == "off":
            return cls(mode)
        return cls(mode, ReadOnlyCache(directory) if mode == "ro" else DiskCache(directory))

    @property
    def notes(self) -> list[str]:
        """What a reader of the report must know."""
        words = f"{self._refused} rows of {self.place} were refused: this package has not written "
        return [*self._notes, *([f"{words}them"] if self._refused else [])]

    @property
    def place(self) -> str:
        """Where replies are looked for, for messages."""
        return str(getattr(self.cache, "directory", "the cache"))

    def find(self, key: str) -> Completion | None:
        """The kept reply, with a usage that says it was free.

        Raises:
            CacheError: the cache cannot be read.
        """
        text = self.cache.get(key) if self.cache is not None else None
        if text is None:
            return None
        try:
            stored, completion = _from_text(text)
        except (ValueError, TypeError, KeyError, RecursionError):
            self._refused += 1
            return None
        return completion if stored >= self._since else None

    def keep(self, key: str, completion: Completion) -> None:
        """Keep a paid reply. A cache that fails here must not cost the reply: it leaves a note.

        One that holds a secret is not written anywhere: redacted, it would be another reply when it
        is found again.
        """
        if self.cache is None or self.mode == "ro":
            return
        texts = (completion.text, *(call.arguments for call in completion.tool_calls))
        if any(redact(text) != text for text in texts):
            self._notes.setdefault(
                "replies that hold secrets are not kept in the cache, they are paid anew"
            )
            return
        try:
            self.cache.set(key, _to_text(completion))
        except Exception as error:
            self._notes.setdefault(f"a reply could not be kept: {error}")

    def claim(self, key: str) -> AbstractContextManager[Any]:
        """Held while a reply is paid for, so that a thread which asks the same waits for it."""
        if self.cache is None:
            return nullcontext()
        with self._lock:
            return self._claims.setdefault(key, threading.Lock())

    def close(self) -> None:
        """Close the cache, where it can be closed."""
        getattr(self.cache, "close", lambda: None)()


def request_key(**fields: Any) -> str:
    """SHA-256 of the canonical request: all that shapes the reply, and which draw it is. No key and
    no header has a part in it."""
    fields["format"] = FORMAT
    return hashlib.sha256(
        json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def kept(directory: Path) -> list[tuple[str, float, int]]:
    """Key, time stored (seconds since the epoch) and length of every reply, the oldest first.

    Raises:
        CacheError: the database cannot be read.
    """
    query = "SELECT key, store_time, length(value) FROM Cache WHERE raw = 1 ORDER BY store_time"
    with closing(ReadOnlyCache(directory)) as cache:
        rows = cache.select(query)
    return [(str(key), float(stored or 0), int(size or 0)) for key, stored, size in rows]


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
        max_size: characters that may stay.
        now: seconds since the epoch; the present time where None.

    Raises:
        CacheError: the database cannot be read or written.
    """
    rows = kept(directory)
    limit = 0.0 if older_than is None else (time.time() if now is None else now) - older_than
    size = sum(row[2] for row in rows)
    doomed = []
    for key, stored, length in rows:
        if stored < limit or (max_size is not None and size > max_size):
            doomed.append(key)
            size -= length
    if doomed:
        with closing(DiskCache(directory)) as cache:
            for key in doomed:
                cache.delete(key)
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
    with _told(directory), filelock.FileLock(directory / "open.lock"):
        if (directory / _DATABASE).exists():
            _inspect(directory / _DATABASE)
        return _plain_open(directory)


def _plain_open(directory: Path) -> Any:
    return diskcache.Cache(str(directory), timeout=_BUSY_SECONDS, disk=TextDisk, **_SETTINGS)


def _open_for_reading(directory: Path) -> sqlite3.Connection | None:
    """A connection that writes nothing, not even SQLite's own side files where it need not."""
    path = directory / _DATABASE
    if not path.exists():
        return None
    # In a directory where SQLite can make no side file it reads only what is declared to be
    # immutable; the log of a writer that was killed is then left out.
    query = "mode=ro" if os.access(directory, os.W_OK) else "mode=ro&immutable=1"
    _check_owner(directory)
    with _told(directory):
        _inspect(path, query)
        uri = f"{path.absolute().as_uri()}?{query}"
        return sqlite3.connect(uri, uri=True, check_same_thread=False, timeout=_BUSY_SECONDS)


def _inspect(path: Path, query: str = "mode=ro") -> None:
    """Look at a database before anything else opens it.

    diskcache writes names and values of settings into SQL, and SQLite runs triggers, defaults and
    expressions when a reply is kept. So there may be none but those that diskcache makes itself.

    Args:
        query: of the URI that SQLite opens.

    Raises:
        RefusedDatabase: it holds settings, tables or triggers that no cache of this package has.
        CacheError: it belongs to another user.
        sqlite3.Error: it is not a readable database.
    """
    if path.is_symlink():
        raise RefusedDatabase("a link in place of the database")
    _check_owner(path)
    objects, settings = _form(path, query)
    usual_objects, usual_settings = _usual_form()
    for kind, _, _ in objects - usual_objects:
        raise RefusedDatabase(f"a {kind} that no cache has")
    for name, _ in settings - usual_settings:
        raise RefusedDatabase(f"the setting {str(name)[:40]!r}, which no cache of ours has")


@functools.cache
def _usual_form() -> tuple[set[Any], set[Any]]:
    """The form of a cache that diskcache has just made."""
    with tempfile.TemporaryDirectory() as folder:
        _plain_open(Path(folder)).close()
        return _form(Path(folder) / _DATABASE, "mode=ro")


def _form(path: Path, query: str) -> tuple[set[Any], set[Any]]:
    """Type, name and SQL of all that is in a database; names and values of its settings."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{query}", uri=True)) as connection:
        connection.execute("PRAGMA trusted_schema = 0")
        objects = set(connection.execute("SELECT type, name, sql FROM sqlite_master"))
        rows = list(connection.execute("SELECT key, value FROM Settings")) if objects else []
    counted = {key for key, value in rows if key in _COUNTERS and type(value) is int}
    return objects, {(key, value) for key, value in rows if key not in counted}


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


@contextmanager
def _told(directory: Path) -> Iterator[None]:
    """What goes wrong inside is told with the way out."""
    try:
        yield
    except diskcache.Timeout:
        words = f"locked by another process for {_BUSY_SECONDS} s"
        raise CacheError(f"{directory}: the cache has been {words}") from None
    except (RefusedDatabase, sqlite3.Error, OSError) as error:
        # SQLite quotes the bytes of a value that it cannot decode.
        said = str(error).partition(" with text ")[0]
        raise CacheError(
            f"{directory}: the cache cannot be used ({said}). Remove it with "
            f"`pytest-skillopt cache clear`, or run with --skillopt-cache=off"
        ) from error


def _to_text(completion: Completion) -> str:
    return json.dumps(
        {
            "format": FORMAT,
            "stored": time.time(),
            "text": completion.text,
            "tool_calls": [[c.id, c.name, c.arguments] for c in completion.tool_calls],
            "finish_reason": completion.finish_reason,
        }
    )


def _from_text(text: str) -> tuple[float, Completion]:
    """When a reply was stored, in seconds since the epoch, and the reply.

    Raises:
        ValueError, TypeError, KeyError, RecursionError: it is not of our form.
    """
    data = json.loads(text)
    calls = [ToolCall(*call) for call in data["tool_calls"]]
    texts = [data["text"], data["finish_reason"], *(t for c in data["tool_calls"] for t in c)]
    if data["format"] != FORMAT or not all(isinstance(text, str) for text in texts):
        raise ValueError
    usage = Usage(cached=1)
    return float(data["stored"]), Completion(texts[0], tuple(calls), texts[1], usage)
