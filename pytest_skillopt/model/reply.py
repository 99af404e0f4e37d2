"""What an agent call returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.jsontext import NoJson, find_json
from pytest_skillopt.model.types import Usage

if TYPE_CHECKING:
    from collections.abc import Generator

_MAX_SHOWN = 200


class ReplyError(AssertionError):
    """The reply is not what the test needs: a failure of the task, not of the infrastructure."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool that the model had run."""

    name: str
    arguments: str
    """JSON text as the model wrote it."""
    result: str
    """What the model was shown."""


class Reply(str):
    """The text of the model's last message, with how it came about.

    It may be awaited and is then itself, so that an ``async`` test may write
    ``await skill_agent(...)``.
    """

    tool_calls: tuple[ToolRun, ...]
    """Tools run during this call, in order."""
    transcript: tuple[tuple[str, str], ...]
    """Role and content of each turn of the conversation so far, without the system prompt."""
    usage: Usage
    """Of this call, all its model calls together."""

    def __new__(
        cls,
        text: str,
        *,
        tool_calls: tuple[ToolRun, ...] = (),
        transcript: tuple[tuple[str, str], ...] = (),
        usage: Usage | None = None,
    ) -> Reply:
        reply = super().__new__(cls, text)
        reply.tool_calls = tool_calls
        reply.transcript = transcript
        reply.usage = usage or Usage()
        return reply

    def json(self) -> Any:
        """The JSON object or array in the reply: bare, in a fence, or with prose around it.

        Raises:
            ReplyError: there is none.
        """
        try:
            return find_json(self)
        except NoJson as error:
            raise ReplyError(f"the reply holds {error}: {_shorten(self)}") from None

    def __await__(self) -> Generator[None, None, Reply]:
        yield from ()
        return self


def _shorten(text: str) -> str:
    shown = repr(text[:_MAX_SHOWN])
    return shown if len(text) <= _MAX_SHOWN else f"{shown} ... ({len(text)} characters)"
