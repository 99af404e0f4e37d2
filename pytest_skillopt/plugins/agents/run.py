"""Run an agent's process: under a guard, in the sandbox, with limits."""

from __future__ import annotations

import contextlib
import functools
import glob
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
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from weakref import WeakSet

from pytest_skillopt.plugins.agents.proxy import AgentCalls
from pytest_skillopt.plugins.agents.sandbox import unpack_folder
from pytest_skillopt.plugins.agents.tree import Tree
from pytest_skillopt.rollouts.folders import TemporaryFolder
from pytest_skillopt.untrusted import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.plugins.agents.known import Harness
    from pytest_skillopt.plugins.agents.sandbox import Sandbox
    from pytest_skillopt.rollouts.context import Stubs

_LOG = logger(__name__)
MOST_PRINTED = 64 << 20  # bytes of output after which a run is ended
LEAST_FREE = 256 << 20  # free bytes on the workspace's disk below which it is ended
_LOOK_MS = 100  # interval at which these limits are checked
_LONGEST_LOOK = 1.0  # seconds; this process was stopped in a longer interval, as by Ctrl-Z
_PATIENCE = 15.0  # seconds that a guard has to end a run; it needs at most 12
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
_PLAIN = {"TERM": "dumb", "NO_COLOR": "1", "CI": "1", "DO_NOT_TRACK": "1"}
_XDG = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
_PLACES = {"HOME": "", "TMPDIR": "tmp", "XDG_RUNTIME_DIR": "tmp"}
_PLACES |= {f"XDG_{name}_HOME": place for name, place in _XDG.items()}
_PROFILES = (".profile", ".bash_profile", ".zprofile")
"""Files of a login shell, which agents use: it may have set another path before it reads them."""


@dataclass(frozen=True, slots=True)
class Start:
    """An agent to start, and what it starts with."""

    harness: Harness
    values: Mapping[str, str]
    """The prompt, the model, the proxy's URL and, if it is another, the key."""
    workspace: Path
    folder: str = ""
    """Folder of the workspace in which it starts."""
    fixed: Sequence[Path] = ()
    """Paths in the workspace that bubblewrap makes read-only."""
    given: bytes = b""
    """Its standard input."""
    env: Mapping[str, str] | None = None
    """Its environment, beside the harness's own variables; None: one of its own home."""
    home: Path | None = None
    """Home that is kept for a further run; None: a new one."""
    stubs: Stubs | None = None
    """Commands of the test, first on the agent's path; bubblewrap covers the real programs."""


class RunEnd(NamedTuple):
    """End of a run.

    ``status`` is the exit status, or the negative number of the signal that ended it. ``why`` is
    ``exit`` (also on request), ``time``, ``printed``, ``disk``, ``guard`` (its guard was killed) or
    ``start`` (it never ran).
    """

    status: int
    why: str
    seconds: float
    out: str = ""
    err: str = ""

    @property
    def fault(self) -> str:
        """Reason why the infrastructure is to blame, in words; "" if it is not known to be."""
        words = {
            "start": f"could not be started: {self.last_error}",
            "guard": "the process that guards the agent was killed, so its result is unknown",
            "printed": f"printed more than {MOST_PRINTED} bytes",
            "disk": "the disk is full, so the run was ended",
        }
        return words.get(self.why, "")

    @property
    def last_error(self) -> str:
        """End of what it printed as errors, on one line of at most 300 characters."""
        return " ".join(self.err.split())[-300:]


