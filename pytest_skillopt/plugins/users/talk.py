"""A conversation of a simulated user with an agent, and the questions that a test asks of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pytest_skillopt.model.agent import Reply, ReplyError
from pytest_skillopt.model.types import hide_frames

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_skillopt.model.agent import ToolRun

__tracebackhide__ = hide_frames
End = Literal["goal", "silence", "most"]


@dataclass(eq=False)
class Talk:
    """A conversation.

    Args:
        facts: names of what the user knows, and of what it was told that it does not know.
    """

    facts: Collection[str]
    messages: list[dict[str, str]] = field(default_factory=list)
    """Role (``user`` or ``assistant``) and content of each message, as in the Chat Completions
    API."""
    replies: list[Reply] = field(default_factory=list)
    """The agent's replies, in order; of ``skill_harness`` with files, commands and diff of each."""
    ended: End = "silence"
    """``goal``: the user has what it came for. ``silence``: one of the two said nothing more.
    ``most``: the agent gave its last reply, and the user had not finished."""
    asked: set[str] = field(default_factory=set)
    """Names of the facts that the agent has asked for, as the user's model says."""

    def __repr__(self) -> str:
        return f"<Talk of {len(self.messages)} messages, ended by {self.ended}>"

    @property
    def text(self) -> str:
        """Last message of the agent."""
        return str(self.replies[-1]) if self.replies else ""

    @property
    def tools(self) -> tuple[ToolRun, ...]:
        """The agent's tool calls of the whole conversation, in order."""
        return tuple(run for reply in self.replies for run in reply.tool_calls)

    def tool(self, name: str) -> ToolRun:
        """Return the last call of a tool, with ``.args`` and ``.result``.

        Raises:
            ReplyError: the agent has not called it.
        """
        runs = [run for run in self.tools if run.name == name]
        if not runs:
            called = ", ".join(dict.fromkeys(run.name for run in self.tools)) or "none"
            raise ReplyError(f"the agent did not call {name}; tools that it called: {called}")
        return runs[-1]

    def asked_for(self, fact: str) -> bool:
        """Return whether the agent has asked the user for a fact.

        The user's model decides it, which marks in each of its replies what it was asked for.

        Args:
            fact: its name in ``knows``.

        Raises:
            ValueError: the user was told of no such fact.
        """
        if fact not in self.facts:
            known = ", ".join(map(repr, self.facts)) or "nothing"
            raise ValueError(
                f"asked_for({fact!r}): the user can tell it only of a fact in knows=, which has "
                f"{known}; give it a fact that it does not know as None"
            )
        return fact in self.asked
