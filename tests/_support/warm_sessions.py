"""Sessions of pytest, and workers of xdist, in processes that begin with everything imported.

A server without threads imports pytest, the plugin and the model's SDK once, and forks a process
for each session: with an id, signals and an exit status of its own, but without 2 s of CPU for
imports. ``Worker`` takes the place of execnet's own start of a worker, in these sessions too, and
in the one that runs the tests: its workers share one server. At its end a process runs what it has
registered for that and leaves the rest to the system.
"""

from __future__ import annotations

import atexit
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
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, NoReturn

import pytest
from _pytest.fixtures import FixtureFunctionDefinition, FixtureManager
from execnet import gateway_io
from execnet.gateway_base import Popen2IO

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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
    terminal: int | None = None,
    largest_file: int = 0,
) -> Session:
    """Start ``python -m pytest`` with these arguments.

    Args:
        cwd: folder in which it starts.
        env: its environment, that of this process by default.
        quiet: discard its output.
        terminal: file descriptor that gets its output instead.
        largest_file: bytes beyond which no file may grow: a write fails as on a full disk.
    """
    out = None
    put = terminal
    if quiet:
        put = os.open(os.devnull, os.O_WRONLY)
    elif put is None:
        out, put = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    stdout = None if out is None else os.fdopen(out, encoding="utf-8", errors="replace")
    told = _ask(
        (nothing, put, put),
        arguments=arguments,
        cwd=str(cwd),
        env=dict(os.environ if env is None else env),
        largest_file=largest_file,
    )
    if put != terminal:
        os.close(put)
    os.close(nothing)
    return Session(told, stdout)


def run(*arguments: str, cwd: Path) -> pytest.RunResult:
    """Return what ``python -m pytest`` has come to, with its errors among its output."""
    session = start(*arguments, cwd=cwd)
    said, _ = session.communicate()
    return pytest.RunResult(session.wait(), said.splitlines(), [], 0.0)


ColdWorker = gateway_io.Popen2IOMaster
"""Execnet's own: a worker's process, which imports all that it needs, and the two pipes to it."""


class Worker(ColdWorker):
    """The same for a process that is forked, if it is local and Python would start it no other way.

    Stands in for ``execnet.gateway_io.Popen2IOMaster``.
    """

    def __init__(self, args: list[str], execmodel: Any) -> None:
        python = [argument for argument in args if argument != "-B"]
        local = python == [sys.executable, "-u", "-c", gateway_io.popen_bootstrapline]
        if not local or _read_by_python(os.environ) != _read_by_python(_ENVIRONMENT):
            super().__init__(args, execmodel)
            return
        given, give = os.pipe()
        take, taken = os.pipe()
        told = _ask((given, taken, 2), arguments=None, cwd=os.getcwd(), env=dict(os.environ))
        os.close(given)
        os.close(taken)
        self.popen = Session(told, None)
        Popen2IO.__init__(self, os.fdopen(give, "wb"), os.fdopen(take, "rb"), execmodel)


_SEED = {"PYTHONHASHSEED": "0"}
"""Sets have one order in all that is forked, so that what is shown of them can be compared."""
_ENVIRONMENT = os.environ | _SEED
"""Environment of the server."""


