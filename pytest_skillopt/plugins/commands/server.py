"""Server of this process for the stubs of its tests, on loopback; ``stub.py`` has the protocol."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.types import ModelFault
from pytest_skillopt.plugins.commands.answers import Exit, Unstubbed
from pytest_skillopt.plugins.commands.stub import receive, send
from pytest_skillopt.untrusted import encodable

if TYPE_CHECKING:
    from pytest_skillopt.plugins.commands.commands import Commands

_SERVER = pytest.StashKey["Server"]()
_LOCK = threading.Lock()
_MOST_THREADS = 512
"""Threads of the session, of which each connection of a stub takes one; with a further one no test
knows any more what it was not asked."""
_PATIENCE = 10.0
"""Seconds in which a connection has to say that it is a stub."""


class Server(socketserver.ThreadingTCPServer):
    """Server of the commands of all tests that run now, each under a secret token."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.served: dict[str, Commands] = {}
        """Commands by their tokens."""
        # Closing takes one poll interval.
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @classmethod
    def of(cls, config: pytest.Config) -> Server:
        """Return the session's server, made when first needed."""
        with _LOCK:
            if _SERVER not in config.stash:
                config.stash[_SERVER] = server = cls()
                config.add_cleanup(server.close)
            return config.stash[_SERVER]

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if threading.active_count() < _MOST_THREADS:
            return True
        for commands in [*self.served.values()]:
            commands.fail(ModelFault("commands: too many calls at once"))
        return False


class _Handler(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        # The client may be no stub, or a stub that was killed.
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._answer()

    def _answer(self) -> None:
        file = self.request.makefile("rb")
        self.request.settimeout(_PATIENCE)
        token, *told = map(str, receive(file))
        commands = self.server.served.get(token)
        if commands is None:
            return
        self.request.settimeout(None)
        called, folder, *arguments = map(encodable, told)
        call = commands.begin(called, arguments, folder)
        if commands.wants_input(call):
            send(self.request, "input")
            (given,) = map(str, receive(file))
            call.stdin = encodable(given)
        answer = commands.answer(call)
        if isinstance(answer, Exit):
            send(self.request, "exit", answer.code, answer.out, answer.err)
            return
        send(self.request, answer.value)
        if answer is Unstubbed.SPY:
            code, out, err = receive(file)
            call.end(Exit(int(code), str(err), str(out)))
            send(self.request, "kept")
