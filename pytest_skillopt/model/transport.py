"""The SDK's own HTTP client, with an end to a reply that comes drop by drop.

Its time-outs bound each read from the network. Servers that keep a connection alive with blanks
while they compute, or that hang in the middle of a reply, could hold a call for ever.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import openai


class PunctualClient(openai.DefaultHttpxClient):
    """Gives a whole reply so many seconds after its request was sent."""

    def __init__(self, seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._seconds = seconds

    def __del__(self) -> None:
        """As the client that the SDK makes for itself: a test may leave it behind."""
        if not self.is_closed:
            with contextlib.suppress(Exception):
                self.close()

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """As the base class; replies that are streamed to the caller are the caller's to bound.

        Raises:
            openai.APITimeoutError: the reply is not complete in time.
        """
        until = time.monotonic() + self._seconds
        response: Any = super().send(request, stream=True, **options)
        if stream:
            return response
        parts = []
        try:
            for part in response.iter_raw():
                parts.append(part)
                if time.monotonic() > until:
                    raise openai.APITimeoutError(request=request)
        finally:
            response.close()
        return type(response)(
            response.status_code,
            headers=response.headers,
            content=b"".join(parts),
            request=response.request,
            extensions=response.extensions,
            history=response.history,
        )
