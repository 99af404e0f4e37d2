from __future__ import annotations

import asyncio
import copy
import json
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
from patience import PATIENCE, wait_until
from tables import each_row

from pytest_skillopt.model.agent import Agent, Reply, ReplyError, ToolRun
from pytest_skillopt.model.cache import DiskCache, Replies
from pytest_skillopt.model.types import ModelFault, Usage

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import Body, ChatServer
    from model_maker import ModelMaker

SKILL = "# Skill\nAlways answer in JSON."


class Traces:
    def __init__(self) -> None:
        self.turns: list[tuple[str, str]] = []
        self.usage = Usage()

    def record(self, role: str, content: str) -> None:
        self.turns.append((role, content))

    def add(self, usage: Usage) -> None:
        self.usage += usage


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
def agent(make_model: ModelMaker, traces: Traces) -> Agent:
    return Agent(
        make_model(retries=0),
        system=SKILL,
        sample="train/0",
        task="t.py::test_a",
        record=traces.record,
        on_usage=traces.add,
        max_turns=4,
    )


def roles(body: Body) -> list[str]:
    return [message["role"] for message in body["messages"]]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize(
    "parts",
    [
        [("text", 'Perhaps {"total": 1, "note": "draft"}.\n</thi'), ("text", 'nk>{"total": 2}')],
        [("reasoning", '{"total": 1, "note": "draft"}'), ("text", '{"total": 2}')],
    ],
)
def test_thoughts_in_a_message_of_several_parts(
    chat_server: ChatServer, agent: Agent, parts: list[tuple[str, str]]
) -> None:
    content = [{"type": kind, "text": text} for kind, text in parts]
    message = {"role": "assistant", "content": content}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    chat_server.script(chat_server.answer(raw=json.dumps(body)))
    assert agent("What is the total?").json() == {"total": 2}


def test_a_further_call_continues_the_conversation(chat_server: ChatServer, agent: Agent) -> None:
    chat_server.script("one", "two", "three")
    agent("first")
    reply = agent("second")
    assert roles(chat_server.bodies[1]) == ["system", "user", "assistant", "user"]
    assert reply.transcript == (
        ("user", "first"),
        ("assistant", "one"),
        ("user", "second"),
        ("assistant", "two"),
    )
    agent("third", fresh=True)
    assert roles(chat_server.bodies[2]) == ["system", "user"]


def test_conversations_can_run_side_by_side(chat_server: ChatServer, agent: Agent) -> None:
    other = agent.new()
    agent("one")
    other("two")
    agent("three")
    assert [len(body["messages"]) for body in chat_server.bodies] == [2, 2, 4]


def test_a_system_prompt_of_the_test_goes_before_the_skill(
    chat_server: ChatServer, agent: Agent, traces: Traces
) -> None:
    agent("hi", system="You are a clerk.")
    assert chat_server.bodies[0]["messages"][0]["content"] == f"You are a clerk.\n\n{SKILL}"
    assert traces.turns[0] == ("system", "You are a clerk.")
    with pytest.raises(ValueError, match="fresh=True"):
        agent("more", system="You are a judge.")


def test_tools_are_run_until_there_is_an_answer(
    chat_server: ChatServer, agent: Agent, traces: Traces
) -> None:
    answer = chat_server.answer
    chat_server.script(answer.tool("add", a=1, b=2), answer.tool("add", a=3, b=4), "It is 7.")
    reply = agent("add up", tools=[add])
    assert reply == "It is 7."
    assert reply.tool_calls == (
        ToolRun("add", '{"a": 1, "b": 2}', "3"),
        ToolRun("add", '{"a": 3, "b": 4}', "7"),
    )
    assert reply.usage.calls == 3
    assert traces.usage == reply.usage
    assert traces.turns == [
        ("user", "add up"),
        ("assistant", '[calls add({"a": 1, "b": 2})]'),
        ("tool", "3"),
        ("assistant", '[calls add({"a": 3, "b": 4})]'),
        ("tool", "7"),
        ("assistant", "It is 7."),
    ]
    last = chat_server.bodies[-1]["messages"]
    assert last[2]["tool_calls"][0]["function"] == {
        "name": "add",
        "arguments": '{"a": 1, "b": 2}',
    }
    assert last[3] == {"role": "tool", "tool_call_id": "call_0", "content": "3"}


def test_several_tools_of_one_reply_are_run_in_order(chat_server: ChatServer, agent: Agent) -> None:
    seen: list[int] = []

    def note(n: int) -> str:
        seen.append(n)
        return "noted"

    made = chat_server.answer.tools(("note", {"n": 1}), ("note", {"n": 2}))
    chat_server.script(made, "done")
    agent("go", tools=[note])
    assert seen == [1, 2]
    assert [m.get("tool_call_id") for m in chat_server.bodies[1]["messages"][-2:]] == [
        "call_0",
        "call_1",
    ]


def test_tools_stay_with_the_conversation(chat_server: ChatServer, agent: Agent) -> None:
    agent("one", tools=[add])
    agent("two")
    agent("three", tools=[])
    assert [len(body.get("tools", [])) for body in chat_server.bodies] == [1, 1, 0]


def test_an_unknown_tool_and_bad_arguments_are_told_to_the_model(
    chat_server: ChatServer, agent: Agent
) -> None:
    answer = chat_server.answer
    chat_server.script(answer.tool("sub", a=1), answer.tool("add", a="x", b=1), "sorry")
    reply = agent("go", tools=[add])
    assert reply.tool_calls[0].result == "Error: there is no tool 'sub'; the tools are: add"
    assert reply.tool_calls[1].result.startswith("Error: bad arguments: a:")


