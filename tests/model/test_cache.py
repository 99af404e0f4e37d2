from __future__ import annotations

import os
import pickle
import re
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from patience import PATIENCE
from tables import each_row

from pytest_skillopt.model.cache import DiskCache, Replies, request_key
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.model.remote import services
from pytest_skillopt.model.types import CacheError, Completion, Remote, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_skillopt.model.roles import Models

DONE = Completion("text ü", (ToolCall("1", "f", "{}"),), "tool_calls", Usage(1, 0, 5, 6))
KEY = "a" * 64
LONG = "long " * 20_000


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.trace),))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(directory: Path) -> Iterator[DiskCache]:
    made = DiskCache(directory)
    yield made
    made.close()


@pytest.fixture
def stored(directory: Path) -> Path:
    """A closed cache with one short reply."""
    made = DiskCache(directory)
    made.set(KEY, "kept")
    made.close()
    return directory


def tamper(directory: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(directory / "cache.db")) as connection:
        connection.execute(statement, values)
        connection.commit()


def read(directory: Path, key: str = KEY) -> str | None:
    opened = DiskCache(directory)
    found = opened.get(key)
    opened.close()
    return found


@each_row("value", ["", "short", "ü\r\n\0", LONG])
def test_a_text_comes_back_as_it_was(directory: Path, value: str) -> None:
    made = DiskCache(directory)
    made.set(KEY, value)
    assert made.get(KEY) == value
    made.close()
    assert read(directory) == value
    assert read(directory, "b" * 64) is None


def test_the_directory_is_for_its_owner_alone(directory: Path) -> None:
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    DiskCache(directory).close()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_nothing_is_ever_evicted(cache: DiskCache) -> None:
    inner = cache._cache
    assert (inner.eviction_policy, inner.cull_limit) == ("none", 0)
    assert inner.size_limit > 2**60


def test_a_forked_child_can_use_the_cache(cache: DiskCache) -> None:
    cache.set(KEY, "parent")
    pid = os.fork()
    if pid == 0:
        fine = cache.get(KEY) == "parent"
        cache.set("child", "child")
        os._exit(0 if fine else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert cache.get("child") == "child"


@each_row("mode", [2, 4, 5, None, "4"])
def test_a_pickled_or_unknown_value_is_refused_unread(
    stored: Path, tmp_path: Path, mode: object
) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "boom"))
    tamper(stored, "UPDATE Cache SET mode = ?, value = ?", mode, bomb)
    assert read(stored) == ""
    assert not (tmp_path / "boom").exists()


def test_a_pickled_key_is_refused_unread(stored: Path, tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "boom"))
    tamper(stored, "UPDATE Cache SET key = ?, raw = 0", bomb)
    assert read(stored) is None
    assert not (tmp_path / "boom").exists()


def test_a_binary_value_in_a_raw_row_is_refused(stored: Path) -> None:
    tamper(stored, "UPDATE Cache SET value = ?", b"bytes")
    assert read(stored) == ""


