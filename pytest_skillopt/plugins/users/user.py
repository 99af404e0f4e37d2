"""A conversation of an agent with a user that a model plays: the fixture ``skill_user``."""

from __future__ import annotations

import asyncio
import inspect
import json
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, Field, field_validator, model_validator

from pytest_skillopt.model.agent import Reply, ReplyError, running_loop
from pytest_skillopt.model.structured import Label, ask_json
from pytest_skillopt.model.types import ModelFault, hide_frames
from pytest_skillopt.untrusted import bound, fence, printable, strip_invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pytest_skillopt.model.agent import ToolRun
    from pytest_skillopt.model.types import Model
    from pytest_skillopt.rollouts.context import Recorder

    Asking = Callable[[list[dict[str, str]]], Any]

__tracebackhide__ = hide_frames
_LONGEST = 4_000
"""Characters of a message beyond which a model no longer plays a user."""
_SHOWN = 8_000
"""Characters of each message of the agent that the user is shown."""
_LEAST_PLAN = 20
"""Characters of a plan, or of a goal, that no message may repeat: a shorter one may be said."""
End = Literal["goal", "silence", "most"]


class UserFault(ModelFault):
    """The model does not play the user: an infrastructure error, never a wrong answer."""


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


@runtime_checkable
class Conversing(Protocol):
    """An agent that can hold several conversations, such as ``skill_agent``."""

    def new(self) -> Callable[..., Any]:
        """Begin a conversation: return a function that is called with a prompt and replies."""


@dataclass(frozen=True)
class Part:
    """Knowledge and wishes of a user, by the arguments of ``User``."""

    turns: tuple[str | None, ...] = ()
    """Fixed messages in their order, the opening first; None: the model says this one."""
    knows: Mapping[str, str | None] = field(default_factory=dict)
    plan: str = ""
    persona: str = ""
    until: str = ""
    number: int = 1
    """Number of the conversation in its rollout: a repeated one has other draws."""

    @property
    def is_played(self) -> bool:
        """Whether a model plays it, so that it can say more than the fixed messages."""
        return bool(self.knows or self.plan or self.persona or self.until or None in self.turns)

    @property
    def unsaid(self) -> list[str]:
        """Texts that no message may repeat."""
        texts = map(_plain, (self.plan, self.until, self.persona))
        return [text for text in texts if len(text) >= _LEAST_PLAN]

    def described(self) -> str:
        """Return the part as the model is told it."""
        facts = [
            f"- {name}: {'(you do not know it)' if value is None else value}"
            for name, value in self.knows.items()
        ]
        parts = [
            ("Who you are", self.persona),
            ("Facts", "\n".join(facts)),
            ("Your plan", self.plan),
            ("What you came for is done when", self.until),
        ]
        return "\n\n".join(f"{title}:\n{text.strip()}" for title, text in parts if text.strip())


class _Move(BaseModel):
    asked_for: list[str] = Field(default_factory=list, description="names of facts")
    next: Literal["say", "goal", "silence"]
    text: str = ""


def _moves_of(part: Part, *, begins: bool) -> type[_Move]:
    """Return the form of a reply of the model that plays a part, and perhaps begins."""

    class Move(_Move):
        @field_validator("asked_for")
        @classmethod
        def _known(cls, names: list[str]) -> list[str]:
            if unknown := [name for name in names if name not in part.knows]:
                known = ", ".join(part.knows) or "none"
                raise ValueError(
                    f"{unknown[0][:40]!r} is not the name of a fact, which are: {known}"
                )
            return names

        @model_validator(mode="after")
        def _said_by_a_user(self) -> Move:
            self.text = printable(self.text).strip()
            if self.next == "say":
                _check_said(self.text, part)
            elif begins:
                raise ValueError('"next" must be "say": nothing was said yet')
            return self

    return Move


def _check_said(text: str, part: Part) -> None:
    """Raise ValueError for a text that the user of a part does not say."""
    if not text:
        raise ValueError('with "say" the text must not be empty')
    if len(text) > _LONGEST:
        raise ValueError(f"the text must have at most {_LONGEST} characters")
    if any(unsaid in _plain(text) for unsaid in part.unsaid):
        raise ValueError("the text must not repeat what your part says")


