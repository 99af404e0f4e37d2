"""execnet's socket servers: workers on other machines, as far as one machine can show them."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from patience import wait_until

if TYPE_CHECKING:
    from pathlib import Path


class SocketServers:
    """Servers of one worker each."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        folder: Path,
        *prefix: str,
        address: str = "127.0.0.1",
        pythonpath: str = "",
        again: bool = True,
    ) -> str:
        """Serve in a folder; the ``--tx`` argument that reaches it.

        Args:
            prefix: begins the command of the server.
            pythonpath: what the workers can import from besides.
            again: start the server again whenever it ends, as a supervisor would.
        """
        port = _free_port()
        server = [sys.executable, "-m", "execnet.script.socketserver", f"{address}:{port}"]
        script = shlex.join([*prefix, *server])
        if again:
            script = f"while :; do {script}; sleep 0.2; done"
        log = folder / "socketserver.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["sh", "-c", script],
                cwd=folder,
                # The order of a set, which pytest shows in its differences, is that of the tests.
                env={**os.environ, "PYTHONPATH": pythonpath, "PYTHONHASHSEED": "0"},
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._processes.append(process)
        _wait_for_text(log, "Entering Accept loop")
        return f"--tx=socket={address}:{port}//chdir={folder}"

    def stop(self) -> None:
        for process in self._processes:
            os.killpg(process.pid, 9)
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_text(path: Path, text: str) -> None:
    wait_until(
        lambda: text in path.read_text(encoding="utf-8", errors="replace"), f"no {text!r} in {path}"
    )
