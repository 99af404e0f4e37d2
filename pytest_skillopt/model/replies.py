"""Completions as the cache keeps them, and when they may be used."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from pytest_skillopt.model.cache import DiskCache, ReadOnlyCache
from pytest_skillopt.model.flight import SingleFlight
from pytest_skillopt.model.types import Completion, ToolCall, Usage
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pytest_skillopt.model.cache import ReplyCache

CacheMode = Literal["rw", "ro", "off", "refresh"]
FORMAT = 1
"""Version of the key and of the kept form."""


class Replies:
    """What has been replied before, under one of the modes of ``skillopt_cache``.

    ``rw`` finds and keeps; ``ro`` only finds; ``off`` does neither; ``refresh`` keeps, and finds
    only what was kept since this object was made.

    Args:
        mode: one of the four.
        cache: where replies lie; None with ``off``.
        flight: keeps callers of one key apart; None: the threads of this process.
    """

    def __init__(
        self,
        mode: CacheMode,
        cache: ReplyCache | None = None,
        flight: SingleFlight | None = None,
    ) -> None:
        self.mode: CacheMode = mode
        self._notes: list[str] = []
        self._cache = cache if mode != "off" else None
        self._flight = (flight or SingleFlight(None)) if mode in ("rw", "refresh") else None
        self._since = time.time() if mode == "refresh" else 0.0

    @classmethod
    def open(cls, directory: Path, mode: CacheMode) -> Replies:
        """The replies in ``directory``, which is made unless the mode only reads.

        Raises:
            CacheError: the directory or its database cannot be used.
        """
        if mode == "off":
            return cls(mode)
        if mode == "ro":
            return cls(mode, ReadOnlyCache(directory))
        return cls(mode, DiskCache(directory), SingleFlight(directory / "locks"))

    @property
    def cache(self) -> ReplyCache | None:
        """Where replies lie; None with ``off``."""
        return self._cache

    @property
    def notes(self) -> list[str]:
        """What a reader of the report must know."""
        refused = getattr(self._cache, "refused", 0)
        if not refused:
            return list(self._notes)
        return [
            *self._notes,
            f"{refused} rows of {self.place} were refused: this package has not written them",
        ]

    @property
    def place(self) -> str:
        """Where replies are looked for, for messages."""
        return str(getattr(self._cache, "directory", "the cache"))

    def find(self, key: str) -> Completion | None:
        """The kept reply, with a usage that says it was free.

        Raises:
            CacheError: the cache cannot be read.
        """
        text = self._cache.get(key) if self._cache is not None else None
        return None if text is None else _from_text(text, self._since)

    def keep(self, key: str, completion: Completion) -> None:
        """Keep a paid reply. A cache that fails here must not cost the reply: it leaves a note.

        One that holds a secret is not written anywhere: redacted, it would be another reply when it
        is found again.
        """
        if self._cache is None or self.mode == "ro":
            return
        if _holds_secret(completion):
            self._note("replies that hold secrets are not kept in the cache, they are paid anew")
            return
        try:
            self._cache.set(key, _to_text(completion))
        except Exception as error:
            self._note(f"a reply could not be kept: {error}")

    def claim(self, key: str) -> AbstractContextManager[None]:
        """Held while a reply is paid for, so that who asks the same waits for it."""
        return self._flight.claim(key) if self._flight is not None else nullcontext()

    def close(self) -> None:
        """Close the cache, where it can be closed."""
        close = getattr(self._cache, "close", None)
        if close is not None:
            close()

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)


def request_key(
    *,
    base_url: str,
    model: str,
    messages: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]],
    response_format: Mapping[str, Any] | None,
    sample: str,
) -> str:
    """SHA-256 of the canonical request. No key and no header has a part in it."""
    fields = {
        "format": FORMAT,
        "base_url": base_url,
        "model": model,
        "messages": list(messages),
        "parameters": parameters,
        "tools": list(tools),
        "response_format": response_format,
        "sample": sample,
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _holds_secret(completion: Completion) -> bool:
    texts = (completion.text, *(call.arguments for call in completion.tool_calls))
    return any(redact(text) != text for text in texts)


def _to_text(completion: Completion) -> str:
    return json.dumps(
        {
            "format": FORMAT,
            "stored": time.time(),
            "text": completion.text,
            "tool_calls": [[c.id, c.name, c.arguments] for c in completion.tool_calls],
            "finish_reason": completion.finish_reason,
        }
    )


def _from_text(text: str, since: float) -> Completion | None:
    """Read a kept reply; None for one that is older or not of our form."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT or data["stored"] < since:
            return None
        calls = [tuple(map(_text, call)) for call in data["tool_calls"]]
        return Completion(
            text=_text(data["text"]),
            tool_calls=tuple(ToolCall(id, name, arguments) for id, name, arguments in calls),
            finish_reason=_text(data["finish_reason"]),
            usage=Usage(cached=1),
        )
    except (ValueError, TypeError, KeyError):
        return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