def _read_by_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what Python reads at its start, but for the path, which xdist sends its workers."""
    names = (name for name in environment if name.startswith("PYTHON") and name != "PYTHONPATH")
    return _SEED | {name: environment[name] for name in names}


_inherited: list[socket.socket] = []
"""In a process that was forked: the socket that asks its server."""


def _ask(streams: tuple[int, int, int], **process: Any) -> IO[str]:
    """Ask for a process with these standard streams; return a file that tells its id and end."""
    told, tell = os.pipe()
    requests = ready()
    data = json.dumps(process).encode()
    socket.send_fds(requests, [data], [*streams, tell, requests.fileno()])
    os.close(tell)
    return os.fdopen(told, buffering=1)


def ready() -> socket.socket:
    """Start a server unless one runs; return the socket that asks it."""
    return _inherited[0] if _inherited else _server()[0]


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start the server of this process; it ends when the returned socket is shut down."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        server = subprocess.Popen(
            [sys.executable, __file__, str(its.fileno())],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            env=_ENVIRONMENT,
        )
    return ours, server


def stop() -> None:
    """End the server if there is one."""
    if _server.cache_info().currsize:
        requests, server = _server()
        requests.shutdown(socket.SHUT_RDWR)  # Sessions have it too.
        requests.close()
        server.wait()
        _server.cache_clear()


class _Plugin(metadata.PathDistribution):
    """An installed plugin whose metadata is read once."""

    @cached_property
    def entry_points(self) -> metadata.EntryPoints:
        return super().entry_points

    @cached_property
    def files(self) -> list[metadata.PackagePath] | None:
        return super().files

    @cached_property
    def metadata(self) -> Any:
        return super().metadata


def know_plugins() -> None:
    """Look for the installed plugins of pytest once: each session reads all metadata twice."""
    read = metadata.distributions
    known = list(sys.path)
    found = []
    for each in read():
        if any(point.group == "pytest11" for point in each.entry_points):
            each.__class__ = _Plugin
            found.append(each)

    def distributions(**where: Any) -> Iterable[metadata.Distribution]:
        if where:
            return read(**where)
        return [*read(path=[path for path in sys.path if path not in known]), *found]

    metadata.distributions = distributions


def know_fixtures() -> None:
    """Look once for fixtures in pytest's plugins and ours; each session looks in about seventy."""
    registered = FixtureManager.pytest_plugin_registered

    @cache
    def has_none(found: Any) -> bool:
        name = found.__name__ if isinstance(found, ModuleType) else found.__module__
        if name.partition(".")[0] not in ("_pytest", "xdist", "pytest_skillopt"):
            return False
        places = [found] if isinstance(found, ModuleType) else found.__mro__
        known = [value for place in places for value in vars(place).values()]
        return not any(isinstance(value, FixtureFunctionDefinition) for value in known)

    def pytest_plugin_registered(self: Any, plugin: object, plugin_name: str) -> None:
        found: Any = plugin if isinstance(plugin, ModuleType) else type(plugin)
        if not has_none(found):
            registered(self, plugin, plugin_name)

    setattr(FixtureManager, registered.__name__, pytest_plugin_registered)


class _Imports:
    """Import the plugin as a session does, in which pytest rewrites its assertions."""

    def pytest_configure(self) -> None:
        for package in ("pytest_skillopt", "xdist"):
            path = importlib.import_module(package).__path__
            for found in pkgutil.walk_packages(path, f"{package}."):
                with contextlib.suppress(ImportError):
                    importlib.import_module(found.name)
        _warm_up()


def _warm_up() -> None:
    """Load what only the first call of a model and the first report load."""
    openai = importlib.import_module("openai")
    nowhere = {"base_url": "http://127.0.0.1:9", "api_key": "none", "max_retries": 0}
    with openai.OpenAI(**nowhere) as client, contextlib.suppress(openai.OpenAIError):
        client.models.list()
    for name, template in (("page", "report.html.j2"), ("summary", "summary.md.j2")):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(f"pytest_skillopt.report.{name}")
            module._environment().get_template(template)


def _serve(requests: socket.socket) -> None:
    """Fork a watcher for each request, which forks the process and tells its id and its end."""
    with (
        tempfile.TemporaryDirectory() as empty,
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio"]
        pytest.main([*options, empty], plugins=[_Imports()])
    know_plugins()
    know_fixtures()
    gc.freeze()  # Objects loaded by now stay: no session has to examine them again.
    while True:
        data, fds, _, _ = socket.recv_fds(requests, 1 << 20, 5)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not data:
            return
        if os.fork() == 0:
            requests.close()
            *streams, tell, asking = fds
            process = os.fork()
            if process == 0:
                os.close(tell)
                os.set_inheritable(asking, False)
                _inherited.append(socket.socket(fileno=asking))
                _run(streams, **json.loads(data))
            for fd in (*streams, asking):
                os.close(fd)
            with contextlib.suppress(BrokenPipeError):  # The process that asked may have ended.
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
) -> NoReturn:
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
    status = 0
    if arguments is None:
        sys.path[:0] = ["", *paths]
        exec(eval(sys.stdin.readline()))  # execnet's own beginning of a worker
    else:
        sys.argv = [pytest.__file__, *arguments]
        sys.path[:0] = [cwd, *paths]
        # xdist keeps the path of the time at which it was imported, for its workers.
        importlib.import_module("xdist.plugin")._sys_path[:] = sys.path
        gateway_io.Popen2IOMaster = Worker  # type: ignore[misc]
        status = int(pytest.main(arguments))
    # As Python ends, but without taking apart all that is loaded.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    sys.modules["warm_sessions"] = sys.modules["__main__"]
    _serve(socket.socket(fileno=int(sys.argv[1])))
