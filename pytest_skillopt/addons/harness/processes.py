"""Run an agent's process: in a sandbox, under a guard, with limits."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from weakref import WeakSet

import pytest

from pytest_skillopt.addons.harness.adapters import Ended, bundled_path
from pytest_skillopt.addons.harness.proxy import Ticket
from pytest_skillopt.suite.folders import TemporaryFolder
from pytest_skillopt.untrusted import logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.addons.harness.adapters import Harness

_LOG = logger(__name__)
MOST_PRINTED = 64 << 20  # bytes of output after which a run is ended
LEAST_FREE = 256 << 20  # free bytes on the workspace's disk below which it is ended
_LOOK_MS = 100  # interval at which these limits are checked
_PATIENCE = 15.0  # seconds that a guard has to end a run; it needs at most 12
_KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
_PLAIN = {"TERM": "dumb", "NO_COLOR": "1", "CI": "1", "DO_NOT_TRACK": "1"}
_XDG = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
_PLACES = {"HOME": "", "TMPDIR": "tmp", "XDG_RUNTIME_DIR": "tmp"}
_PLACES |= {f"XDG_{name}_HOME": place for name, place in _XDG.items()}


class Runner:
    """Runner of agents, each with its own home folder and a guard.

    ``sandbox`` is a value of ``resolve``, ``passed`` the environment variables that the user shares
    with agents.
    """

    def __init__(self, sandbox: str, project: Path, passed: Mapping[str, str]) -> None:
        self.sandbox, self.project, self.passed = sandbox, project, passed
        wanted = [Path.home(), Path(tempfile.gettempdir()), Path("/tmp"), project]
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
        ticket: Ticket | None = None,
        folder: str = "",
    ) -> Ended:
        """Run a harness until it ends, until ``ticket.stopped``, or for ``limit`` seconds.

        Seconds lost to the infrastructure (``ticket.lost``) do not count; without limit if it is 0.
        The paths in ``fixed`` are read-only in bubblewrap; the agent starts in ``folder`` of the
        workspace.
        """
        started, why, said, ticket = time.monotonic(), "exit", b"", ticket or Ticket()
        with contextlib.ExitStack() as stack:
            try:
                guard = stack.enter_context(self._guard())
                made = TemporaryFolder("skillopt-home-")
                stack.callback(made.remove)  # If this process is killed, the guard does it.
                # Opened before the agent can replace them.
                out, err = (stack.enter_context(open(made.path / n, "xb+")) for n in ("out", "err"))
                argv, env = self._prepared(harness, values, made.path / "home")
                start = workspace / folder
                argv[:0] = self._prefix(
                    harness, argv[0], workspace, made.path / "home", fixed, start
                )
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
                disk = workspace.absolute().parent
                free = shutil.disk_usage(disk).free
                while why == "exit" and not ticket.stopped and not end.poll(_LOOK_MS):
                    ticket.follow(out)
                    seconds = time.monotonic() - started - ticket.lost()
                    if 0 < limit < seconds:
                        why = "time"
                    elif os.fstat(out.fileno()).st_size > MOST_PRINTED:
                        why = "printed"
                    elif shutil.disk_usage(disk).free < LEAST_FREE <= free:
                        why = "disk"
            finally:
                with contextlib.suppress(OSError):  # A guard that failed has closed its end.
                    guard.send(b"end")
                with contextlib.suppress(OSError):
                    said = guard.recv(32) if end.poll(_PATIENCE * 1_000) else b""
            ticket.follow(out)
            _LOG.debug("the guard of %s says %r, its end: %s", harness.name, said, why)
            seconds, texts = time.monotonic() - started, (read_text(out), read_text(err))
            if not said.isdigit():
                _end_unguarded(made.path)
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
            socket.send_fds(self._asked, [b"x"], [theirs.fileno()])
        self._runs.add(ours)
        return ours

    def _prepared(
        self, harness: Harness, values: Mapping[str, str], home: Path
    ) -> tuple[list[str], dict[str, str]]:
        """Fill the home folder; return command line and environment.

        Only the path, the locale and the shared variables of the user's environment are kept: no
        key and no proxy.
        """
        values = {**values, "home": str(home), "python": sys.executable}
        filled = functools.partial(harness.filled, values=values)
        (home / "tmp").mkdir(parents=True)
        for name, text in harness.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(filled(text), encoding="utf-8")
        if harness.unpacks:
            (home / ".cache" / harness.unpacks).parent.mkdir(parents=True)
            (home / ".cache" / harness.unpacks).symlink_to(_unpacked(harness))
        env = {name: os.environ[name] for name in _KEPT if name in os.environ} | _PLAIN
        env |= {name: str(home / place) for name, place in _PLACES.items()} | dict(self.passed)
        env |= {name: filled(text) for name, text in harness.env.items()}
        return [filled(word) for word in harness.argv.split()], env

    def _prefix(
        self,
        harness: Harness,
        program: str,
        workspace: Path,
        home: Path,
        fixed: Sequence[Path],
        start: Path,
    ) -> list[str]:
        """Return the sandbox's part of the command line.

        In bubblewrap all but workspace and home is read-only; the user's home, the project and
        temporary files appear empty, and other processes are hidden.
        """
        if self.sandbox != "bwrap":
            words = [] if self.sandbox == "none" else shlex.split(self.sandbox)
            return [*(shutil.which(word) or word for word in words[:1]), *words[1:]]
        argv = [find_bwrap(), "--die-with-parent", "--unshare-pid", "--ro-bind", "/", "/"]
        argv += ["--dev", "/dev", "--proc", "/proc"]
        for folder in self.hidden:
            argv += ["--tmpfs", str(folder)]
        needed = _needed(harness.executable or program, os.environ.get("PATH", ""))
        for path in (*needed, *([_unpacked(harness)] if harness.unpacks else [])):
            if any(path.is_relative_to(folder) for folder in self.hidden) and path.exists():
                argv += ["--ro-bind", str(path), str(path)]
        here = str(workspace.resolve())
        for place in filter(None, (here, str(home), harness.folder)):
            argv += ["--bind", place, place]
        for path in fixed:
            argv += ["--ro-bind", str(path.resolve()), str(path.resolve())]
        return [*argv, "--chdir", str(start.resolve()), "--"]


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


@functools.cache
def find_bwrap() -> str:
    """Return the path of a working bubblewrap, empty if there is none."""
    probe = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "true"]
    for path in (shutil.which("bwrap"), bundled_path("codex_cli_bin/codex-resources/bwrap")):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if path:
                subprocess.run([path, *probe], capture_output=True, timeout=20, check=True)
                return path
    return ""


def _end_unguarded(folder: Path) -> None:
    """Kill what is left of a run whose guard was killed, perhaps together with its parent (Linux).

    The environment of each process that an agent starts names the run's own folder.
    """
    mark, until = os.fsencode(f"{folder}/home\0"), time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        left = []
        for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc/self") else ()):
            with contextlib.suppress(OSError):
                if mark in Path("/proc", name, "environ").read_bytes():
                    left.append(int(name))
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


@functools.cache
def _needed(program: str, path: str) -> list[Path]:
    """List the installation folders that a program and the commands on the path may need."""
    found = [Path(sys.prefix), Path(sys.base_prefix)]
    for folder in map(Path, path.split(os.pathsep)):
        # Include lib/ beside bin/, but not a whole home folder for its bin/.
        beside = folder.name == "bin" and folder.parent != Path.home()
        found.append(folder.parent if beside else folder)
    real = Path(program).resolve()
    modules = [parent for parent in real.parents if parent.name == "node_modules"]
    return list(dict.fromkeys([*found, Path(program).parent, (modules or [real.parent])[-1]]))


def _unpacked(harness: Harness) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / harness.unpacks


def read_text(file: BinaryIO) -> str:
    """Read from its beginning what a program has printed into a file."""
    file.seek(0)
    return file.read(MOST_PRINTED).decode(errors="replace")
