"""Run an agent's process: in a sandbox, under a guard, with limits."""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
import json
import os
import select
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from weakref import WeakSet

import pytest

from pytest_skillopt.plugins.agents.adapters import Ended, bundled_path
from pytest_skillopt.plugins.agents.proxy import AgentCalls
from pytest_skillopt.rollouts.folders import TemporaryFolder
from pytest_skillopt.untrusted import logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_skillopt.plugins.agents.adapters import Harness
    from pytest_skillopt.rollouts.context import Stubs

_LOG = logger(__name__)
MOST_PRINTED = 64 << 20  # bytes of output after which a run is ended
LEAST_FREE = 256 << 20  # free bytes on the workspace's disk below which it is ended
_LOOK_MS = 100  # interval at which these limits are checked
_PATIENCE = 15.0  # seconds that a guard has to end a run; it needs at most 12
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
_PLAIN = {"TERM": "dumb", "NO_COLOR": "1", "CI": "1", "DO_NOT_TRACK": "1"}
_XDG = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
_PLACES = {"HOME": "", "TMPDIR": "tmp", "XDG_RUNTIME_DIR": "tmp"}
_PLACES |= {f"XDG_{name}_HOME": place for name, place in _XDG.items()}
_CONFINED = "--die-with-parent --unshare-pid --ro-bind / / --dev /dev --proc /proc"
_OF_ROOT = f"{_CONFINED} --ro-bind /proc/sys /proc/sys --cap-drop ALL"
"""Root keeps its capabilities in bubblewrap, and could take off again what confines it."""
_PROFILES = (".profile", ".bash_profile", ".zprofile")
"""Files of a login shell, which agents use: it may have set another path before it reads them."""
_PRIVATE = (".local/share", ".local/state")
"""Folders beside ``bin`` in which programs keep data, perhaps keys; so do files beside it."""


