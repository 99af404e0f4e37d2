"""Sessions of pytest, and workers of xdist, in processes that begin with everything imported.

A server without threads imports pytest, the plugin and the model's SDK once, and forks a process
for each session: with an id, signals and an exit status of its own, but without 2 s of CPU for
imports. ``Worker`` takes the place of execnet's own start of a worker.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
from execnet.gateway_base import Popen2IO
from execnet.gateway_io import Popen2IOMaster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Session:
    """A session that runs or has ended, as far as the tests need a ``subprocess.Popen``.

    Attributes:
        pid: its process.
        returncode: its exit status, minus the signal that ended it, None while it is not known.
        stdout: its output and errors, if they are not discarded.
    """

    def __init__(self, told: IO[str], stdout: IO[str] | None) -> None:
        self._told = told
        self._waiting = threading.Lock()
        self.pid = int(told.readline())
        self.returncode: int | None = None
        self.stdout = stdout

    def poll(self) -> int | None:
        """Return its exit status if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status once it has ended, to each thread that waits."""
        expired = subprocess.TimeoutExpired("pytest", timeout or 0)
        if not self._waiting.acquire(timeout=-1 if timeout is None else timeout):
            raise expired
        try:
            if self.returncode is None:
                if not select.select([self._told], [], [], timeout)[0]:
                    raise expired
                self.returncode = os.waitstatus_to_exitcode(int(self._told.readline()))
                self._told.close()
            return self.returncode
        finally:
            self._waiting.release()

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Return its output and errors once it has ended."""
        assert self.stdout is not None
        with self.stdout:
            said = self.stdout.read()
        self.wait(timeout)
        return said, None

    def send_signal(self, signum: int) -> None:
        """Send a signal if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """End it, whatever it does."""
        self.send_signal(signal.SIGKILL)


def start(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    quiet: bool = False,
    largest_file: int = 0,
) -> Session:
    """Start ``python -m pytest`` with these arguments.

    Args:
        cwd: folder in which it starts.
        env: its environment, that of this process by default.
        quiet: discard its output.
        largest_file: bytes beyond which no file may grow: a write fails as on a full disk.
    """
    out, put = (None, os.open(os.devnull, os.O_WRONLY)) if quiet else os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    stdout = None if out is None else os.fdopen(out, encoding="utf-8", errors="replace")
    told = _ask(
        (nothing, put, put),
        arguments=arguments,
        cwd=str(cwd),
        env=dict(os.environ if env is None else env),
        largest_file=largest_file,
    )
    os.close(put)
    os.close(nothing)
    return Session(told, stdout)


class Worker(Popen2IOMaster):
    """A local worker's process and the two pipes to it, in the place of execnet's class."""

    def __init__(self, args: list[str], execmodel: Any) -> None:
        if args[0] != sys.executable:  # another machine's
            super().__init__(args, execmodel)
            return
        given, give = os.pipe()
        take, taken = os.pipe()
        told = _ask((given, taken, 2), arguments=None, cwd=os.getcwd(), env=dict(os.environ))
        os.close(given)
        os.close(taken)
        self.popen = Session(told, None)
        Popen2IO.__init__(self, os.fdopen(give, "wb"), os.fdopen(take, "rb"), execmodel)


def _ask(streams: tuple[int, int, int], **process: Any) -> IO[str]:
    """Ask for a process with these standard streams; return a file that tells its id and end."""
    told, tell = os.pipe()
    requests, _ = _server()
    socket.send_fds(requests, [json.dumps(process).encode()], [*streams, tell])
    os.close(tell)
    return os.fdopen(told, buffering=1)


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the server of this process; it ends when the returned socket is closed."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, __file__, str(its.fileno())]
        server = subprocess.Popen(command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
    return ours, server


def stop() -> None:
    """End the server if there is one."""
    if _server.cache_info().currsize:
        requests, server = _server()
        requests.close()
        server.wait()
        _server.cache_clear()


class _Imports:
    """Import the plugin as a session does, in which pytest rewrites its assertions."""

    def pytest_configure(self) -> None:
        for package in ("pytest_skillopt", "xdist"):
            path = importlib.import_module(package).__path__
            for found in pkgutil.walk_packages(path, f"{package}."):
                with contextlib.suppress(ImportError):
                    importlib.import_module(found.name)


def _serve(requests: socket.socket) -> None:
    """Fork a watcher for each request, which forks the process and tells its id and its end."""
    with (
        tempfile.TemporaryDirectory() as empty,
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        pytest.main(["-q", "-p", "no:cacheprovider", empty], plugins=[_Imports()])
    gc.freeze()  # Objects loaded by now stay: no session has to examine them again.
    while True:
        data, fds, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not data:
            return None
        if os.fork() == 0:
            requests.close()
            *streams, tell = fds
            process = os.fork()
            if process == 0:
                os.close(tell)
                return _run(streams, **json.loads(data))
            for fd in streams:
                os.close(fd)
            os.write(tell, f"{process}\n".encode())
            os.write(tell, f"{os.waitpid(process, 0)[1]}\n".encode())
            os._exit(0)
        for fd in fds:
            os.close(fd)


def _run(
    streams: Sequence[int],
    arguments: list[str] | None,
    cwd: str,
    env: dict[str, str],
    largest_file: int = 0,
) -> None:
    """Become the session with these arguments, or a worker if there are none."""
    if largest_file:
        resource = importlib.import_module("resource")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # It was found in another environment.
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    paths = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    if arguments is None:
        sys.path[:0] = ["", *paths]
        exec(eval(sys.stdin.readline()))  # execnet's own beginning of a worker
        raise SystemExit
    sys.argv = [pytest.__file__, *arguments]
    sys.path[:0] = [cwd, *paths]
    # xdist keeps the path of the time at which it was imported, for its workers.
    importlib.import_module("xdist.plugin")._sys_path[:] = sys.path
    raise SystemExit(pytest.main(arguments))


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    _serve(socket.socket(fileno=int(sys.argv[1])))
