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


def bundled_path(place: str) -> str:
    """The path of a file in an installed package, from ``package/path``; empty: not there."""
    package, _, rest = place.partition("/")
    spec = importlib.util.find_spec(package) if package else None
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / rest).is_file():
            return str(Path(folder) / rest)
    return ""


@functools.cache
def find_bwrap() -> str:
    """A bubblewrap that works on this machine; empty where there is none."""
    probe = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "true"]
    for path in (shutil.which("bwrap"), bundled_path("codex_cli_bin/codex-resources/bwrap")):
        try:
            if path:
                subprocess.run([path, *probe], capture_output=True, timeout=20, check=True)
                return path
        except (OSError, subprocess.SubprocessError):
            continue
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
            "bwrap does not work here; install bubblewrap, allow unprivileged user namespaces, or "
            "set skillopt_sandbox to none or to a command"
        )
    return setting


def user_cache() -> Path:
    """Where programs of this user keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def hidden_folders(sandbox: str, project: Path) -> list[Path]:
    """Folders whose content an agent in this sandbox cannot see, but for its own."""
    wanted = [Path.home(), Path(tempfile.gettempdir()), Path("/tmp"), project]
    found = dict.fromkeys(path.resolve() for path in wanted if path.is_dir())
    return [path for path in found if path != Path("/")] if sandbox == "bwrap" else []


def prefix(
    sandbox: str,
    workspace: Path,
    home: Path,
    skill: Path | None,
    project: Path,
    executable: str,
    unpacks: str,
) -> list[str]:
    """What goes before the agent's command line.

    In bubblewrap the machine and the skill are read-only, the user's home, the project and other
    temporary files are empty, other processes cannot be seen and end with the agent. The network
    stays: the agent must reach the proxy.
    """
    if sandbox != "bwrap":
        return [] if sandbox == "none" else shlex.split(sandbox)
    argv = [find_bwrap(), "--die-with-parent", "--unshare-pid", "--ro-bind", "/", "/"]
    argv += ["--dev", "/dev", "--proc", "/proc"]
    hidden = hidden_folders(sandbox, project)
    for folder in hidden:
        argv += ["--tmpfs", str(folder)]
    # What programs need of folders that are hidden: their installations.
    needed = [Path(sys.prefix), Path(sys.base_prefix)]
    for path in filter(Path.is_dir, map(Path, os.environ.get("PATH", "").split(os.pathsep))):
        # Beside bin/ lies lib/, except where bin/ is one of many things in a home.
        beside = path.name == "bin" and path.parent != Path.home()
        needed.append(path.parent if beside else path)
    if executable:
        program = Path(executable).resolve()
        modules = [parent for parent in program.parents if parent.name == "node_modules"]
        needed += [Path(executable).parent, (modules or [program.parent])[-1]]
    if unpacks:
        needed.append(user_cache() / unpacks)
    for path in dict.fromkeys(needed):
        if any(path.is_relative_to(folder) for folder in hidden) and path.exists():
            argv += ["--ro-bind", str(path), str(path)]
    for path in (workspace.resolve(), home.resolve()):
        argv += ["--bind", str(path), str(path)]
    if skill is not None:
        argv += ["--ro-bind", str(skill.resolve()), str(skill.resolve())]
    return [*argv, "--chdir", str(workspace.resolve()), "--"]
