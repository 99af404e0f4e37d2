"""A conversation with the target model, with tools: the fixture ``skill_agent``."""

from __future__ import annotations

import copy
import hashlib
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import ModelFault, Usage, hide_frames
from pytest_skillopt.untrusted import bound, parsed

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Generator, Sequence

    from pytest_skillopt.model.tools import Tool
    from pytest_skillopt.model.types import Completion, Messages, Model, ToolCall

__tracebackhide__ = hide_frames
_MOST_SHOWN = 200
"""Characters of a reply quoted in an error."""


class ReplyError(AssertionError):
    """The reply does not fit the test: a failure of the task, not of the infrastructure."""


@dataclass(frozen=True, slots=True)
class ToolRun:
    name: str
    arguments: str
    """JSON text as the model wrote it."""
    result: str
    """Text that the model was shown."""

    @property
    def args(self) -> Any:
        """The arguments as a JSON value.

        Raises:
            ReplyError: the model wrote none.
        """
        try:
            return parsed(self.arguments or "{}")
        except ValueError:
            shown = bound(repr(self.arguments), _MOST_SHOWN, 0)
            raise ReplyError(f"the arguments of {self.name} are no JSON: {shown}") from None


class Reply(str):
    """The text of the model's last message, with its tool calls, transcript and usage.

    ``await`` returns the reply itself, so that an ``async`` test may write
    ``await skill_agent(...)``.
    """

    tool_calls: tuple[ToolRun, ...]
    """Tools run during this call, in order."""
    transcript: tuple[tuple[str, str], ...]
    """Role and content of each turn of the conversation so far, without the system prompt."""
    usage: Usage
    """Usage of all model calls of this call."""

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

    @property
    def text(self) -> str:
        """The reply as a plain string."""
        return str(self)

    def json(self) -> Any:
        """Return the JSON object or array after its thoughts, bare, fenced or in prose.

        Raises:
            ReplyError: there is none.
        """
        from pytest_skillopt.model.structured import NoJson, find_json

        try:
            return find_json(self)
        except NoJson as error:
            shown = bound(repr(str(self)), _MOST_SHOWN, 0)
            raise ReplyError(f"the reply holds {error}: {shown}") from None

    def __await__(self) -> Generator[None, None, Reply]:
        yield from ()
        return self


