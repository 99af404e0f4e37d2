"""Model replies kept on disk, so that no request is paid for twice.

diskcache keeps them. A cache may come from elsewhere, restored by a CI service or copied from a
colleague, and diskcache unpickles what a row marks as pickled (CVE-2025-69872), and opens and
removes the files that rows name. ``TextDisk`` knows one kind of row: a text in the database.

Whoever pays for a reply holds a record lock (POSIX ``fcntl``) on one byte of the file ``claims``,
which belongs to its key: sessions that ask the same at once pay once, and a session that is killed
holds nothing. A lock on a whole file, as filelock has, would take a file for every reply.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal
from weakref import WeakValueDictionary

import diskcache
from pydantic import BaseModel, Field, ValidationError

from pytest_skillopt.model.types import CacheError, CacheMiss, Completion, ToolCall, Usage
from pytest_skillopt.untrusted import encodable, logger, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LOG = logger(__name__)
CacheMode = Literal["rw", "ro", "off", "refresh"]
FORMAT: Literal[1] = 1
"""Version of the key and of the kept form."""
_BUSY_SECONDS = 120
_LOOK_SECONDS = 0.1
"""After which whoever waits for another session looks again."""
_SETTINGS: dict[str, Any] = {
    "eviction_policy": "none",
    "size_limit": 2**62,
    "cull_limit": 0,
    "sqlite_mmap_size": 0,
    "sqlite_trusted_schema": 0,
}
"""Of diskcache; they win over those that a database holds."""


_Tokens = Annotated[int, Field(ge=0, lt=2**53)]


class _Kept(BaseModel):
    """A reply as it is kept."""

    format: Literal[1] = FORMAT
    stored: float
    """Seconds since the epoch."""
    text: str
    tool_calls: list[tuple[str, str, str]]
    finish_reason: str
    asked: _Tokens = 0
    said: _Tokens = 0
    """What was paid for, in and out; 0 where nobody told."""


class TextDisk(diskcache.Disk):  # type: ignore[misc]
    """Keeps text under text keys inside the database, and touches no file."""

    def put(self, key: object) -> tuple[object, bool]:
        return key, True

    def get(self, key: object, raw: object) -> object:
        raise NotImplementedError("nobody here lists keys, which diskcache unpickles")

    def store(self, value: object, read: bool, key: object = None) -> Any:
        return 0, diskcache.core.MODE_RAW, None, value

    def fetch(self, mode: object, filename: object, value: object, read: bool) -> str:
        plain = mode == diskcache.core.MODE_RAW and filename is None and isinstance(value, str)
        return str(value) if plain else ""

    def remove(self, file_path: object) -> None:
        """No row of ours has a file."""


class DiskCache:
    """Texts under keys in a directory, for any number of threads and processes at once; CacheError
    where the directory or the database cannot be used."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._gone: set[str] = set()
        _make_private(directory)
        self._start()

    def get(self, key: str) -> str | None:
        found: str | None = self._do(lambda cache: cache.get(key))
        return found

    def set(self, key: str, value: str) -> None:
        self._do(lambda cache: cache.set(key, value))

    def claim(self, key: str, owner: str = "") -> bool:
        """Whether from now on nobody else may pay for the reply of a key, in any process.

        That ends with ``free``, with this process, or with the owner, the prefix of a worker.
        """
        self._follow_fork()
        with _told(self.directory), self._claiming:
            if key in self._claimed or owner in self._gone:
                return False
            try:
                fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
            except (BlockingIOError, PermissionError):
                return False
            self._claimed[key] = owner
            return True

    def free(self, key: str) -> None:
        """End a claim, if there is one."""
        with _told(self.directory), self._claiming:
            if self._claimed.pop(key, None) is not None:
                fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, _place(key))

    def forget(self, owner: str) -> None:
        """End all claims of a worker that has died, and those of its that are still to arrive."""
        self._gone.add(owner)
        for key in [key for key, holder in list(self._claimed.items()) if holder == owner]:
            self.free(key)

    def close(self) -> None:
        """Close the database; merges its write-ahead log, so that the file can be copied."""
        self._thread.submit(self._cache.close).result()
        self._thread.shutdown()
        os.close(self._claims)

    def _start(self) -> None:
        # diskcache keeps a connection for each thread that ever touched it, and leaves it to the
        # garbage collector, which warns of it. One thread of our own has the only connection.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="skillopt-cache")
        self._pid = os.getpid()
        self._claiming = threading.Lock()
        self._claimed: dict[str, str] = {}
        """By key, who has claimed it in this process."""
        with _told(self.directory):
            self._cache = self._thread.submit(_open, self.directory).result()
            how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            self._claims = os.open(self.directory / "claims", how, 0o600)

    def _follow_fork(self) -> None:
        if self._pid != os.getpid():
            # A fork copies the executor without its thread, and no lock.
            self._start()

    def _do(self, operation: Callable[[Any], Any]) -> Any:
        self._follow_fork()
        with _told(self.directory):
            return self._thread.submit(operation, self._cache).result()