@dataclass(eq=False, repr=False)  # a failing test shows the fixtures it was given
class User:
    """Plays the user in conversations with an agent.

    Args:
        model: returns what plays it; called when it has to say something.
        recorder: of the rollout.
        task: node id of the rollout, for the accounts.
    """

    model: Callable[[], Model]
    _: KW_ONLY
    recorder: Recorder
    task: str = ""
    talks: int = 0
    """Number of conversations so far."""

    def __call__(  # noqa: PLR0913 - a test names each of them where it calls the fixture
        self,
        agent: Conversing | Callable[[list[dict[str, str]]], str],
        opening: str | None = None,
        *,
        turns: Sequence[str | None] = (),
        knows: Mapping[str, str | None] | None = None,
        plan: str = "",
        persona: str = "",
        until: str = "",
        most: int = 8,
        **options: Any,
    ) -> Talk:
        """Hold a conversation with an agent, a new one with each call.

        The model sees its part and the conversation: neither the skill nor the test. With an
        opening or turns and nothing else, no model is called.

        Args:
            agent: ``skill_agent``, ``skill_harness``, or a function from the messages so far, as
                in the Chat Completions API, to the agent's next one.
            opening: first message of the user; None: the first of ``turns``, else the model's.
            turns: further fixed messages, in their order; None among them: the model's. The model
                goes on after them.
            knows: facts by name; None: a fact that the user does not know.
            plan: how the user behaves, such as when it tells a fact.
            persona: who the user is.
            until: what is done at the end, if the opening and the plan do not say it.
            most: replies of the agent, at least 1, after which the conversation ends.
            **options: arguments of the agent's first call, such as ``tools`` or ``copy``; of a
                function those of each call.

        Raises:
            ModelError: a model could not be asked, or the user's does not play its part; an
                infrastructure error, never a wrong answer.
            ValueError: nobody can begin, or ``most`` is below 1.
        """
        fixed = turns if opening is None else (opening, *turns)
        part = Part(tuple(fixed), knows or {}, plan, persona, until, self.talks + 1)
        if not (part.turns or part.is_played):
            raise ValueError("skill_user needs an opening, turns, or a plan")
        if most < 1:
            raise ValueError(f"most must be at least 1, not {most}")
        self.talks += 1
        talk = Talk(tuple(part.knows))
        talk.ended = self._hold(part, talk, most, _asking(agent, options))
        self.recorder.record("end", talk.ended)
        return talk

    async def aio(self, agent: Any, *given: Any, **options: Any) -> Talk:
        """Hold a conversation without blocking the event loop, in which the agent's coroutine runs.

        The arguments are those of a call; the function of an agent may be ``async``.
        """
        loop = running_loop("skill_user")

        def ask(messages: list[dict[str, str]], **how: Any) -> Any:
            said = agent(messages, **how)
            if not inspect.iscoroutine(said):
                return said
            return asyncio.run_coroutine_threadsafe(said, loop).result()

        partner = agent if isinstance(agent, Conversing) else ask
        return await asyncio.to_thread(self, partner, *given, **options)

    def _hold(self, part: Part, talk: Talk, most: int, ask: Asking) -> End:
        """Let the two talk in turn; return how it ended."""
        read = 0  # replies of the agent that the model has seen
        while True:
            count = len(talk.replies)
            move = _fixed(part, count)
            if move is None or (count == most and part.is_played):
                move = self._move(part, talk)
                read = count
            if move.next != "say":
                return move.next
            if count == most:
                return "most"
            self._exchange(talk, move.text, ask)
            if not talk.text.strip():
                if read < count:  # It still has to tell what it was asked for.
                    self._move(part, talk)
                return "silence"

    def _move(self, part: Part, talk: Talk) -> _Move:
        """Let the model go on; without one the user is silent."""
        if not part.is_played or self.recorder.request.is_idle:
            return _Move(next="silence")
        request = self.recorder.request
        parts = [part.described(), f"The conversation so far:\n{_shown(talk.messages)}"]
        model = self.model()
        instructions = Path(__file__).with_name("user.md").read_text(encoding="utf-8").strip()
        answer = ask_json(
            model,
            [
                {"role": "system", "content": instructions},
                {"role": "user", "content": "\n\n".join(filter(None, parts))},
            ],
            _moves_of(part, begins=not talk.messages),
            Label(f"{request.sample}/user{part.number}", request.stage, self.task),
        )
        self.recorder.add_usage_of("user", answer.usage)
        if answer.value is None:
            said = f"does not play the user: {answer.problem}; try another skillopt_user"
            raise UserFault(f"{model.name} {said}")
        talk.asked.update(answer.value.asked_for)
        return answer.value

    def _exchange(self, talk: Talk, said: str, ask: Asking) -> None:
        """Say a message to the agent and take its reply into the conversation.

        Both are recorded, unless the agent records its turns itself, as ``skill_agent`` does.
        """
        talk.messages.append({"role": "user", "content": said})
        before = len(self.recorder.transcript)
        try:
            reply = ask([dict(message) for message in talk.messages])
        finally:
            is_recorded = len(self.recorder.transcript) > before
            if not is_recorded:
                self.recorder.record("user", said)
        if not isinstance(reply, str):
            raise TypeError(
                f"the agent of skill_user returned {type(reply).__name__}, and a text is expected; "
                "of an async function write await skill_user.aio(...)"
            )
        if not is_recorded:
            self.recorder.record("assistant", str(reply))
        kept = reply if isinstance(reply, Reply) else Reply(reply)
        talk.replies.append(kept)
        talk.messages.append({"role": "assistant", "content": str(reply)})


def _plain(text: str) -> str:
    """Return a text without what a repetition of it may change."""
    return " ".join(text.lower().split())


def _fixed(part: Part, number: int) -> _Move | None:
    """Return a fixed message of the user as a move; None if the model says it."""
    text = part.turns[number] if number < len(part.turns) else None
    return None if text is None else _Move(next="say", text=text)


def _asking(agent: Any, options: dict[str, Any]) -> Asking:
    """Return a function from the messages to the agent's next one."""
    if not isinstance(agent, Conversing):
        return partial(agent, **options)
    talk = agent.new()

    def ask(messages: list[dict[str, str]]) -> Any:
        given = options if len(messages) == 1 else {}
        return talk(messages[-1]["content"], **given)

    return ask


def _shown(messages: Collection[dict[str, str]]) -> str:
    """Quote the messages for the user's model, as JSON, so that none can look like another."""
    if not messages:
        return "(There is none yet: you begin.)"
    cut = [
        message | {"content": bound(message["content"], _SHOWN * 2 // 3, _SHOWN // 3)}
        for message in messages
    ]
    return fence(strip_invisible(json.dumps(cut, ensure_ascii=False, indent=1)))
