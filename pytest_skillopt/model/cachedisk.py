"""What stands between diskcache and its own database.

A cache may come from elsewhere: restored by a CI service, copied from a colleague, checked in by
mistake. diskcache unpickles keys and values that a row marks as pickled (CVE-2025-69872, which
``JSONDisk`` does not close: it decodes what the base class has unpickled), opens and *removes* the
files that rows name, and applies the settings that the database holds. Nothing of that happens
here: a row is a plain text, in the database or in a value file inside the cache, or it is refused.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from pathlib import Path
from typing import Any

import diskcache

MODE_RAW = 1
MODE_TEXT = 3
_VALUE_FILE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val")
_MAX_VALUE = 64 * 2**20
"""Bytes of a value file that are read at most."""

SETTINGS: dict[str, Any] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "none",
    "size_limit": 2**62,
    "cull_limit": 0,
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 2**13,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 0,
    "sqlite_synchronous": 1,
    "sqlite_trusted_schema": 0,
    "disk_min_file_size": 2**15,
    "disk_pickle_protocol": 4,
}
"""Every setting of diskcache, so that none is taken from the database."""
_COUNTERS = frozenset({"count", "size", "hits", "misses"})
_COLUMNS = frozenset(
    {"rowid", "key", "raw", "store_time", "expire_time", "access_time", "access_count"}
    | {"tag", "size", "mode", "filename", "value"}
)


_OBJECTS: dict[str, re.Pattern[str]] = {
    "table": re.compile(r"CREATE TABLE \w+ ?\([\w ,]*\)"),
    "index": re.compile(r"CREATE (UNIQUE )?INDEX \w+ ON \w+ ?\([\w ,]*\)( WHERE [\w .>=]+)?"),
    "trigger": re.compile(
        r"CREATE TRIGGER Settings_\w+ AFTER (INSERT|UPDATE|DELETE) ON Cache FOR EACH ROW BEGIN "
        r"UPDATE Settings SET value = value( [+-] (1|NEW\.size|OLD\.size)){1,2} "
        r'WHERE key = "(count|size)"; END'
    ),
    "view": re.compile(r"(?!)"),
}
"""By kind of object, the SQL that diskcache writes: plain columns, and triggers that count. SQLite
would run any other trigger, default, check or expression when a reply is kept."""


class RefusedRow(Exception):
    """A row that this package did not write."""


class TextDisk(diskcache.Disk):  # type: ignore[misc]
    """Stores text under text keys and refuses every row of another kind, unread."""

    def put(self, key: object) -> tuple[str, bool]:
        if type(key) is not str:
            raise TypeError("the cache is keyed by text")
        return key, True

    def get(self, key: object, raw: object) -> str:
        if not raw or type(key) is not str:
            raise RefusedRow("a key that is not plain text")
        return key

    def store(self, value: object, read: bool, key: object = None) -> Any:
        if type(value) is not str or read:
            raise TypeError("the cache holds text")
        return super().store(value, read, key=key)

    def fetch(self, mode: object, filename: object, value: object, read: bool) -> str:
        """The text of a row.

        Raises:
            RefusedRow: pickled, binary, or a file that is not a value file inside the cache.
            OSError: the value file is gone.
        """
        if mode == MODE_RAW and filename is None and type(value) is str and not read:
            return value
        if mode == MODE_TEXT and value is None and not read:
            return _read_value_file(Path(self._directory), filename)
        raise RefusedRow("a row that is neither text nor a value file")

    def remove(self, file_path: object) -> None:
        """Remove a value file; any other path is left alone."""
        if type(file_path) is str and _is_inside(Path(self._directory), file_path):
            super().remove(file_path)


def inspect(path: Path, query: str = "mode=ro") -> None:
    """Look at a database before anything else opens it.

    Args:
        path: the database file.
        query: of the URI that SQLite opens.

    Raises:
        RefusedRow: it holds settings or tables that no cache of this package has.
        sqlite3.Error: it is not a readable database.
    """
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{query}", uri=True)
    try:
        connection.execute("PRAGMA trusted_schema = 0")
        objects = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        for kind, _, sql in objects:
            if sql is not None and not _OBJECTS[kind].fullmatch(" ".join(sql.split())):
                raise RefusedRow(f"a {kind} that no cache has")
        tables = {name for kind, name, _ in objects if kind == "table"}
        if not tables <= {"Settings", "Cache", "sqlite_sequence"}:
            raise RefusedRow("tables that are not a cache's")
        if "Settings" in tables:
            _check_settings(connection)
        if "Cache" in tables:
            columns = {row[1] for row in connection.execute("PRAGMA table_info(Cache)")}
            if columns != _COLUMNS:
                raise RefusedRow("a table with other columns")
    finally:
        connection.close()


def _check_settings(connection: sqlite3.Connection) -> None:
    for key, value in connection.execute("SELECT key, value FROM Settings"):
        if key in _COUNTERS and type(value) is int:
            continue
        # diskcache writes pragma names and values into SQL, and disk_* into attributes of the disk.
        if key not in SETTINGS or value != SETTINGS[key]:
            raise RefusedRow(f"the setting {str(key)[:40]!r}, which no cache of ours has")


def _read_value_file(directory: Path, filename: object) -> str:
    if type(filename) is not str or not _is_inside(directory, filename):
        raise RefusedRow("a value file outside the cache")
    # O_NONBLOCK: a FIFO in place of the file must not hang us; fstat refuses it then.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(os.open(directory / filename, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_VALUE:
            raise RefusedRow("a value file that is no plain file")
        try:
            return file.read().decode("utf-8")
        except UnicodeDecodeError:
            raise RefusedRow("a value file that is not text") from None


def _is_inside(directory: Path, filename: str) -> bool:
    """Whether it has the form of a value file's name and no link on its way."""
    if not _VALUE_FILE.fullmatch(filename.replace(os.sep, "/")):
        return False
    path = directory / filename
    return not any(p.is_symlink() for p in (path, path.parent, path.parent.parent))