class RemoteCache:
    """The controller's cache, as a worker reaches it through ``Link.ask``; ``owner`` is the prefix
    of all that the worker asks for."""

    def __init__(self, ask: Callable[..., Any], owner: str) -> None:
        self._ask = ask
        self._owner = owner

    def get(self, key: str) -> str | None:
        found: str | None = self._ask("cache.get", key)
        return found

    def set(self, key: str, value: str) -> None:
        self._ask("cache.set", key, value)

    def claim(self, key: str) -> bool:
        return bool(self._ask("cache.claim", key, self._owner))

    def free(self, key: str) -> None:
        self._ask("cache.free", key)


class Replies:
    """What has been replied before, under one of the modes of ``skillopt_cache``.

    ``rw`` finds and keeps; ``ro`` only finds; ``off`` does neither; ``refresh`` keeps, and finds
    only what was kept since this object was made.
    """

    def __init__(self, mode: CacheMode, cache: DiskCache | RemoteCache | None = None) -> None:
        self.mode: CacheMode = mode
        self.cache = cache if mode != "off" else None
        self.notes: dict[str, None] = {}
        """What a reader of the run must know, each once."""
        self._since = time.time() if mode == "refresh" else 0.0
        self._claims: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._lock = threading.Lock()

    def find(self, key: str, what: str = "") -> Completion | None:
        """The kept reply, with the tokens that were paid for; CacheError where it cannot be read,
        CacheMiss where it is only read and lacks the reply of the call ``what``."""
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
        """Keep a paid reply. A cache that fails here must not cost the reply: it leaves a note.

        One that holds a secret is not written anywhere: redacted, it would be another reply when it
        is found again.
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
        """Hold a key while its reply is paid for: who asks the same waits for it, such as another
        session, or a rollout that is tried again while the first call is still in flight.

        Args:
            wait: waits so many seconds, or raises where nobody wants the reply any more.
        """
        with self._lock:
            claimed = self._claims.setdefault(key, threading.Lock())
        with claimed:
            if self.cache is None or self.mode == "ro":
                yield
                return
            if not self.cache.claim(key):
                _LOG.info("another session or worker pays for the same reply, which is waited for")
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
    """SHA-256 of the canonical request: all that shapes the reply, and which draw it is. No key and
    no header has a part in it."""
    fields["format"] = FORMAT
    return hashlib.sha256(
        json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def _place(key: str) -> int:
    """The byte of the file ``claims`` that belongs to a key; it need not exist."""
    return int(hashlib.sha256(key.encode()).hexdigest()[:14], 16)


def _open(directory: Path) -> Any:
    return diskcache.Cache(str(directory), timeout=_BUSY_SECONDS, disk=TextDisk, **_SETTINGS)


def _make_private(directory: Path) -> None:
    """Make the directory, for its owner alone; refuse what another user could fill."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (directory, directory / "cache.db"):
            if path.is_symlink():
                raise CacheError(f"{path} is a link, which no cache has: remove it")
            if path.exists() and (owner := path.stat().st_uid) != (me := os.geteuid()):
                words = f"belongs to user {owner}, and this process runs as user {me}"
                raise CacheError(f"{path} {words}: make it yours with chown, or set skillopt_dir")
        directory.chmod(0o700)
    except OSError as error:
        raise CacheError(
            f"{directory}: the cache cannot be written ({error}). Set skillopt_dir to another place"
        ) from error


@contextmanager
def _told(directory: Path) -> Iterator[None]:
    """What goes wrong inside is told with the way out."""
    try:
        yield
    except diskcache.Timeout:
        words = f"locked by another process for {_BUSY_SECONDS} s"
        raise CacheError(f"{directory}: the cache has been {words}") from None
    except Exception as error:
        # SQLite quotes the bytes of a value that it cannot decode.
        said = str(error).partition(" with text ")[0]
        way_out = "Remove that directory, or run with --skillopt-cache=off"
        raise CacheError(f"{directory}: the cache cannot be used ({said}). {way_out}") from error
