"""Supported coding agents: the command line of each, its place here and what it reads by itself."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.plugins.agents.events import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.plugins.agents.events import Event, Trace

_VERSION = re.compile(r"\d+(?:\.\d+)+[\w.+-]*")
_STARTS = 300.0
"""Seconds for a program to tell its version: some need a minute on a busy machine."""
_BLANK = re.compile(r"\{(executable|python|prompt|model|workspace|home|url|key|session)\}")


@dataclass(frozen=True, slots=True)
class Harness:
    """Command line of a coding agent. A project's own harness is named ``module:object``.

    ``argv``, ``env`` and ``files`` are templates with the variables ``{executable}``, ``{python}``
    (this interpreter), ``{prompt}``, ``{model}``, ``{workspace}``, ``{home}`` (an empty folder,
    removed after the run), ``{url}`` (the proxy's, without ``/v1``), ``{key}`` (a dummy: only the
    proxy has the real key) and ``{session}`` (the one to continue; empty for a new one).

    Args:
        name: value of ``skillopt_harness``.
        argv: command line, split at blanks.
        read: called with each JSON line of the output; its exceptions are ignored.
        package: command that installs the harness, for the error if it is missing.
        executable: command, if it differs from ``name``; its absolute path once it is found.
        version: version of the executable, once it is found.
        env: environment variables.
        files: contents by path relative to the home.
        skills: folder in a project where the harness looks for skills.
        memory: documents of a project's folder that it reads by itself, the usual one first.
        speaks: model API: ``messages`` (Anthropic), ``chat``, ``responses`` or ``gemini``.
        explicit: prompt that forces a skill, with ``{name}`` and ``{prompt}``; empty: impossible.
        bundled: ``package/path`` of the executable in an installed Python package.
        folder: folder of the user that it may read and write in bubblewrap.
        unpacks: folder in the user's cache into which it unpacks itself at ``--version``.
        tested: latest version that was tested.
        once: part of ``argv`` that keeps no session, which a conversation of several turns omits.
        resume: what stands in its place in a further turn, with ``{session}``; empty: impossible,
            unless ``argv`` itself has ``{session}``.
    """

    name: str
    argv: str
    read: Callable[[Event, Trace], None]
    package: str
    executable: str = ""
    version: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    skills: str = ".agents/skills"
    memory: Sequence[str] = ()
    speaks: str = "chat"
    explicit: str = ""
    bundled: str = ""
    folder: str = ""
    unpacks: str = ""
    tested: str = ""
    once: str = ""
    resume: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def keeps_sessions(self) -> bool:
        """Whether a further run can continue the session of another."""
        return bool(self.resume) or "{session}" in self.argv

    def in_session(self, session: str) -> Harness:
        """Return the harness for a turn of a session, the first turn if its name is empty."""
        if not self.once:
            return self
        instead = self.resume if session else ""
        return replace(self, argv=self.argv.replace(self.once, instead))

    def fill(self, text: str, values: Mapping[str, str]) -> str:
        """Fill in a template of ``argv``, ``env`` or ``files`` for one run."""
        return _BLANK.sub(lambda blank: values[blank[1]], text)


def read_tables(file: str) -> dict[str, dict[str, Any]]:
    """Read the tables of a file beside this one, with the readers that they name."""
    tables = tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    for table in tables.values():
        if "read" in table:
            table["read"] = READERS[table["read"]]
    return tables


def _known() -> dict[str, Harness]:
    found = {}
    for name, table in read_tables("known.toml").items():
        harness = Harness(name, **table)
        found[name] = _over_acp(harness) if harness.read is READERS["acp"] else harness
    return found


def _over_acp(harness: Harness) -> Harness:
    """Have our client run the command line of a harness, which speaks ACP."""
    script = Path(__file__).with_name("acp.py").read_text(encoding="utf-8")
    argv = f"{{python}} -I -S {{home}}/acp.py {{session}} {{prompt}} {{workspace}} {harness.argv}"
    return replace(harness, argv=argv, files={**harness.files, "acp.py": script})


KNOWN = _known()
_ACP = KNOWN.pop("acp")
MEMORY = tuple(dict.fromkeys(name for known in KNOWN.values() for name in known.memory))
"""Names of documents that some harness reads by itself, such as AGENTS.md."""
NAMES = f"{', '.join(KNOWN)}, acp:COMMAND or module:object"


def find_harness(name: str) -> Harness:
    """Find a harness by name; UsageError, listing the possible names, if there is none."""
    module, _, rest = name.partition(":")
    if name in KNOWN:
        return KNOWN[name]
    if not rest.strip():
        raise pytest.UsageError(f"skillopt_harness: {name!r} is not one of {NAMES}")
    if module == "acp":
        program, _, arguments = rest.strip().partition(" ")
        return replace(
            _ACP,
            name=name,
            argv=f"{_ACP.argv} {arguments}",
            executable=program,
            package=f"the package that provides the command {program!r}",
        )
    try:
        found = getattr(import_module(module), rest)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"skillopt_harness: {name!r} cannot be loaded: {error}") from None
    if not isinstance(found, Harness):
        raise pytest.UsageError(f"skillopt_harness: {name!r} is not a Harness")
    return found


def bundled_path(place: str) -> str:
    """Find a file in an installed package by ``package/path``; empty if it is missing."""
    package, _, rest = place.partition("/")
    spec = importlib.util.find_spec(package) if package else None
    paths = [Path(folder) / rest for folder in (spec and spec.submodule_search_locations) or ()]
    return next((str(path) for path in paths if path.is_file()), "")


def missing_program(name: str, harness: Harness) -> str:
    """Say that a harness is not installed, and what installs it."""
    return (
        f"{name} needs the command {harness.executable or harness.name!r}, which is not "
        f"installed; install it with: {harness.package}"
    )


@functools.cache
def installed(name: str, own: bool = False) -> Harness:
    """Find a harness with the path and version of its executable.

    With ``own`` the user's program comes before the one in a Python package.

    Raises:
        pytest.UsageError: it is unknown, not installed, or prints no version.
    """
    harness = find_harness(name)
    found = shutil.which(harness.executable or harness.name)
    ours = bundled_path(harness.bundled)
    path = (found or ours) if own else (ours or found)
    if not path:
        raise pytest.UsageError(f"skillopt_harness: {missing_program(name, harness)}")
    # Its fixed variables keep it from updating or starting itself again.
    env = os.environ | {name: text for name, text in harness.env.items() if "{" not in text}
    ask = functools.partial(subprocess.run, stdin=subprocess.DEVNULL, capture_output=True, env=env)
    try:
        done = ask([path, "--version"], text=True, timeout=_STARTS)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise pytest.UsageError(f"{path} cannot be run: {error}") from None
    printed = done.stdout + done.stderr
    match = _VERSION.search(printed)
    if match is None and not name.startswith("acp:"):
        words = printed.strip()[:200] or "nothing"
        raise pytest.UsageError(f"{path} --version prints no version, but: {words}")
    version = match[0] if match else "0"
    return replace(harness, executable=path, version=version)


def memory_name(harness: Harness, path: str) -> str:
    """Return the part of a path that is a document's name, known or a harness's own, or ""."""
    names = (*MEMORY, *harness.memory)
    return next((name for name in names if f"/{path}".endswith(f"/{name}")), "")


def document_place(harness: Harness, path: str) -> tuple[str, list[str]]:
    """Return where a harness reads a document of the project, and all that it takes the place of.

    Only that document is in its folder then: most harnesses read several, or another one instead.
    Paths are relative to the project, with ``/``.
    """
    name = memory_name(harness, path)
    if not name:
        return path, [path]
    folder = path.removesuffix(name)
    read = name if name in harness.memory else next(iter(harness.memory), name)
    return folder + read, [folder + other for other in dict.fromkeys([*MEMORY, *harness.memory])]