class Runner:
    """Runner of agents, each with its own home folder and a guard.

    ``passed`` are the environment variables that the user shares with agents.
    """

    def __init__(self, sandbox: Sandbox, project: Path, passed: Mapping[str, str]) -> None:
        self.sandbox = sandbox
        self.project = project
        self.passed = passed
        self._guards: subprocess.Popen[bytes] | None = None
        self._asked: socket.socket | None = None
        self._runs: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()

    def run(self, start: Start, limit: float, agent_calls: AgentCalls | None = None) -> RunEnd:
        """Run an agent until it ends, until ``agent_calls.stopped``, or for ``limit`` seconds.

        Seconds lost to the infrastructure do not count, nor those in which this process was
        stopped and could not serve the agent; without limit if it is 0.
        """
        began = time.monotonic()
        agent_calls = agent_calls or AgentCalls()
        bounds = _Bounds(limit, start.workspace.absolute().parent)
        with contextlib.ExitStack() as stack:
            try:
                guard = stack.enter_context(self._guard())
                made = TemporaryFolder("skillopt-home-")
                stack.callback(made.remove)  # If this process is killed, the guard does it.
                # Opened before the agent can replace them.
                out, err = (stack.enter_context(open(made.path / n, "xb+")) for n in ("out", "err"))
                (made.path / "in").write_bytes(start.given)
                home = start.home or made.path / "home"
                argv, env = self._prepare(start, home)
                place = str(start.workspace / start.folder)
                order = json.dumps([argv, env, place, str(made.path)])
                _LOG.debug("%s begins, with %g s to run", start.harness.name, limit)
                guard.sendall(f"{order}\n".encode())
            except OSError as error:
                # An agent without a sandbox may have killed whom we ask for a guard.
                why = "guard" if isinstance(error, ConnectionError) else "start"
                return RunEnd(1, why, 0.0, err=str(error))

            why = ""
            status = b""
            end = select.poll()
            end.register(guard, select.POLLIN | select.POLLHUP)
            try:
                while not why and not agent_calls.stopped and not end.poll(_LOOK_MS):
                    agent_calls.follow(out)
                    why = bounds.exceeded(agent_calls.lost, (out, err))
            finally:
                with contextlib.suppress(OSError):  # A guard that failed has closed its end.
                    guard.send(b"end")
                with contextlib.suppress(OSError):
                    if end.poll(_PATIENCE * 1_000):
                        status = guard.recv(32)
            agent_calls.follow(out)
            _LOG.debug("the guard of %s says %r: %s", start.harness.name, status, why or "exit")
            most = 4_000 if why == "printed" else MOST_PRINTED  # that much is nobody's answer
            if not status.isdigit():
                _end_unguarded(made.path, home)
            code, why = _exit_of(status, why)
            seconds = time.monotonic() - began
            return RunEnd(code, why, seconds, read_text(out, most), read_text(err))

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

    def _prepare(self, start: Start, home: Path) -> tuple[list[str], dict[str, str]]:
        """Fill the home folder; return command line and environment.

        Of the user's environment only the path, the locale and the shared variables are kept,
        unless the start has one: no key and no proxy.
        """
        harness = start.harness
        workspace = start.workspace
        stubs = start.stubs
        place = workspace / start.folder
        ours = {"executable": harness.executable, "home": str(home), "python": sys.executable}
        given = {"workspace": str(place), "key": "skillopt", "session": "", **start.values}
        fill = functools.partial(harness.fill, values=given | ours)
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        # In a session an earlier turn of the agent may have left anything here.
        with contextlib.closing(Tree(home)) as tree:
            for name, text in harness.files.items():
                with contextlib.suppress(FileNotFoundError):
                    tree.remove(name)
                tree.write(name, fill(text).encode(), stat.S_IFREG | 0o644)
        if harness.unpacks:
            (home / ".cache" / harness.unpacks).parent.mkdir(parents=True)
            (home / ".cache" / harness.unpacks).symlink_to(unpack_folder(harness))
        if start.env is None:
            env = {name: os.environ[name] for name in KEPT if name in os.environ} | _PLAIN
            env |= {name: str(home / place) for name, place in _PLACES.items()} | dict(self.passed)
        else:
            env = dict(start.env)
        env |= {name: fill(text) for name, text in harness.env.items()}
        argv = [fill(word) for word in harness.argv.split()]
        covered = [(path.resolve(), path.resolve()) for path in start.fixed]
        if stubs is not None:
            _put_first(stubs, env, home)
            covered += [(stubs.folder, stubs.folder), *stubs.covered()]
        writable = filter(None, (str(workspace.resolve()), str(home), harness.folder))
        prefix = self.sandbox.command(harness, argv[0], writable, covered, place)
        return [*prefix, *argv], env


def _put_first(stubs: Stubs, env: dict[str, str], home: Path) -> None:
    """Put the commands of a test first on the path."""
    env["PATH"] = f"{stubs.path}{os.pathsep}{env.get('PATH', os.defpath)}"
    for name in _PROFILES:
        (home / name).write_text(f'export PATH={shlex.quote(str(stubs.path))}:"$PATH"\n')


class _Bounds:
    """Bounds of a run: its time, what it prints, and the disk of its workspace.

    It is made before the program starts, which may fill the disk at once.

    Args:
        limit: seconds, without those that are lost; no limit if it is 0.
        disk: a folder on the disk.
    """

    def __init__(self, limit: float, disk: Path) -> None:
        self._limit = limit
        self._disk = disk
        self._free = _free(disk)
        self._spent = 0.0
        self._looked = time.monotonic()

    def exceeded(self, lost: float, printed: Iterable[BinaryIO]) -> str:
        """Return why the run is to be ended, or "" if it may go on.

        Args:
            lost: seconds lost to the infrastructure so far.
            printed: files of what it prints.
        """
        now = time.monotonic()
        self._spent += min(now - self._looked, _LONGEST_LOOK)
        self._looked = now
        if 0 < self._limit < self._spent - lost:
            return "time"
        if max(os.fstat(file.fileno()).st_size for file in printed) > MOST_PRINTED:
            return "printed"
        return "disk" if _free(self._disk) < LEAST_FREE <= self._free else ""


def _exit_of(status: bytes, why: str) -> tuple[int, str]:
    """Return the exit status that a guard has told, and why the run has ended."""
    if status.isdigit():
        return os.waitstatus_to_exitcode(int(status)), why or "exit"
    return 1, "start" if status else "guard"


def _end_unguarded(folder: Path, home: Path) -> None:
    """Kill what is left of a run whose guard was killed or stopped, and maybe its parent (Linux).

    The environment of each process that an agent starts names the run's home; the standard error of
    the guard, and of most of them, is a file in the run's folder.
    """
    mark = os.fsencode(f"{home}\0")
    errors = str(folder / "err")
    until = time.monotonic() + _PATIENCE
    left = [""]
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
