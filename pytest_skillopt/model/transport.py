"""The SDK's own HTTP client, with an end to a reply that is long in coming or endless.

The SDK's time-outs bound each read from the network. Servers that keep a connection alive with
blanks while they compute, or that hang in the middle of a reply, could hold a call for ever; a few
megabytes of gzip could fill the memory.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import openai

from pytest_skillopt.model.faults import brief, too_slow
from pytest_skillopt.model.types import ModelFault

if TYPE_CHECKING:
    from collections.abc import Callable

_TRIES = 10
_CONNECTED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class BoundedClient(openai.DefaultHttpxClient):
    """Gives a whole reply so many seconds after its request was sent, and so many bytes.

    Redirects are not followed: the key and the prompt go where the user said, and nobody else's
    answer is the model's.
    """

    def __init__(
        self, seconds: float, most: int, note: Callable[[str], None], **options: Any
    ) -> None:
        for _ in range(_TRIES):
            # It looks for proxies in the environment, and fails where another thread takes a
            # variable out meanwhile.
            with contextlib.suppress(KeyError):
                super().__init__(follow_redirects=False, **options)
                break
        self.headers["Accept-Encoding"] = "identity"
        self._seconds = seconds
        self._most = most
        self._note = note
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()
        self._connecting = threading.Lock()

    def close(self) -> None:
        """As the base class, and wake whoever waits for a reply, which closing alone does not."""
        with self._connecting:
            streams = list(self._streams)
        for stream in streams:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)
        super().close()

    def send(self, request: Any, **options: Any) -> Any:
        """As the base class. ModelFault for a reply that is not complete in time, ends too soon,
        cannot be unpacked, or is longer than it may be, on the wire or unpacked."""
        until = time.monotonic() + self._seconds
        request.extensions["trace"] = self._note_step
        response: Any = super().send(request, **options | {"stream": True})
        try:
            kept, size = [], 0
            for part in response.iter_bytes():
                kept.append(part)
                size += len(part)
                if size > self._most:
                    words = f"the reply is longer than {self._most:,} bytes"
                    raise ModelFault(words, answered=True)
                if time.monotonic() > until:
                    raise too_slow()
        except Exception as error:
            if isinstance(error, ModelFault):
                fault = error
            elif "Timeout" in type(error).__name__:
                fault = too_slow()
            else:
                words = brief(f"the reply broke off: {error or type(error).__name__}")
                fault = ModelFault(words, retry=True, answered=True)
            if response.status_code == 200:
                fault.status = 200
            if fault is error:
                raise
            raise fault from error
        finally:
            response.close()
        response.headers.pop("content-encoding", None)
        return type(response)(
            response.status_code,
            headers=response.headers,
            content=b"".join(kept),
            request=request,
        )

    def _note_step(self, step: str, about: dict[str, Any]) -> None:
        """Told by the base class of every step of a request."""
        if step in _CONNECTED:
            with self._connecting:
                self._streams.add(about["return_value"])
        self._note(step)