class Runner:
    """Runner of agents, each with its own home folder and a guard.

    ``sandbox`` is a value of ``resolve``, ``passed`` the environment variables that the user shares
    with agents, ``more`` are further folders to hide.
    """

    def __init__(self, sandbox: str, project: Path, passed: Mapping[str, str], *more: Path) -> None:
        self.sandbox, self.project, self.passed = sandbox, project, passed
        # /run has sockets of other programs (docker, the user's session) and tokens.
        wanted = [Path.home(), Path(tempfile.gettempdir()), Path("/tmp"), Path("/run"), project]
        wanted += more
        found = dict.fromkeys(path.resolve() for path in wanted if path.is_dir())
        # Folders whose content is hidden from an agent, except for its own files.
        self.hidden = [p for p in found if p != Path("/")] if sandbox == "bwrap" else []
        self._guards: subprocess.Popen[bytes] | None = None
        self._asked: socket.socket | None = None
        self._runs: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()

    def run(
        self,
        harness: Harness,
        values: Mapping[str, str],
        workspace: Path,
        limit: float,
        fixed: Sequence[Path] = (),
        agent_calls: AgentCalls | None = None,
        folder: str = "",
        given: bytes = b"",
        env: Mapping[str, str] | None = None,
        kept: Path | None = None,
        stubs: Stubs | None = None,
    ) -> Ended:
        """Run a harness until it ends, until ``agent_calls.stopped``, or for ``limit`` seconds.

        ``values`` are the prompt, the model, the proxy's URL and, if it is another, the key.
        Seconds lost to the infrastructure do not count; without limit if it is 0.
        The paths in ``fixed`` are read-only in bubblewrap; the agent starts in ``folder`` of the
        workspace, with ``given`` as its standard input and with ``env``, or else an environment of
        its own home, beside the harness's own variables. The home is ``kept``, which stays for a
        further run, or else a new one. ``stubs`` are commands of the test, which stand first on the
        agent's path; in bubblewrap they cover the real programs, too.
        """
        started, why, said, agent_calls = time.monotonic(), "exit", b"", agent_calls or AgentCalls()
        # Asked before the program starts, which may fill the disk at once.
        disk = workspace.absolute().parent
        free = _free(disk)
        with contextlib.ExitStack() as stack:
            try:
                guard = stack.enter_context(self._guard())
                made = TemporaryFolder("skillopt-home-")
                stack.callback(made.remove)  # If this process is killed, the guard does it.
                # Opened before the agent can replace them.
                out, err = (stack.enter_context(open(made.path / n, "xb+")) for n in ("out", "err"))
                (made.path / "in").write_bytes(given)
                start, home = workspace / folder, kept or made.path / "home"
                argv, env = self._prepared(harness, {"workspace": str(start), **values}, home, env)
                stubbed = _put_first(stubs, env, home) if stubs is not None else {}
                argv[:0] = self._prefix(harness, argv[0], workspace, home, fixed, start, stubbed)
                told = json.dumps([argv, env, str(start), str(made.path)])
                _LOG.debug("%s begins, with %g s to run", harness.name, limit)
                guard.sendall(f"{told}\n".encode())
            except OSError as error:
                # An agent without a sandbox may have killed whom we ask for a guard.
                why = "guard" if isinstance(error, ConnectionError) else "start"
                return Ended(1, why, 0.0, err=str(error))
            end = select.poll()
            end.register(guard, select.POLLIN | select.POLLHUP)
            try:
                while why == "exit" and not agent_calls.stopped and not end.poll(_LOOK_MS):
                    agent_calls.follow(out)
                    seconds = time.monotonic() - started - agent_calls.lost()
                    if 0 < limit < seconds:
                        why = "time"
                    elif max(os.fstat(f.fileno()).st_size for f in (out, err)) > MOST_PRINTED:
                        why = "printed"
                    elif _free(disk) < LEAST_FREE <= free:
                        why = "disk"
            finally:
                with contextlib.suppress(OSError):  # A guard that failed has closed its end.
                    guard.send(b"end")
                with contextlib.suppress(OSError):
                    said = guard.recv(32) if end.poll(_PATIENCE * 1_000) else b""
            agent_calls.follow(out)
            _LOG.debug("the guard of %s says %r, its end: %s", harness.name, said, why)
            most = 4_000 if why == "printed" else MOST_PRINTED  # that much is nobody's answer
            seconds, texts = time.monotonic() - started, (read_text(out, most), read_text(err))
            if not said.isdigit():
                _end_unguarded(made.path, home)
                return Ended(1, "start" if said else "guard", seconds, *texts)
            return Ended(os.waitstatus_to_exitcode(int(said)), why, seconds, *texts)

    def close(self) -> None:
        """End all runs and wait for them."""
        for guard in list(self._runs):
            with contextlib.suppress(OSError):
                guard.shutdown(socket.SHUT_WR)
        with self._lock:
            if self._asked is not None and self._guards is not None:
                self._asked.close()
                try:
                    self._guards.wait(_PATIENCE)
                except subprocess.TimeoutExpired:
                    self._guards.kill()
                    self._guards.wait()
                self._asked = None

    def _guard(self) -> socket.socket:
        """Ask for a new guard and return the socket to it."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            if self._asked is not None and self._guards and self._guards.poll() is not None:
                self._asked.close()  # Killed together with a rollout's processes.
                self._asked = None
            if self._asked is None:
                command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))]
                self._asked, its = socket.socketpair()
                with its, open(os.devnull, "wb") as null:
                    self._guards = subprocess.Popen(
                        command, 0, None, its.fileno(), null, null, env={}, start_new_session=True
                    )
            assert self._guards is not None
            self._guards.send_signal(signal.SIGCONT)  # An agent without a sandbox can stop it.
            socket.send_fds(self._asked, [b"x"], [theirs.fileno()])
        self._runs.add(ours)
        return ours

    def _prepared(
        self,
        harness: Harness,
        values: Mapping[str, str],
        home: Path,
        env: Mapping[str, str] | None,
    ) -> tuple[list[str], dict[str, str]]:
        """Fill the home folder; return command line and environment.

        Without ``env``, only the path, the locale and the shared variables of the user's
        environment are kept: no key and no proxy.
        """
        from pytest_skillopt.plugins.agents.tree import Tree  # needs what Windows lacks

        ours = {"executable": harness.executable, "home": str(home), "python": sys.executable}
        values = {"key": "skillopt", "session": "", **values, **ours}
        filled = functools.partial(harness.filled, values=values)
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        # In a session an earlier turn of the agent may have left anything here.
        with contextlib.closing(Tree(home)) as tree:
            for name, text in harness.files.items():
                with contextlib.suppress(FileNotFoundError):
                    tree.remove(name)
                tree.write(name, filled(text).encode(), stat.S_IFREG | 0o644)
        if harness.unpacks:
            (home / ".cache" / harness.unpacks).parent.mkdir(parents=True)
            (home / ".cache" / harness.unpacks).symlink_to(_unpacked(harness))
        if env is None:
            env = {name: os.environ[name] for name in KEPT if name in os.environ} | _PLAIN
            env |= {name: str(home / place) for name, place in _PLACES.items()} | dict(self.passed)
        own = {name: filled(text) for name, text in harness.env.items()}
        return [filled(word) for word in harness.argv.split()], {**env, **own}

    def _prefix(
        self,
        harness: Harness,
        program: str,
        workspace: Path,
        home: Path,
        fixed: Sequence[Path],
        start: Path,
        covered: Mapping[Path, Path],
    ) -> list[str]:
        """Return the sandbox's part of the command line.

        In bubblewrap all but workspace and home is read-only; the user's home, the project and
        temporary files appear empty, and other processes are hidden.
        """
        if self.sandbox != "bwrap":
            words = [] if self.sandbox == "none" else shlex.split(self.sandbox)
            return [*(shutil.which(word) or word for word in words[:1]), *words[1:]]
        argv = [*find_bwrap()]
        for folder in self.hidden:
            argv += ["--tmpfs", str(folder)]
        for path in self._shown(harness, program):
            argv += ["--ro-bind", str(path), str(path)]
        here = str(workspace.resolve())
        for place in filter(None, (here, str(home), harness.folder)):
            argv += ["--bind", place, place]
        for path in fixed:
            argv += ["--ro-bind", str(path.resolve()), str(path.resolve())]
        for path, instead in covered.items():
            argv += ["--ro-bind", str(instead), str(path)]
        return [*argv, "--chdir", str(start.resolve()), "--"]

    def _shown(self, harness: Harness, program: str = "") -> list[Path]:
        """List what an agent sees of the hidden folders, beside its own."""
        path = os.environ.get("PATH", "")
        needed = _needed(harness.executable or program, path, tuple(self.hidden))
        found = [*needed, *([_unpacked(harness)] if harness.unpacks else [])]
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


def _put_first(stubs: Stubs, env: dict[str, str], home: Path) -> dict[Path, Path]:
    """Put stubs first on the path; return what a sandbox shows in place of other files."""
    env["PATH"] = f"{stubs.path}{os.pathsep}{env.get('PATH', os.defpath)}"
    for name in _PROFILES:
        (home / name).write_text(f'export PATH={shlex.quote(str(stubs.path))}:"$PATH"\n')
    return {stubs.folder: stubs.folder, **dict(stubs.covered())}


def resolve(setting: str) -> str:
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
    for path, options in itertools.product(paths, [_CONFINED] if os.geteuid() else ways):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if path:
                found = path, *options.split()
                subprocess.run([*found, "true"], capture_output=True, timeout=20, check=True)
                return found
    return ()


def _end_unguarded(folder: Path, home: Path) -> None:
    """Kill what is left of a run whose guard was killed or stopped, and maybe its parent (Linux).

    The environment of each process that an agent starts names the run's home; the standard error of
    the guard, and of most of them, is a file in the run's folder.
    """
    mark, errors = os.fsencode(f"{home}\0"), str(folder / "err")
    until, left = time.monotonic() + _PATIENCE, [""]
    while left:
        left = []
        for process in glob.iglob("/proc/[0-9]*"):
            with contextlib.suppress(OSError):
                given = Path(process, "environ").read_bytes()
                if mark in given or os.readlink(f"{process}/fd/2") == errors:
                    left.append(process)
                    os.kill(int(process.rpartition("/")[2]), signal.SIGKILL)
        if time.monotonic() > until:
            return
        time.sleep(0.01)


def _is_below(path: Path, folders: Collection[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


@functools.cache
def _needed(program: str, path: str, hidden: tuple[Path, ...]) -> list[Path]:
    """List what a program and the commands on the path may need, but no whole hidden folder."""
    real, names = Path(program).resolve(), Path("/etc/resolv.conf").resolve()
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
    whole = (path for path in dict.fromkeys(found) if path.resolve() not in hidden)
    return [path for path in whole if not any(place.is_relative_to(path) for place in hidden)]


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


def _unpacked(harness: Harness) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / harness.unpacks


def _free(folder: Path) -> float:
    """Return the free bytes on a folder's disk; unlimited if an agent has removed the folder."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return float("inf")


def read_text(file: BinaryIO, most: int = MOST_PRINTED) -> str:
    """Read from its beginning what a program has printed into a file, up to ``most`` bytes."""
    file.seek(0)
    return file.read(most).decode(errors="replace")
