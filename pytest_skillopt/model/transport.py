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

from pytest_skillopt.model.faults import ReplyBroken, ReplyTooLarge

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
        super().__init__(follow_redirects=False, **options)
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

    def __del__(self) -> None:
        """As the client that the SDK makes for itself: a test may leave it behind."""
        if not self.is_closed:
            with contextlib.suppress(Exception):
                self.close()

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """As the base class; replies that are streamed to the caller are the caller's to bound.

        Raises:
            openai.APITimeoutError: the reply is not complete in time.
            ReplyBroken: it ends too soon or cannot be unpacked.
            ReplyTooLarge: it is longer than it may be, on the wire or unpacked.
        """
        until = time.monotonic() + self._seconds
        request.extensions["trace"] = self._note_step
        response: Any = super().send(request, stream=True, **options)
        if stream:
            return response
        try:
            kept, size = [], 0
            for part in response.iter_bytes():
                kept.append(part)
                size += len(part)
                if size > self._most:
                    raise ReplyTooLarge(self._most)
                if time.monotonic() > until:
                    raise openai.APITimeoutError(request=request)
        except (ReplyTooLarge, openai.APITimeoutError):
            raise
        except Exception as error:
            if "Timeout" in type(error).__name__:
                raise
            raise ReplyBroken(f"the reply broke off: {error or type(error).__name__}") from error
        finally:
            response.close()
        response.headers.pop("content-encoding", None)
        return type(response)(
            response.status_code,
            headers=response.headers,
            content=b"".join(kept),
            request=response.request,
            extensions=response.extensions,
            history=response.history,
        )

    def _note_step(self, step: str, about: dict[str, Any]) -> None:
        """Told by the base class of every step of a request."""
        if step in _CONNECTED:
            with self._connecting:
                self._streams.add(about["return_value"])
        self._note(step)


def bounded_client(
    seconds: float, most: int, note: Callable[[str], None], **options: Any
) -> BoundedClient:
    """A ``BoundedClient``; httpx looks for proxies in the environment, and raises ``KeyError``
    where another thread takes a variable out meanwhile."""
    for _ in range(_TRIES):
        with contextlib.suppress(KeyError):
            return BoundedClient(seconds, most, note, **options)
    return BoundedClient(seconds, most, note, **options)