@dataclass(eq=False, repr=False)  # a failing test shows the fixtures it was given
class Agent:
    """Calls the model with the skill as system prompt. A further call continues the conversation.

    Args:
        system: text of the skill.
        sample: tells the draws of two rollouts apart.
        stage: purpose of the rollout, for the accounts.
        task: node id of the rollout, for the accounts.
        record: called with role and content of each turn as it happens.
        on_usage: called with the usage of each model call as it happens.
        max_turns: maximum model calls in one call of the agent, at least 1.
        own_tools: tools of every conversation, in addition to those that a call names.
    """

    model: Model
    _: KW_ONLY
    system: str
    sample: str
    stage: str = "rollout"
    task: str = ""
    record: Callable[[str, str], None] = lambda role, content: None
    on_usage: Callable[[Usage], None] = lambda usage: None
    max_turns: int = 16
    own_tools: Sequence[Tool] = ()

    def __post_init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._asking = threading.Lock()
        self._conversation = _Conversation()
        self._busy = threading.Lock()

    def __call__(
        self,
        prompt: str,
        *,
        tools: Sequence[Callable[..., Any]] | None = None,
        system: str | None = None,
        fresh: bool = False,
    ) -> Reply:
        """Send ``prompt`` to the model, run the tools it asks for, and return its last message.

        Args:
            prompt: the user's message.
            tools: Python functions, also ``async`` ones; None: those of the conversation so far.
                The model is shown the exceptions of a tool, except ``AssertionError``.
            system: text before the skill's text in the system prompt of a new conversation.
            fresh: begin a new conversation.

        Raises:
            ReplyError: no last message after ``max_turns`` model calls.
            ModelError: the infrastructure failed.
            TypeError: a function that cannot be declared as a tool.
            RuntimeError: the conversation is in use by another thread.
        """
        return self._turn(prompt, tools, system, fresh, _run_awaitable)

    async def aio(
        self,
        prompt: str,
        *,
        tools: Sequence[Callable[..., Any]] | None = None,
        system: str | None = None,
        fresh: bool = False,
    ) -> Reply:
        """Call the agent without blocking the event loop of asyncio, in which coroutine tools run.

        Raises:
            ModelFault: no event loop of asyncio runs here; else as in a call.
        """
        import asyncio

        loop = running_loop("skill_agent")

        def on_this_loop(awaitable: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(_wrap(awaitable), loop).result()

        return await asyncio.to_thread(self._turn, prompt, tools, system, fresh, on_this_loop)

    def new(self) -> Agent:
        """Return an agent with the same skill and its own conversation, to use at the same time."""
        other = copy.copy(self)
        other._conversation = _Conversation()
        other._busy = threading.Lock()
        return other

    def _turn(
        self,
        prompt: str,
        tools: Sequence[Callable[..., Any]] | None,
        system: str | None,
        fresh: bool,
        awaiter: Callable[[Any], Any],
    ) -> Reply:
        if not self._busy.acquire(blocking=False):
            raise RuntimeError(
                "two calls at once in one conversation; begin another with skill_agent.new()"
            )
        try:
            conversation = _Conversation() if fresh else self._conversation.copy()
            if not conversation.messages:
                if whole := f"{system}\n\n{self.system}" if system else self.system:
                    conversation.messages.append({"role": "system", "content": whole})
                if system:
                    self._note(conversation, "system", system)
            elif system is not None:
                raise ValueError("system= begins a conversation: pass fresh=True with it")
            if tools is not None or (self.own_tools and not conversation.tools):
                # Pydantic is slow to import, and may be missing on another machine.
                from pytest_skillopt.model.tools import make_tools

                conversation.tools = make_tools([*self.own_tools, *(tools or ())])
            reply = self._run(conversation, prompt, awaiter)
            self._conversation = conversation
            return reply
        finally:
            self._busy.release()

    def _run(
        self, conversation: _Conversation, prompt: str, awaiter: Callable[[Any], Any]
    ) -> Reply:
        conversation.messages.append({"role": "user", "content": str(prompt)})
        self._note(conversation, "user", str(prompt))
        declared = [tool.declaration() for tool in conversation.tools.values()]
        runs: list[ToolRun] = []
        usage = Usage()
        for _ in range(self.max_turns):
            completion = self.complete(conversation.messages, declared)
            usage += completion.usage
            conversation.messages.append(as_message(completion))
            self._note(conversation, "assistant", as_turn(completion))
            if not completion.tool_calls:
                turns = tuple(conversation.turns)
                return Reply(completion.text, tool_calls=tuple(runs), transcript=turns, usage=usage)
            for call in completion.tool_calls:
                run = _run_tool(conversation.tools, call, awaiter)
                runs.append(run)
                conversation.messages.append(
                    {"role": "tool", "tool_call_id": call.id, "content": run.result}
                )
                self._note(conversation, "tool", run.result)
        called = ", ".join(run.name for run in runs[-3:])
        words = f"no final answer after {self.max_turns} model calls (skillopt_max_turns)"
        raise ReplyError(f"{words}; the last tools called: {called}")

    def complete(self, messages: Messages, tools: Sequence[dict[str, Any]] = ()) -> Completion:
        """Complete any messages, outside of the conversation and without the skill.

        Both arguments are as in the Chat Completions API. Repeated requests are different draws.

        Raises:
            ModelError: the infrastructure failed.
        """
        digest = hashlib.sha256(json.dumps([messages, tools]).encode()).hexdigest()
        with self._asking:
            before = self._asked[digest]
            self._asked[digest] += 1
        # A request that is repeated within one rollout is another draw.
        sample = f"{self.sample}#{before}" if before else self.sample
        completion = self.model.complete(
            messages, sample=sample, stage=self.stage, task=self.task, tools=tools
        )
        self.on_usage(completion.usage)
        return completion

    def _note(self, conversation: _Conversation, role: str, content: str) -> None:
        conversation.turns.append((role, content))
        self.record(role, content)


@dataclass(slots=True)
class _Conversation:
    messages: list[dict[str, Any]] = field(default_factory=list)
    turns: list[tuple[str, str]] = field(default_factory=list)
    tools: dict[str, Tool] = field(default_factory=dict)

    def copy(self) -> _Conversation:
        return _Conversation(list(self.messages), list(self.turns), dict(self.tools))


def _run_tool(tools: dict[str, Tool], call: ToolCall, awaiter: Callable[[Any], Any]) -> ToolRun:
    if call.name in tools:
        result = tools[call.name].call(call.arguments, awaiter)
    else:
        known = ", ".join(tools) or "none"
        result = f"Error: there is no tool {call.name!r}; the tools are: {known}"
    return ToolRun(call.name, call.arguments, result)


def as_message(completion: Completion) -> dict[str, Any]:
    """Return a reply as a message of the Chat Completions API."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text or None}
    if completion.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in completion.tool_calls
        ]
    return message


def as_turn(completion: Completion) -> str:
    """Return a reply as a turn of a transcript."""
    calls = [f"[calls {call.name}({call.arguments})]" for call in completion.tool_calls]
    if completion.text:
        calls.insert(0, completion.text)
    return "\n".join(calls)


def running_loop(fixture: str) -> AbstractEventLoop:
    """Return the event loop in which the ``aio`` of a fixture is awaited.

    Raises:
        ModelFault: fatal; the test runs under another library than asyncio.
    """
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        call = f"await trio.to_thread.run_sync({fixture}, ...)"
        words = f"{fixture}.aio needs asyncio; under trio, call `{call}`"
        raise ModelFault(words, fatal=True) from None


def _run_awaitable(awaitable: Any) -> Any:
    """Run an awaitable from a synchronous call; in its own thread if a loop runs in this one."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_wrap(awaitable))
    with ThreadPoolExecutor(1, thread_name_prefix="skillopt-async-tool") as pool:
        return pool.submit(asyncio.run, _wrap(awaitable)).result()


async def _wrap(awaitable: Any) -> Any:
    return await awaitable
