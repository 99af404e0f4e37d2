"""Confine agents: in bubblewrap, by the user's command, or not at all (``skillopt_sandbox``)."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.plugins.agents.known import bundled_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pytest_skillopt.plugins.agents.known import Harness

_CONFINED = "--die-with-parent --unshare-pid --ro-bind / / --dev /dev --proc /proc"
_OF_ROOT = f"{_CONFINED} --ro-bind /proc/sys /proc/sys --cap-drop ALL"
"""Root keeps its capabilities in bubblewrap, and could take off again what confines it."""
_PRIVATE = (".local/share", ".local/state")
"""Folders beside ``bin`` in which programs keep data, perhaps keys; so do files beside it."""


class Sandbox:
    """Sandbox of the agents of a session.

    In bubblewrap all but an agent's workspace and home is read-only; the user's home, the project
    and temporary files appear empty, and other processes are hidden.

    Args:
        kind: a value of ``sandbox_kind``.
        folders: folders to hide in bubblewrap, beside those that it always hides.
    """

    def __init__(self, kind: str, *folders: Path) -> None:
        self.kind = kind
        self.hidden = list[Path]()
        """Folders whose content an agent does not see, except for its own files."""
        if kind == "bwrap":
            # /run has sockets of other programs (docker, the user's session) and tokens.
            always = Path.home(), Path(tempfile.gettempdir()), Path("/tmp"), Path("/run")
            found = dict.fromkeys(path.resolve() for path in (*always, *folders) if path.is_dir())
            self.hidden = [path for path in found if path != Path("/")]

    def command(
        self,
        harness: Harness,
        program: str,
        writable: Iterable[str],
        covered: Iterable[tuple[Path, Path]],
        start: Path,
    ) -> list[str]:
        """Return the sandbox's part of a command line.

        Args:
            harness: the agent.
            program: the program that is started.
            writable: folders that it may change.
            covered: paths that are read-only, each with the file or folder that it shows.
            start: folder in which it starts.
        """
        if self.kind != "bwrap":
            words = [] if self.kind == "none" else shlex.split(self.kind)
            return [*(shutil.which(word) or word for word in words[:1]), *words[1:]]
        argv = [*find_bwrap()]
        for folder in self.hidden:
            argv += ["--tmpfs", str(folder)]
        for path in self._shown(harness, program):
            argv += ["--ro-bind", str(path), str(path)]
        for place in writable:
            argv += ["--bind", place, place]
        for path, instead in covered:
            argv += ["--ro-bind", str(instead), str(path)]
        return [*argv, "--chdir", str(start.resolve()), "--"]

    def _shown(self, harness: Harness, program: str = "") -> list[Path]:
        """List what an agent sees of the hidden folders, beside its own."""
        path = os.environ.get("PATH", "")
        found = _needed(harness.executable or program, path, tuple(self.hidden))
        if harness.unpacks:
            found = [*found, unpack_folder(harness)]
        return [path for path in found if _is_below(path, self.hidden) and path.exists()]

    def leads_out(self, link: Path, root: Path, harness: Harness) -> bool:
        """Return whether a link in a workspace leads to what the agent could not read itself.

        Such as a file that the sandbox hides, or a device.
        """
        target = Path(os.path.realpath(link))
        if not os.path.exists(target) or target.is_relative_to(root.resolve()):
            return False
        if not (target.is_file() or target.is_dir()):
            return target != Path(os.devnull)
        shown = [place.resolve() for place in self._shown(harness)]
        return _is_below(target, self.hidden) and not _is_below(target, shown)


def sandbox_kind(setting: str) -> str:
    """Turn ``skillopt_sandbox`` into ``none``, ``bwrap`` or a command.

    Raises:
        pytest.UsageError: ``bwrap`` is set and does not work.
    """
    if setting == "auto":
        return "bwrap" if find_bwrap() else "none"
    if setting == "bwrap" and not find_bwrap():
        raise pytest.UsageError(
            "skillopt_sandbox: bwrap does not work here; install bubblewrap, allow unprivileged "
            "user namespaces, or set it to none or to a command"
        )
    return setting


def find_bwrap() -> tuple[str, ...]:
    """Return the command of a working bubblewrap with its options, empty if there is none."""
    return _find_bwrap(os.environ.get("PATH", ""))


@functools.cache
def _find_bwrap(search_path: str) -> tuple[str, ...]:
    # In a container, root may need a user namespace as everybody else does.
    ways = [f"{_OF_ROOT} --cap-add CAP_CHOWN", f"{_OF_ROOT} --unshare-user"]
    bundled = bundled_path("codex_cli_bin/codex-resources/bwrap")
    paths = shutil.which("bwrap", path=search_path), bundled
    if os.geteuid():
        ways = [_CONFINED]
    for path, options in itertools.product(paths, ways):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if path:
                found = path, *options.split()
                subprocess.run([*found, "true"], capture_output=True, timeout=20, check=True)
                return found
    return ()


def _is_below(path: Path, folders: Collection[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


@functools.cache
def _needed(program: str, path: str, hidden: tuple[Path, ...]) -> list[Path]:
    """List what a program and the commands on the path may need, but no whole hidden folder."""
    real = Path(program).resolve()
    names = Path("/etc/resolv.conf").resolve()
    found = [Path(program), Path(program).parent, real, names]
    for prefix in (Path(sys.prefix), Path(sys.base_prefix)):
        found += [prefix, prefix / "bin", prefix / "lib"]
    for folder in map(Path, path.split(os.pathsep)):
        found.append(folder)
        is_own = folder.parent.resolve() in hidden
        if folder.name == "bin" and _is_below(folder, hidden) and not is_own:
            found += _beside(folder)
    modules = [parent for parent in real.parents if parent.name == "node_modules"]
    found.append((modules or [real.parent])[-1])
    whole = [path for path in dict.fromkeys(found) if path.resolve() not in hidden]
    above = {parent for folder in hidden for parent in (folder, *folder.parents)}
    return [path for path in whole if path not in above]


def _beside(folder: Path) -> Iterator[Path]:
    """Yield what the commands in a folder ``bin`` may need of the folder that it is in."""
    with contextlib.suppress(OSError):
        for path in folder.parent.iterdir():
            if path.name == "version" or (path.is_dir() and not str(path).endswith(_PRIVATE)):
                yield path
        for link in filter(Path.is_symlink, folder.iterdir()):
            real = link.resolve()
            for file in (real, (real.parent / "python").resolve()):
                if file.is_relative_to(folder.parent) and file.parent != folder:
                    yield file.parent.parent if file.parent.name == "bin" else file


def unpack_folder(harness: Harness) -> Path:
    """Return the folder into which a program unpacks itself."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / harness.unpacks