@each_row(
    "name",
    [
        "../secret",
        "../../secret",
        "/etc/passwd",
        "secret",
        "ab/cd/" + "0" * 28 + ".val",
        "",
        "cache.db",
    ],
)
def test_a_file_that_a_row_names_is_neither_read_nor_removed(
    stored: Path, tmp_path: Path, name: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (stored / "secret").write_text("secret")
    tamper(stored, "UPDATE Cache SET mode = 3, value = NULL, filename = ?", name)
    assert read(stored) == ""
    opened = DiskCache(stored)
    opened.set(KEY, "fresh")
    assert opened.get(KEY) == "fresh"
    opened.close()
    assert secret.exists()
    assert (stored / "secret").exists()


@pytest.mark.parametrize("key", ["disk__directory", "get", "sqlite_cache_size = 1; DROP TABLE x"])
def test_a_setting_in_the_database_can_do_no_more_than_spoil_it(stored: Path, key: str) -> None:
    tamper(stored, "INSERT OR REPLACE INTO Settings VALUES (?, 1)", key)
    with pytest.raises(CacheError, match="cannot be used"):
        read(stored)


def test_processes_that_open_and_close_the_cache_at_once_wait_for_each_other(
    directory: Path,
) -> None:
    code = (
        "import sys; from pathlib import Path; from pytest_skillopt.model.cache import DiskCache\n"
        "for i in range(20):\n"
        "    c = DiskCache(Path(sys.argv[1])); c.set(f'{sys.argv[2]}-{i}', 'x'); c.close()"
    )
    names = ("a", "b", "c")
    command = [sys.executable, "-c", code, str(directory)]
    others = [subprocess.Popen([*command, name]) for name in names]
    assert [other.wait(PATIENCE) for other in others] == [0, 0, 0]
    made = DiskCache(directory)
    assert all(made.get(f"{name}-{i}") == "x" for name in names for i in range(20))
    made.close()


def test_a_cache_of_another_user_is_refused_by_root_as_well(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0 if stored.stat().st_uid else 4711)
    with pytest.raises(CacheError, match=r"belongs to user \d+, .* runs as user \d+.*chown"):
        DiskCache(stored)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", [".", "cache.db"])
def test_root_uses_no_cache_of_another_user(stored: Path, what: str) -> None:
    os.chown(stored / what, 4711, -1)
    with pytest.raises(CacheError, match="belongs to user 4711"):
        DiskCache(stored)


def test_links_in_place_of_the_directory_or_the_database_are_refused(
    stored: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(stored)
    with pytest.raises(CacheError, match="is a link"):
        DiskCache(tmp_path / "link")
    (stored / "cache.db").rename(tmp_path / "other.db")
    (stored / "cache.db").symlink_to(tmp_path / "other.db")
    with pytest.raises(CacheError, match="is a link"):
        DiskCache(stored)


@pytest.mark.parametrize(
    "content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"x" * 99]
)
def test_a_broken_database_says_what_to_do(directory: Path, content: bytes) -> None:
    directory.mkdir()
    (directory / "cache.db").write_bytes(content)
    with pytest.raises(CacheError, match="Move that directory elsewhere: its replies are paid"):
        DiskCache(directory)


def test_a_database_that_breaks_in_the_middle_says_so_too(directory: Path) -> None:
    made = DiskCache(directory)
    for index in range(300):
        made.set(f"{index:064}", "x" * 2000)
    made.close()
    path = directory / "cache.db"
    data = bytearray(path.read_bytes())
    half = len(data) // 2
    data[half:] = b"\xa5" * (len(data) - half)
    path.write_bytes(data)
    opened = DiskCache(directory)

    def read_through() -> None:
        for index in range(300):
            opened.get(f"{index:064}")

    with pytest.raises(CacheError, match=r"cannot be used.*Move that") as caught:
        read_through()
    assert str(caught.value).isprintable()
    opened.close()


def test_a_full_disk_is_no_reason_to_remove_paid_replies(directory: Path) -> None:
    cache = DiskCache(directory)
    cache._do(lambda kept: kept._sql("PRAGMA max_page_count = 1"))
    with pytest.raises(CacheError, match=r"disk is full\)\. Free space on its disk, or .*$"):
        cache.set("0" * 64, "x" * 30_000)
    cache.close()


def test_a_directory_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match=r"cannot be written.*skillopt_dir"):
        DiskCache(tmp_path / "file" / "cache")


def test_what_a_killed_writer_left_is_found(directory: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from pytest_skillopt.model.cache import DiskCache\n"
        "DiskCache(Path(sys.argv[1])).set(sys.argv[2], 'kept'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(directory), KEY], check=False)
    assert read(directory) == "kept"


@each_row(
    "text",
    ["", "null", "[]", "{}", '{"format": 0}', '{"format": 1, "stored": 1, "text": 5}', "{" * 99],
)
def test_a_text_of_another_form_is_a_miss(directory: Path, text: str) -> None:
    cache = DiskCache(directory)
    cache.set(KEY, text)
    replies = Replies("rw", cache)
    assert replies.find(KEY) is None
    replies.keep(KEY, DONE)
    assert replies.find(KEY) is not None
    replies.close()


def served(cache: DiskCache, worker: str) -> Remote:
    """The controller's cache in a worker, without a channel between them."""
    models = SimpleNamespace(replies=Replies("rw", cache))
    table, _ = services(Meter(), cast("Models", models))
    return Remote(lambda method, *arguments: table[method](worker, *arguments), "cache")


def test_replies_are_kept_across_a_channel(cache: DiskCache) -> None:
    replies = Replies("rw", served(cache, "gw0"))
    with replies.claim(KEY):
        replies.keep(KEY, DONE)
    found = replies.find(KEY)
    assert found is not None
    assert found.text == DONE.text


def test_a_worker_that_dies_holds_no_key(cache: DiskCache) -> None:
    dead, alive = (served(cache, name) for name in ("gw0", "gw1"))
    assert dead.claim(KEY)
    assert not alive.claim(KEY)
    cache.forget("gw0")
    assert not dead.claim(KEY), "it asked before it died, and is heard afterwards"
    assert alive.claim(KEY)
    alive.free(KEY)
    assert cache.claim(KEY)


HOLDER = """
import sys, time
from pathlib import Path
from pytest_skillopt.model.cache import DiskCache
cache = DiskCache(Path(sys.argv[1]))
print(cache.claim("one"), cache.claim("two"), cache.claim("two"), flush=True)
cache.free("two")
print("freed", flush=True)
sys.stdin.read()
"""


def test_a_key_is_held_against_other_processes_until_its_holder_ends(cache: DiskCache) -> None:
    command = [sys.executable, "-c", HOLDER, str(cache.directory)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "True True False\n"
        assert held.stdout.readline() == "freed\n"
        assert not cache.claim("one")
        assert cache.claim("two")
        if pid := os.fork():
            status = os.waitpid(pid, 0)[1]
        else:
            os._exit(not cache.claim("three"))
        assert status == 0, "a forked child has locks of its own"
        held.kill()
    assert cache.claim("one")
    assert not cache.claim("two")


def test_keys_tell_requests_apart_and_nothing_else() -> None:
    base: dict[str, Any] = {
        "base_url": "http://h/v1",
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "parameters": {"temperature": 0.5, "max_tokens": 1},
        "tools": (),
        "response_format": None,
        "sample": "train/0",
    }
    changes: list[dict[str, Any]] = [
        {"base_url": "http://i/v1"},
        {"model": "n"},
        {"messages": [{"role": "user", "content": "y"}]},
        {"parameters": {"temperature": 0.6, "max_tokens": 1}},
        {"tools": [{"type": "function"}]},
        {"response_format": {"type": "json_object"}},
        {"sample": "train/1"},
    ]
    keys = {request_key(**base), *(request_key(**base | change) for change in changes)}
    assert len(keys) == 8
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)
    reordered = {"parameters": {"max_tokens": 1, "temperature": 0.5}}
    assert request_key(**base | reordered) == request_key(**base)


def test_one_thread_at_a_time_works_on_a_key_and_other_keys_do_not_wait(directory: Path) -> None:
    replies = Replies("rw", DiskCache(directory))
    inside: list[int] = []
    most: list[int] = []

    def work(index: int) -> None:
        with replies.claim(KEY):
            inside.append(index)
            most.append(len(inside))
            with replies.claim(f"another {index}"):
                inside.remove(index)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(48)))
    assert (max(most), len(most)) == (1, 48)
    replies.close()
