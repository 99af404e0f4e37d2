"""Write an agent's run as a text for the cache, and repeat it from there."""

from __future__ import annotations

import itertools
import json
import os
import stat
import uuid
import zlib
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pytest_skillopt.addons.harness.tree import Entry, is_git
from pytest_skillopt.addons.harness.workspace import ROOM
from pytest_skillopt.model.agent import ToolRun  # noqa: TC001 - pydantic reads it
from pytest_skillopt.model.types import Usage  # noqa: TC001
from pytest_skillopt.untrusted import encodable, redact

if TYPE_CHECKING:
    from pytest_skillopt.addons.harness.workspace import Workspace

    Changes = dict[str, Entry | None]


class Run(BaseModel, frozen=True):
    """Record of one run of an agent, without its changes to files."""

    text: str
    """Last message of the agent."""
    turns: tuple[tuple[str, str], ...]
    """Role and content of each turn after the prompt."""
    tools: tuple[ToolRun, ...]
    problem: str
    """Reason for a missing answer that the agent is to blame for; empty if it answered."""
    skill_used: bool
    skill_read: bool
    opened: str = ""
    """Name of the competing skill that a trigger task opened first; empty for none."""
    exit_status: int
    seconds: float
    usage: Usage


class _Change(BaseModel):
    mode: int
    text: str


class _Kept(BaseModel):
    mark: str
    run: Run
    changes: dict[str, _Change | None]


def pack(run: Run, laid: Workspace) -> str | None:
    """Write a run and its changes to files as a text.

    Returns None if the changes are too large, cannot be repeated, or could hide a secret. The
    workspace's path, which differs next time, is replaced by a mark. Names and contents of files
    are decoded as Latin-1, so that secrets in them are found and never cached.
    """
    told, changes = run.model_dump(), dict[str, Any]()
    root, room = os.fsencode(laid.root), ROOM
    is_committed = any(map(is_git, laid.changed))
    for name in laid.changed:
        entry = laid.after.get(name)
        data = b"" if entry is None else entry.data
        room -= len(data or b"")
        if data is None or room < 0 or _may_hide(name, data):
            return None
        if root in data and (b"\0" in data or is_committed):
            return None  # Replacing the path would break a binary file or a committed one.
        kept = entry and {"mode": entry.mode, "text": data.decode("latin-1")}
        changes[os.fsencode(name).decode("latin-1")] = kept
    plain = json.dumps([told, changes], ensure_ascii=False)
    marks = (f"{{skillopt-workspace{number or ''}}}" for number in itertools.count())
    mark = next(mark for mark in marks if mark not in plain)
    whole = {
        "mark": mark,
        "run": _replaced(told, str(laid.root), mark),
        "changes": _replaced(changes, root.decode("latin-1"), mark),
    }
    text = json.dumps(whole, ensure_ascii=False)
    return text if encodable(text) == text else None


def replay(text: str, laid: Workspace) -> Run:
    """Return a run written by ``pack``, and repeat its changes in an equal workspace.

    Raises:
        ValueError: it cannot be repeated here; the workspace is unchanged.
        OSError: it failed halfway.
    """
    kept = _Kept.model_validate_json(text)
    root = os.fsencode(laid.root).decode("latin-1")
    changes: Changes = {}
    for name, change in kept.changes.items():
        path = os.fsdecode(name.replace(kept.mark, root).encode("latin-1"))
        data = "" if change is None else change.text.replace(kept.mark, root)
        content = data.encode("latin-1")
        changes[path] = None if change is None else Entry(change.mode, "", content)
    _check(changes, laid)
    _apply(changes, laid)
    laid.look()
    made = {name: laid.after.get(name) for name in changes}
    if laid.changed != sorted(changes) or any(
        new and old and (new.mode, new.data) != (old.mode, old.data)
        for new, old in zip(made.values(), changes.values(), strict=True)
    ):
        raise OSError(f"{laid.root}: repeating a cached run gave other files")
    return Run.model_validate(_replaced(kept.run.model_dump(), kept.mark, str(laid.root)))


def _check(changes: Changes, laid: Workspace) -> None:
    """Raise ValueError unless the result is a valid tree of folders, files and links."""
    modes = {name: entry.mode for name, entry in laid.before.items()}
    for name, entry in changes.items():
        if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise ValueError(f"{name!r} is not a path in a workspace")
        if any(f"{name}/".startswith(f"{place}/") for place in laid.placed):
            raise ValueError(f"{name!r} is inside the skill")
        if entry is None and name not in modes:
            raise ValueError(f"{name!r} should be removed but does not exist")
        if entry is not None and stat.S_IFMT(entry.mode) not in _KINDS:
            raise ValueError(f"{name!r} has the invalid mode {entry.mode}")
        modes[name] = 0 if entry is None else entry.mode
    for name, mode in modes.items():
        above = name.rpartition("/")[0]
        if mode and above and not stat.S_ISDIR(modes.get(above, 0)):
            raise ValueError(f"{name!r} is not in a folder")
    if any(not stat.S_ISDIR(modes.get(above, 0)) for above in _above(laid.placed)):
        raise ValueError("the skill would not be in a folder")


_ABSENT = Entry(0)
_KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


def _above(places: list[str]) -> set[str]:
    """Return all parent folders of some paths."""
    pairs = ((place.split("/"), place.count("/")) for place in places)
    return {"/".join(parts[:end]) for parts, most in pairs for end in range(1, most + 1)}


def _apply(changes: Changes, laid: Workspace) -> None:
    """Apply the changes; all new content is first written to a temporary folder."""
    tree, aside = laid.tree, f".skillopt-{uuid.uuid4().hex}"
    new = [(name, entry) for name, entry in sorted(changes.items()) if entry is not None]
    files = [(name, entry) for name, entry in new if not stat.S_ISDIR(entry.mode)]
    folders = [(name, entry) for name, entry in new if stat.S_ISDIR(entry.mode)]
    try:
        tree.make_folder(aside, 0o700)
        for number, (name, entry) in enumerate(files):
            place = f"{aside}/{number}/{name.rpartition('/')[2]}"
            tree.write(place, entry.data or b"", entry.mode)
    except OSError as error:
        tree.remove(aside)
        raise ValueError(str(error)) from None
    stay = {name for name, _ in folders if stat.S_ISDIR(laid.before.get(name, _ABSENT).mode)}
    for name in sorted(laid.before.keys() & changes.keys() - stay, reverse=True):
        tree.remove(name)
    for name, _ in folders:
        tree.make_folder(name, 0o700)
    for number, (name, _) in enumerate(files):
        tree.move(f"{aside}/{number}/{name.rpartition('/')[2]}", name)
    for name, entry in reversed(folders):
        tree.make_folder(name, entry.mode)
    tree.remove(aside)


def _may_hide(name: str, data: bytes) -> bool:
    """Return whether a git object holds a secret, or cannot be read (e.g. a pack)."""
    if not is_git(name) or "/objects/" not in name or not data:
        return False
    try:
        whole = zlib.decompressobj().decompress(data, ROOM).decode("latin-1")
    except zlib.error:
        return True
    return redact(whole) != whole


def _replaced(value: Any, old: str, new: str) -> Any:
    """Replace a text in all strings of a JSON value."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {_replaced(k, old, new): _replaced(v, old, new) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_replaced(part, old, new) for part in value)
    return value
