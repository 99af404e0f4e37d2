"""The SDK's own HTTP client, with a bound on the time and size of a whole reply.

The SDK's time-outs bound only each read from the network. A server that keeps a connection alive
with blanks or headers while it computes, or that hangs in the middle of a reply, could block a call
for ever; a few megabytes of gzip could fill the memory.
"""

from __future__ import annotations

import contextlib
import functools
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
    """Bounds the seconds from a request to the end of its reply, and the bytes of the reply.

    Redirects are not followed: the key and the prompt go only to the server that the user named.
    """

    def __init__(
        self, seconds: float, most: int, note: Callable[[str], None], **options: Any
    ) -> None:
        for _ in range(_TRIES):
            # It reads proxies from the environment, and fails if another thread removes a variable
            # meanwhile.
            with contextlib.suppress(KeyError):
                super().__init__(follow_redirects=False, **options)
                break
        self.headers["Accept-Encoding"] = "identity"
        self._seconds = seconds
        self._most = most
        self._note = note
        self._thread = threading.local()
        """``until``: time at which the request of the calling thread has taken too long."""
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._sending = 0
        self._ended = False

    def close(self) -> None:
        """Wake the threads that wait for a reply; close when the last of them has ended.

        A descriptor that is closed earlier can be given to another file, e.g. a pipe to a child,
        which then stays open until the thread that still polls this number gives up.
        """
        with self._lock:
            self._ended = True
            for stream in self._streams:
                _shut_down(stream)
            sending = self._sending
        if not sending:
            super().close()

    def send(self, request: Any, **options: Any) -> Any:
        """Send a request and read the whole reply.

        Raises:
            ModelFault: the reply is late, ends too soon, cannot be unpacked, or is too long, on the
                wire or unpacked.
        """
        with self._lock:
            self._sending += 1
        try:
            return self._send(request, options)
        finally:
            with self._lock:
                self._sending -= 1
                is_last = self._ended and not self._sending
            if is_last:
                super().close()

    def _send(self, request: Any, options: dict[str, Any]) -> Any:
        self._thread.until = time.monotonic() + self._seconds
        request.extensions["trace"] = self._note_step
        response: Any = super().send(request, **options | {"stream": True})
        try:
            content = self._content(response)
        except Exception as error:
            fault = _fault_of(error)
            if response.status_code == 200:
                fault.status = 200
            raise fault from (None if fault is error else error)
        finally:
            response.close()
        response.headers.pop("content-encoding", None)
        return type(response)(
            response.status_code,
            headers=response.headers,
            content=content,
            request=request,
        )

    def _content(self, response: Any) -> bytes:
        """Read a reply, as long as it is not too long."""
        kept = []
        size = 0
        for part in response.iter_bytes():
            kept.append(part)
            size += len(part)
            if size > self._most:
                if response.status_code >= 400:
                    break  # the beginning of an error says enough
                words = f"the reply is longer than {self._most:,} bytes; set max_output_tokens"
                raise ModelFault(f"{words} in skillopt_requests", answered=True)
        return b"".join(kept)

    def _note_step(self, step: str, about: dict[str, Any]) -> None:
        """Handle a step of a request; the base class calls it for each."""
        if step in _CONNECTED:
            stream = about["return_value"]
            stream.read = functools.partial(self._read, stream.read)
            with self._lock:
                self._streams.add(stream)
                if self._ended:
                    _shut_down(stream)
        self._note(step)

    def _read(self, read: Callable[..., bytes], most: int, timeout: float) -> bytes:
        """Read from a connection, no longer than the request of this thread may take."""
        left = self._thread.until - time.monotonic()
        if left <= 0:
            raise too_slow()
        return read(most, min(timeout, left))


def _fault_of(error: Exception) -> ModelFault:
    """Return what an error in the middle of a reply means."""
    if isinstance(error, ModelFault):
        return error
    if "Timeout" in type(error).__name__:
        return too_slow()
    words = brief(f"the reply broke off: {error or type(error).__name__}")
    return ModelFault(words, retry=True, answered=True)


def _shut_down(stream: Any) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)
