"""Workers on other machines over SSH: OpenSSH's server on the loopback interface."""

from __future__ import annotations

import contextlib
import functools
import getpass
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fault_project import FaultProject, outcome, play
from patience import PATIENCE, wait_until

import pytest_skillopt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chat_server import Body, ChatServer

DEATH = 4
"""The call at which a host dies: early in the first round, which has twelve."""
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {keys}/host
AuthorizedKeysFile {keys}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
LogLevel VERBOSE
SetEnv PYTHONPATH={pythonpath} {compiled}
"""
CLIENT = """
Host *
    HostName 127.0.0.1
    User {user}
    IdentityFile {keys}/user
    IdentitiesOnly yes
    UserKnownHostsFile {keys}/known
    StrictHostKeyChecking accept-new
    LogLevel ERROR
"""
WHERE = (
    'with open("ran", "a") as file: '
    "file.write(f\"{os.environ.get('PYTEST_XDIST_WORKER')} {sys.version_info[1]}\\n\")"
)


class Host:
    """A machine with the project, reached through a server of its own."""

    def __init__(self, name: str, project: Path, keys: Path, compiled: Path, python: str) -> None:
        self.folder = keys.parent / name
        subprocess.run(["git", "clone", "-q", project, self.folder], check=True)
        self._log = keys / f"{name}.log"
        self._config = keys / f"{name}.conf"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        path = f"{Path(pytest_skillopt.__file__).parents[1]}:{sysconfig.get_path('purelib')}"
        elsewhere = "" if python == sys.executable else f"PYTHONPYCACHEPREFIX={compiled}"
        places = {"keys": keys, "compiled": elsewhere, "pythonpath": path}
        self._config.write_text(CONFIG.format(port=self._port, **places))
        with (keys / "client").open("a") as client:
            client.write(f"Host {name}\n    Port {self._port}\n")
        self.spec = (
            f"ssh={name}//python={python}//chdir={self.folder}//ssh_config={keys / 'client'}"
        )
        self._server: subprocess.Popen[bytes]

    def start(self) -> None:
        assert SSHD is not None
        with self._log.open("ab") as log:
            command = [SSHD, "-D", "-e", "-f", str(self._config)]
            self._server = subprocess.Popen(command, stderr=log, start_new_session=True)
        wait_until(lambda: b"Server listening" in self._log.read_bytes(), self._log.read_text())
        self._log.write_bytes(b"")

    def die(self) -> None:
        """Take the server and all that runs through it away."""
        if self._server.poll() is None:
            for pid in (self._server.pid, *_descendants(self._server.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._server.wait()

    def come_back(self) -> None:
        """Once somebody has found it away."""
        with socket.socket() as away:
            away.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            away.bind(("127.0.0.1", self._port))
            away.listen()
            away.settimeout(PATIENCE)
            away.accept()[0].close()
        self.start()

    def workers(self) -> set[str]:
        """Workers that have run a task here."""
        return {worker for worker, _ in self._ran()}

    def pythons(self) -> set[str]:
        """The minor version of each."""
        return {python for _, python in self._ran()}

    def _ran(self) -> list[list[str]]:
        ran = self.folder / "ran"
        return [line.split() for line in ran.read_text().splitlines()] if ran.exists() else []


def _descendants(pid: int) -> list[int]:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [d for child in map(int, found) for d in (child, *_descendants(child))]


@functools.cache
def _another_python() -> str | None:
    """A Python of another minor version than this one, which can import what workers import."""
    folders = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in (11, 12, 13, 14):
        found = [*folders.glob(f"3.{minor}.*/bin/python"), shutil.which(f"python3.{minor}")]
        if minor != sys.version_info.minor and any(found):
            return str(next(filter(None, found)))
    return None


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    if SSHD is None or not shutil.which("ssh"):
        pytest.skip("no OpenSSH server here (Debian: openssh-server openssh-client)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    keys = tmp_path / "keys"
    keys.mkdir()
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
        subprocess.run(command, check=True)
    (keys / "client").write_text(CLIENT.format(user=getpass.getuser(), keys=keys))
    return keys


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> FaultProject:
    project = FaultProject(pytester.path, chat_server, pytester, guests=12)
    project.write_tests(WHERE)
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "A suite")):
        subprocess.run(["git", *command], cwd=project.path, check=True)
    return project


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Modules as another Python compiles them, which takes most of the start of a worker."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def hosts(project: FaultProject, keys: Path, compiled: Path) -> Iterator[list[Host]]:
    """One with this Python, and one with another where there is one."""
    other = _another_python() or sys.executable
    hosts = [
        Host(name, project.path, keys, compiled, python)
        for name, python in (("steady", sys.executable), ("shaky", other))
    ]
    for host in hosts:
        host.start()
    yield hosts
    for host in hosts:
        host.die()


@pytest.mark.parametrize("comes_back", [True, False], ids=["comes back late", "stays away"])
def test_a_training_over_ssh_ends_as_on_one_machine_though_a_host_dies(
    project: FaultProject, chat_server: ChatServer, hosts: list[Host], comes_back: bool
) -> None:
    project.run("-p", "no:xdist")
    expected = project.result
    project.clear()
    calls = itertools.count(1)
    first = {"gw1"}
    back = threading.Event()

    def reply(body: Body) -> str:
        call = next(calls)
        if call == DEATH:
            hosts[1].die()
            if comes_back:
                hosts[1].come_back()
                wait_until(lambda: hosts[1].workers() - first, "nothing runs there again")
            back.set()
        if call > DEATH:
            # The others wait, so that there is something left for a host that comes back.
            assert back.wait(PATIENCE)
        return play(body)

    chat_server.reply = reply
    # In a process of its own, since execnet leaves one of its own where a host is away.
    said = project.run("--dist=load", *(f"--tx={host.spec}" for host in hosts), env={})
    assert outcome(project.result) == outcome(expected)
    assert ("cannot be started again" in said) is not comes_back
    assert bool(hosts[1].workers() - first) is comes_back
    if _another_python() is not None:
        assert hosts[0].pythons().isdisjoint(hosts[1].pythons())