def test_a_model_that_never_answers_fails_the_task(
    chat_server: ChatServer, agent: Agent, traces: Traces
) -> None:
    chat_server.reply = lambda body: chat_server.answer.tool("add", a=1, b=2)
    with pytest.raises(ReplyError, match=r"no final answer after 4 model calls.*add, add, add"):
        agent("go", tools=[add])
    assert chat_server.calls == 4
    assert traces.usage.calls == 4
    assert len(traces.turns) == 9


def test_a_fault_leaves_the_conversation_as_it_was(
    chat_server: ChatServer, agent: Agent, traces: Traces
) -> None:
    agent("one")
    chat_server.script(chat_server.answer.tool("add", a=1, b=2), chat_server.answer.error(500))
    with pytest.raises(ModelFault):
        agent("two", tools=[add])
    assert traces.usage.calls == 2
    agent("three")
    assert [m["content"] for m in chat_server.bodies[-1]["messages"][1:]] == ["one", "ok", "three"]


def test_two_calls_at_once_in_one_conversation_are_refused(
    chat_server: ChatServer, agent: Agent
) -> None:
    chat_server.hold(after=0)
    thread = threading.Thread(target=agent, args=("one",))
    thread.start()
    wait_until(lambda: chat_server.calls)
    with pytest.raises(RuntimeError, match=r"skill_agent\.new\(\)"):
        agent("two")
    chat_server.release()
    thread.join()
    assert agent("three") == "ok"


def test_asked_twice_in_one_rollout_a_model_draws_twice(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path
) -> None:
    counter = iter(range(9))
    chat_server.reply = lambda body: str(next(counter))
    model = make_model(replies=Replies("rw", DiskCache(tmp_path / "cache")))

    def rollout(sample: str) -> list[str]:
        agent = Agent(model, system=SKILL, sample=sample)
        return [agent("x"), agent("x", fresh=True), agent.new()("x")]

    assert rollout("train/0") == ["0", "1", "2"]
    assert rollout("train/0") == ["0", "1", "2"]
    assert rollout("train/1") == ["3", "4", "5"]


def test_coroutines_can_be_tools_of_a_plain_call(chat_server: ChatServer, agent: Agent) -> None:
    async def slow(a: int) -> int:
        await asyncio.sleep(0.001)
        return a + 1

    async def inside_a_loop() -> Reply:
        return await agent("again", tools=[slow], fresh=True)

    chat_server.script(chat_server.answer.tool("slow", a=1), "done")
    assert agent("go", tools=[slow]).tool_calls[0].result == "2"
    chat_server.script(chat_server.answer.tool("slow", a=2), "done")
    assert asyncio.run(inside_a_loop()).tool_calls[0].result == "3"


def test_what_a_coroutine_raises_is_told_or_raised_as_for_a_function(
    chat_server: ChatServer, agent: Agent
) -> None:
    async def lookup() -> None:
        raise KeyError("x")

    async def check() -> None:
        raise AssertionError("the test's own")

    async def inside_a_loop() -> None:
        chat_server.script(chat_server.answer.tool("check"))
        with pytest.raises(AssertionError, match="the test's own"):
            agent("go", tools=[check], fresh=True)

    chat_server.script(chat_server.answer.tool("lookup"), "sorry")
    assert agent("go", tools=[lookup]).tool_calls[0].result == "Error: KeyError: 'x'"
    asyncio.run(inside_a_loop())


def test_async_calls_overlap_and_run_coroutines_in_the_tests_own_loop(
    chat_server: ChatServer, agent: Agent
) -> None:
    all_here = threading.Barrier(4)
    loops: list[object] = []

    async def where() -> str:
        loops.append(asyncio.get_running_loop())
        return "here"

    def reply(body: Body) -> Any:
        if body["messages"][-1]["role"] == "tool":
            return "done"
        all_here.wait(PATIENCE)
        return chat_server.answer.tool("where")

    async def talk() -> None:
        talks = [agent.new().aio("go", tools=[where]) for _ in range(4)]
        assert await asyncio.gather(*talks) == ["done"] * 4
        assert loops == [asyncio.get_running_loop()] * 4

    chat_server.reply = reply
    asyncio.run(talk())


def test_a_test_of_another_library_than_asyncio_is_told_what_to_call(agent: Agent) -> None:
    """It is no failure of the skill, and no further rollout can end otherwise."""
    with pytest.raises(ModelFault, match=r"trio\.to_thread\.run_sync\(skill_agent") as fault:
        agent.aio("go").send(None)
    assert fault.value.fatal


def test_a_reply_is_a_text_that_survives_copying_pickling_and_awaiting() -> None:
    reply = Reply(
        "text",
        tool_calls=(ToolRun("f", "{}", "1"),),
        transcript=(("user", "x"),),
        usage=Usage(calls=1),
    )

    async def wait() -> Reply:
        return await reply

    copies = [copy.copy(reply), copy.deepcopy(reply), pickle.loads(pickle.dumps(reply))]
    for same in [*copies, asyncio.run(wait())]:
        assert same == "text"
        assert same.tool_calls == reply.tool_calls
        assert same.transcript == reply.transcript
        assert same.usage == reply.usage
    assert json.dumps(reply) == '"text"'
    assert asyncio.run(wait()) is reply


@each_row(
    ("text", "words"),
    [
        ("I do not know.", r"holds no JSON object or array: 'I do not know\.'$"),
        ('{"total": 1,}', "broken JSON: .*near"),
        ("x" * 1000, r"802 characters left out"),
    ],
)
def test_a_reply_without_json_fails_the_test_readably(text: str, words: str) -> None:
    with pytest.raises(ReplyError, match=words) as caught:
        Reply(text).json()
    assert isinstance(caught.value, AssertionError)
    assert len(str(caught.value)) < 400
