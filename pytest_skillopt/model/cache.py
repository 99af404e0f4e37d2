"""Model replies stored on disk, so that no request is paid for twice.

diskcache stores them. A cache may come from elsewhere, restored by a CI service or copied from a
colleague, and diskcache unpickles any row marked as pickled (CVE-2025-69872), and opens and removes
the files that rows name. ``TextDisk`` allows only one kind of row: a text in the database. A thread
stores its reply by itself: each hand-over to another thread takes milliseconds while many of them
run, and a reply that is not stored when the process is killed is paid for again.

While a session pays for a reply, it holds a lock of the system on one byte, derived from the key,
of the file ``claims``: sessions that ask the same at once pay once, and a killed session holds
nothing. A lock on a whole file, as in filelock, would need a file for every reply.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sqlite3
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import diskcache
from pydantic import BaseModel, Field, ValidationError

from pytest_skillopt.model.types import (
    CacheError,
    CacheMiss,
    Completion,
    Remote,
    ToolCall,
    Usage,
)
from pytest_skillopt.untrusted import encodable, logger, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOG = logger(__name__)
CacheMode = Literal["rw", "ro", "off", "refresh"]
FORMAT: Literal[1] = 1
"""Version of the key and of the stored form."""
_BUSY_SECONDS = 120
_LOOK_SECONDS = 0.1
"""Seconds between two checks of a claim that another call holds."""
_SETTINGS: dict[str, Any] = {
    "eviction_policy": "none",
    "size_limit": 2**62,
    "cull_limit": 0,
    "sqlite_mmap_size": 0,
    "sqlite_trusted_schema": 0,
}
"""Settings of diskcache; they override those in a database."""

_Tokens = Annotated[int, Field(ge=0, lt=2**53)]


class _Kept(BaseModel):
    """A reply in its stored form."""

    format: Literal[1] = FORMAT
    stored: float
    """Seconds since the epoch."""
    text: str
    tool_calls: list[tuple[str, str, str]]
    finish_reason: str
    asked: _Tokens = 0
    said: _Tokens = 0
    """Tokens paid for, in and out; 0 if not known."""


class TextDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache has no types
    """Stores text under text keys inside the database, and touches no file."""

    def put(self, key: object) -> tuple[object, bool]:
        return key, True

    def get(self, key: object, raw: object) -> object:
        raise NotImplementedError("keys are never listed: diskcache would unpickle them")

    def store(self, value: object, read: bool, key: object = None) -> Any:
        return 0, diskcache.core.MODE_RAW, None, value

    def fetch(self, mode: object, filename: object, value: object, read: bool) -> str:
        plain = mode == diskcache.core.MODE_RAW and filename is None and isinstance(value, str)
        return str(value) if plain else ""

    def remove(self, file_path: object) -> None:
        """Do nothing: no row has a file."""


class _Database(diskcache.Cache):  # type: ignore[misc]  # diskcache has no types
    """The database of diskcache, which is closed, too, if it cannot be read."""

    def __init__(self, directory: Path) -> None:
        try:
            super().__init__(str(directory), timeout=_BUSY_SECONDS, disk=TextDisk, **_SETTINGS)
        except BaseException:
            self.close()
            raise


class DiskCache:
    """Texts under keys in a directory, for any number of threads and processes at once.

    Raises:
        CacheError: the directory or the database cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._gone: set[str] = set()
        self._inherited: list[diskcache.Cache] = []
        _make_private(directory)
        self._start()

    def get(self, key: str) -> str | None:
        found: str | None = self._do(lambda cache: cache.get(key))
        return found

    def set(self, key: str, value: str) -> None:
        self._do(lambda cache: cache.set(key, value))

    def claim(self, key: str, owner: str = "") -> bool:
        """Claim the reply of a key, so that no other call pays for it; False if it is claimed.

        A claim ends with ``free``, with this process, or with its owner, a worker.
        """
        self._follow_fork()
        with _explaining(self.directory), self._claiming:
            if key in self._claimed or owner in self._gone:
                return False
            try:
                _lock_byte(self._claims, key, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                return False
            self._claimed[key] = owner
            return True

    def free(self, key: str) -> None:
        """End a claim, if there is one."""
        with _explaining(self.directory), self._claiming:
            if self._claimed.pop(key, None) is not None:
                _lock_byte(self._claims, key, fcntl.LOCK_UN)

    def forget(self, owner: str) -> None:
        """End all claims of a dead worker, also those that are still to arrive."""
        self._gone.add(owner)
        for key in [key for key, holder in list(self._claimed.items()) if holder == owner]:
            self.free(key)

    def close(self) -> None:
        """Close the database and merge its write-ahead log, so that the file can be copied."""
        with self._lock:
            self._cache.close()
        os.close(self._claims)

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._claiming = threading.Lock()
        self._claimed: dict[str, str] = {}
        """Owner of each claim of this process, by key."""
        with _explaining(self.directory):
            self._cache = _Database(self.directory)
            _share_connection(self._cache)
            how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            self._claims = os.open(self.directory / "claims", how, 0o600)

    def _follow_fork(self) -> None:
        if self._pid != os.getpid():
            # Closing a copied connection would end the parent's, and a copied lock may be held.
            self._inherited.append(self._cache)
            self._start()

    def _do(self, operation: Callable[[Any], Any]) -> Any:
        self._follow_fork()
        with _explaining(self.directory), self._lock:
            return operation(self._cache)


class Replies:
    """Earlier replies, in one of the modes of ``skillopt_cache``.

    ``rw`` reads and writes; ``ro`` only reads; ``off`` does neither; ``refresh`` writes, and reads
    only replies written since this object was created.
    """

    def __init__(self, mode: CacheMode, cache: DiskCache | Remote | None = None) -> None:
        self.mode: CacheMode = mode
        self.cache = cache if mode != "off" else None
        self.notes: dict[str, None] = {}
        """Notes for the reader of the run, each once."""
        self._since = time.time() if mode == "refresh" else 0.0

    def find(self, key: str, what: str = "") -> Completion | None:
        """Return the stored reply with its paid tokens, None if there is none.

        ``what`` is the call in words; empty: a missing reply is never an error.

        Raises:
            CacheError: the cache cannot be read.
            CacheMiss: it is read-only and does not hold the reply.
        """
        text = self.cache.get(key) if self.cache is not None else None
        if text is None and self.mode == "ro" and what:
            raise CacheMiss(
                f"{what} has no reply in the cache, and --skillopt-cache=ro lets nothing leave the "
                "machine; record it with --skillopt-cache=rw"
            )
        if text is None:
            return None
        try:
            kept = _Kept.model_validate_json(text)
        except ValidationError:
            words = "rows of the cache were refused: this package has not written them"
            self.notes.setdefault(words)
            return None
        if kept.stored < self._since:
            return None
        calls = tuple(ToolCall(*call) for call in kept.tool_calls)
        paid = Usage(1, 0, kept.asked, kept.said)
        return Completion(kept.text, calls, kept.finish_reason, paid)

    def keep(self, key: str, completion: Completion) -> None:
        """Store a paid reply. A failure of the cache leaves a note and does not lose the reply.

        A reply that holds a secret is not stored: once redacted, it would be another reply.
        """
        if self.cache is None or self.mode == "ro":
            return
        texts = (completion.text, *(call.arguments for call in completion.tool_calls))
        if any(redact(text) != text for text in texts):
            self.notes.setdefault(
                "replies that hold secrets are not kept in the cache, they are paid anew"
            )
            return
        try:
            calls = [(call.id, call.name, call.arguments) for call in completion.tool_calls]
            kept = _Kept(
                stored=time.time(),
                text=encodable(completion.text),
                tool_calls=calls,
                finish_reason=completion.finish_reason,
                asked=completion.usage.input_tokens,
                said=completion.usage.output_tokens,
            )
            self.cache.set(key, kept.model_dump_json())
        except Exception as error:
            self.notes.setdefault(f"a reply could not be kept: {error}")

    @contextmanager
    def claim(self, key: str, wait: Callable[[float], object] = time.sleep) -> Iterator[None]:
        """Hold a key while its reply is paid for.

        An equal request waits for that reply, such as one of another session, or a repeated rollout
        whose first call is still in flight. ``wait`` waits a number of seconds, or raises if the
        reply is no longer needed.
        """
        if self.cache is None or self.mode == "ro":
            yield
            return
        if not self.cache.claim(key):
            _LOG.info("another call pays for the same reply, which is waited for")
            while not self.cache.claim(key):
                wait(_LOOK_SECONDS)
        try:
            yield
        finally:
            self.cache.free(key)

    def close(self) -> None:
        if isinstance(self.cache, DiskCache):
            self.cache.close()


def request_key(**fields: Any) -> str:
    """Return the SHA-256 of the canonical request: all that influences the reply, and its draw.

    API keys and headers are not part of it.
    """
    fields["format"] = FORMAT
    return hashlib.sha256(
        json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def _lock_byte(file: int, key: str, how: int) -> None:
    """Lock the byte of an open file for a key, or end its lock; the byte need not exist.

    Raises:
        BlockingIOError, PermissionError: another process has locked it.
    """
    place = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) >> 1
    fcntl.lockf(file, how, 1, place, os.SEEK_SET)


def _make_private(directory: Path) -> None:
    """Create the directory only for its owner; refuse one that another user could fill."""
    user = os.geteuid()
    if os.path.expandvars(directory) != str(directory):  # diskcache would follow the variable
        words = "the cache cannot lie in a path with a $ and the name of an environment variable"
        raise CacheError(f"{directory}: {words}. Set skillopt_dir to another place")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (directory, directory / "cache.db"):
            if path.is_symlink():
                raise CacheError(f"{path} is a link, which a cache never contains: remove it")
            if path.exists() and (owner := path.stat().st_uid) != user:
                words = f"belongs to user {owner}, and this process runs as user {user}"
                raise CacheError(f"{path} {words}: make it yours with chown, or set skillopt_dir")
        directory.chmod(0o700)
    except OSError as error:
        raise CacheError(
            f"{directory}: the cache cannot be written ({error}). Set skillopt_dir to another place"
        ) from error


def _share_connection(cache: diskcache.Cache) -> None:
    """Let all threads use one connection, a lock around each use.

    diskcache opens one for each thread, and leaves them to the garbage collector, which warns.
    """
    cache.close()
    connection = sqlite3.connect(
        Path(cache.directory) / diskcache.core.DBNAME,
        timeout=cache.timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    cache._local = SimpleNamespace(pid=os.getpid(), con=connection)
    for name, value in {**diskcache.DEFAULT_SETTINGS, **_SETTINGS}.items():
        if name.startswith("sqlite_"):
            cache.reset(name, value, update=False)


_WRITABLE = "Set skillopt_dir to a place that can be written, by a path that is not long"
_SPACE = "Free space on its disk, or raise the quota or the limit on files (ulimit -f)"
_WAYS_OUT = {
    sqlite3.SQLITE_CANTOPEN: _WRITABLE,  # also of a path of more than 500 characters
    sqlite3.SQLITE_READONLY: _WRITABLE,
    sqlite3.SQLITE_FULL: _SPACE,
    sqlite3.SQLITE_IOERR: _SPACE,  # of a quota, for example
}
"""Sentences that say what to do after an error of SQLite, by its code."""


@contextmanager
def _explaining(directory: Path) -> Iterator[None]:
    """Turn any error inside into a CacheError that names the way out."""
    try:
        yield
    except diskcache.Timeout:
        words = f"locked by another process for {_BUSY_SECONDS} s"
        raise CacheError(f"{directory}: the cache has been {words}") from None
    except Exception as error:
        # SQLite quotes the bytes of a value that it cannot decode.
        said = str(error).partition(" with text ")[0]
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the kind of an extended code
        way_out = _WAYS_OUT.get(code, "Move that directory elsewhere: its replies are paid")
        raise CacheError(f"{directory}: the cache cannot be used ({said}). {way_out}") from error
