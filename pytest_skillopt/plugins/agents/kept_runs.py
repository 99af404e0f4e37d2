"""Keep a run of an agent as a text, with its changes to files, and repeat it from there."""

from __future__ import annotations

import json
import os
import secrets
import stat
import zlib
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pytest_skillopt.model.agent import ToolRun  # noqa: TC001 - pydantic reads it
from pytest_skillopt.model.types import Usage
from pytest_skillopt.plugins.agents.tree import Entry, is_git
from pytest_skillopt.plugins.agents.workspace import ABSENT, ROOM
from pytest_skillopt.untrusted import encodable, redact

if TYPE_CHECKING:
    from pytest_skillopt.plugins.agents.workspace import Workspace

    Changes = dict[str, Entry | None]

_LONGEST_NAME = 255
"""Maximum bytes of a name in a folder, as on usual systems."""
_KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)


class Run(BaseModel, frozen=True):
    """Record of one run of an agent, without its changes to files; by default it did nothing."""

    text: str = ""
    """Last message of the agent."""
    turns: tuple[tuple[str, str], ...] = ()
    """Role and content of each turn after the prompt."""
    tools: tuple[ToolRun, ...] = ()
    problem: str = ""
    """Reason for a missing answer that the agent is to blame for; empty if it answered."""
    skill_used: bool = False
    skill_read: bool = False
    exit_status: int = 0
    seconds: float = 0.0
    usage: Usage = Usage()
    commands: tuple[dict[str, Any], ...] = ()
    """Calls of commands that the test answered."""


class _Change(BaseModel):
    mode: int
    text: str


class _Kept(BaseModel):
    mark: str
    run: Run
    changes: dict[str, _Change | None]


def pack(run: Run, workspace: Workspace) -> str | None:
    """Write a run and its changes to files as a text.

    Returns None if the changes are too large, cannot be repeated, or could hide a secret. The
    workspace's path, which differs next time, is replaced by a mark. Names and contents of files
    are decoded as Latin-1, so that secrets in them are found and never cached.
    """
    told = run.model_dump()
    changes: dict[str, Any] = {}
    root = os.fsencode(workspace.root)
    is_committed = any(map(is_git, workspace.changed))
    for name in workspace.changed:
        entry = workspace.after.get(name)
        data = b"" if entry is None else entry.data
        if data is None or _may_hide(name, data):
            return None
        if root in data and (b"\0" in data or is_committed):
            return None  # Replacing the path would break a binary file or a committed one.
        kept = entry and {"mode": entry.mode, "text": data.decode("latin-1")}
        changes[os.fsencode(name).decode("latin-1")] = kept
    mark = f"{{skillopt-workspace-{secrets.token_hex(8)}}}"  # that nothing in the run says
    text = (
        f'{{"mark": {json.dumps(mark)}, "run": {_placeless(told, str(workspace.root), mark)}, '
        f'"changes": {_placeless(changes, root.decode("latin-1"), mark)}}}'
    )
    return text if len(text) <= ROOM and encodable(text) == text else None


def replay(text: str, workspace: Workspace) -> Run:
    """Return a run written by ``pack``, and repeat its changes in an equal workspace.

    Raises:
        ValueError: it cannot be repeated here; the workspace is unchanged.
        OSError: it failed halfway.
    """
    kept = _Kept.model_validate_json(text)
    whole = str(workspace.root)
    root = os.fsencode(workspace.root).decode("latin-1")
    run = Run.model_validate_json(_placeless(kept.run.model_dump(), kept.mark, whole))
    changes: Changes = {}
    for name, change in kept.changes.items():
        path = os.fsdecode(name.replace(kept.mark, root).encode("latin-1"))
        data = "" if change is None else change.text.replace(kept.mark, root)
        content = data.encode("latin-1")
        changes[path] = None if change is None else Entry(change.mode, "", content)
    _check(changes, workspace)
    _apply(changes, workspace)
    workspace.look()
    made = {name: workspace.after.get(name) for name in changes}
    if workspace.changed != sorted(changes) or any(
        new and old and (new.mode, new.data) != (old.mode, old.data)
        for new, old in zip(made.values(), changes.values(), strict=True)
    ):
        raise OSError(f"{workspace.root}: repeating a cached run gave other files")
    return run


def _check(changes: Changes, workspace: Workspace) -> None:
    """Raise ValueError unless the result is a valid tree of folders, files and links."""
    modes = {name: entry.mode for name, entry in workspace.before.items()}
    modes |= dict.fromkeys(
        workspace.placed, stat.S_IFREG
    )  # What is under test stays in its folders.
    for name, entry in changes.items():
        parts = name.split("/")
        is_path = all(0 < len(os.fsencode(part)) <= _LONGEST_NAME for part in parts)
        if "\0" in name or not is_path or {".", ".."} & set(parts):
            raise ValueError(f"{name!r} is not a path in a workspace")
        if any(f"{name}/".startswith(f"{place}/") for place in workspace.placed):
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


def _apply(changes: Changes, workspace: Workspace) -> None:
    """Apply the changes: remove what is gone or changed, then write what is new."""
    tree = workspace.tree
    new = [(name, entry) for name, entry in sorted(changes.items()) if entry is not None]
    folders = [(name, entry) for name, entry in new if stat.S_ISDIR(entry.mode)]
    stay = {name for name, _ in folders if stat.S_ISDIR(workspace.before.get(name, ABSENT).mode)}
    for name in sorted(workspace.before.keys() & changes.keys() - stay, reverse=True):
        tree.remove(name)
    for name, _ in folders:
        tree.make_folder(name, 0o700)
    for name, entry in new:
        if not stat.S_ISDIR(entry.mode):
            tree.write(name, entry.data or b"", entry.mode)
    for name, entry in reversed(folders):
        tree.make_folder(name, entry.mode)


def _may_hide(name: str, data: bytes) -> bool:
    """Return whether a git object holds a secret, or cannot be read (e.g. a pack)."""
    if not is_git(name) or "/objects/" not in name or not data:
        return False
    try:
        whole = zlib.decompressobj().decompress(data, ROOM).decode("latin-1")
    except zlib.error:
        return True
    return redact(whole) != whole


def _placeless(value: Any, old: str, new: str) -> str:
    """Write a value as JSON, with a text replaced in all its strings."""
    written, *texts = (json.dumps(part, ensure_ascii=False) for part in (value, old, new))
    return written.replace(texts[0][1:-1], texts[1][1:-1])
