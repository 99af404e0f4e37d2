"""The prefix that keeps an agent to its workspace: bubblewrap, a command of the user's, or none."""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BUNDLED = "codex_cli_bin/codex-resources/bwrap"


def find_bwrap() -> str:
    """A bubblewrap that works on this machine; empty where there is none."""
    for path in (shutil.which("bwrap"), bundled_path(_BUNDLED)):
        if path and _works(path):
            return path
    return ""


def bundled_path(place: str) -> str:
    """The path of a file in an installed package, from ``package/path``; empty: not there."""
    package, _, rest = place.partition("/")
    spec = importlib.util.find_spec(package) if package else None
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / rest).is_file():
            return str(Path(folder) / rest)
    return ""


def resolve(setting: str) -> str:
    """From ``skillopt_sandbox`` to ``none``, ``bwrap`` or a command.

    Raises:
        ValueError: ``bwrap`` is asked for and does not work.
    """
    if setting == "auto":
        return "bwrap" if find_bwrap() else "none"
    if setting == "bwrap" and not find_bwrap():
        raise ValueError(
            "skillopt_sandbox: bwrap does not work here. Install bubblewrap, allow unprivileged "
            "user namespaces, or set skillopt_sandbox to none or to a command"
        )
    return setting


def hidden_folders(sandbox: str, project: Path) -> tuple[Path, ...]:
    """Folders whose content an agent in this sandbox cannot see, but for its own."""
    if sandbox != "bwrap":
        return ()
    home, temporary = Path.home().resolve(), Path(tempfile.gettempdir()).resolve()
    wanted = (home, temporary, Path("/tmp"), project.resolve())
    return tuple(dict.fromkeys(path for path in wanted if path != Path("/") and path.is_dir()))


def prefix(
    sandbox: str, *, workspace: Path, home: Path, skill: Path | None, project: Path, executable: str
) -> list[str]:
    """What goes before the agent's command line.

    In bubblewrap the machine is read-only, the user's home, the project and other temporary files
    are empty, other processes cannot be seen and end with the agent. The network stays: the agent
    must reach the proxy.
    """
    if sandbox == "none":
        return []
    if sandbox != "bwrap":
        values = {"{workspace}": str(workspace), "{home}": str(home)}
        return [values.get(word, word) for word in shlex.split(sandbox)]
    argv = [find_bwrap(), "--die-with-parent", "--unshare-pid", "--ro-bind", "/", "/"]
    argv += ["--dev", "/dev", "--proc", "/proc"]
    hidden = hidden_folders(sandbox, project)
    for folder in hidden:
        argv += ["--tmpfs", str(folder)]
    for path in _needed(executable):
        if any(path.is_relative_to(folder) for folder in hidden):
            argv += ["--ro-bind", str(path), str(path)]
    for path in (workspace, home):
        argv += ["--bind", str(path.resolve()), str(path.resolve())]
    if skill is not None:
        argv += ["--ro-bind", str(skill.resolve()), str(skill.resolve())]
    return [*argv, "--chdir", str(workspace.resolve()), "--"]


def _needed(executable: str) -> Sequence[Path]:
    """What programs need of folders that are hidden: their installations."""
    found = [Path(sys.prefix), Path(sys.base_prefix)]
    for name in os.environ.get("PATH", "").split(os.pathsep):
        folder = Path(name)
        if name and folder.is_dir():
            # Beside bin/ lies lib/, except where bin/ is one of many things in a home.
            is_home = folder.parent == Path.home()
            found.append(folder.parent if folder.name == "bin" and not is_home else folder)
    if executable:
        found += [Path(executable).parent, _installation(Path(executable).resolve())]
    return [path for path in dict.fromkeys(found) if path.exists() and path != Path("/")]


def _installation(program: Path) -> Path:
    """The outermost ``node_modules`` of a program of npm, else its folder."""
    for parent in reversed(program.parents):
        if parent.name == "node_modules":
            return parent
    return program.parent


@functools.cache
def _works(path: str) -> bool:
    probe = [path, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid"]
    try:
        done = subprocess.run(
            [*probe, "--die-with-parent", "true"], capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
