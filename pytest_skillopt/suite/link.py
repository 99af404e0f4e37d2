"""The wire between the controller and its workers: what is said, and how a worker asks.

A message is a tuple whose first element is its kind; the rest are texts, bytes, numbers and
dictionaries of them. One execnet channel a worker carries all of it, beside xdist's own.

To the worker: ``skill`` (path, files by name in bytes, which need not be UTF-8), ``version`` (path,
version, content), ``run`` (request), ``answer`` (number, value, error), ``stop``.
To the controller: ``hello`` (facts), ``result`` (key, rollout), ``leaving``, ``ask`` (number,
method, arguments), ``stray`` (text).
"""

from __future__ import annotations

import itertools
import json
import queue
import threading
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model import types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SEND_PATIENCE = 5.0


class LostController(ConnectionError):
    """The controller is gone: nothing that this worker does will be heard."""


class Link:
    """A worker's end of its channel. Safe to use from any thread of the worker."""

    def __init__(self, channel: Any, worker: str) -> None:
        self._channel = channel
        # execnet's socket gateways tear the stream when two threads send at once.
        self._sending = threading.Lock()
        self._numbers = itertools.count()
        self._asked: dict[int, queue.SimpleQueue[tuple[str, str]]] = {}
        self._lost = False
        self._dismissed = False
        self._on_lost: Callable[[], None] | None = None
        self.inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        """What the controller said, other than answers; ``("stop",)`` when it is gone."""
        self.prefix = f"{worker}:"
        """Begins the name of everything this worker asks for, so that it can be given up."""

    def open(self, on_lost: Callable[[], None]) -> None:
        """Begin to receive. ``on_lost`` is called when the controller goes without a word."""
        self._on_lost = on_lost
        self._channel.setcallback(self._receive, endmarker=None)

    def send(self, *message: Any) -> None:
        """Raises:
        OSError: the controller is gone.
        """
        with self._sending:
            self._channel.send(message)

    def send_last(self, *message: Any) -> None:
        """Send from a process that is about to end, whatever its other threads are doing."""
        if self._sending.acquire(timeout=_SEND_PATIENCE):
            try:
                self._channel.send(message)
            except OSError:
                return
            finally:
                self._sending.release()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Have the controller call one of its services.

        Args:
            arguments: JSON values.

        Raises:
            ModelError: what the service raised, as the same class.
            ModelFault: any other exception of the service.
            LostController: no answer will come.
        """
        number = next(self._numbers)
        answer: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._asked[number] = answer
        try:
            if self._lost:
                raise LostController("the controller is gone")
            self.send("ask", number, method, json.dumps(arguments))
            value, error = answer.get()
        except OSError as gone:
            raise LostController(f"the controller is gone ({gone})") from gone
        finally:
            del self._asked[number]
        if error:
            raise _restored(json.loads(error))
        return json.loads(value)

    def _receive(self, message: tuple[Any, ...] | None) -> None:
        """Runs in execnet's receiver thread."""
        if message is None:
            self._lost = True
            gone = json.dumps({"type": "LostController", "message": "the controller is gone"})
            for waiting in list(self._asked.values()):
                waiting.put(("", gone))
            self.inbox.put(("stop",))
            if self._on_lost is not None and not self._dismissed:
                self._on_lost()
        elif message[0] == "answer":
            _, number, value, error = message
            if number in self._asked:
                self._asked[number].put((value, error))
        else:
            self._dismissed = self._dismissed or message[0] == "stop"
            self.inbox.put(message)


def answer(
    services: Mapping[str, Callable[..., Any]], number: int, method: str, arguments: str
) -> tuple[str, int, str, str]:
    """Call a service for a worker; the message to send back."""
    try:
        value = json.dumps(services[method](*json.loads(arguments)))
    except Exception as error:
        return "answer", number, "", json.dumps(_described(error))
    return "answer", number, value, ""


def _described(error: Exception) -> dict[str, Any]:
    kind = type(error).__name__
    return {"type": kind, "message": str(error), "fatal": getattr(error, "fatal", False)}


def _restored(error: dict[str, Any]) -> Exception:
    kind, message = error["type"], error["message"]
    if kind == "ModelFault":
        return types.ModelFault(message, fatal=error["fatal"])
    if kind == "LostController":
        return LostController(message)
    cls = getattr(types, kind, None)
    if isinstance(cls, type) and issubclass(cls, types.ModelError):
        return cls(message)
    return types.ModelFault(f"the controller could not answer ({kind}: {message})", fatal=True)
