from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import pytest
from pydantic import BaseModel, Field

from pytest_skillopt.model.structured import Label, ask_json, response_format
from pytest_skillopt.model.types import ModelFault

if TYPE_CHECKING:
    from chat_server import ChatServer
    from model_maker import ModelMaker

ASK = [{"role": "user", "content": "propose"}]


class Edit(BaseModel):
    op: Literal["append", "delete"]
    content: str = Field(default="", max_length=100)


class Proposal(BaseModel):
    reasoning: str
    edits: list[Edit] = []


GOOD = {"reasoning": "r", "edits": [{"op": "append", "content": "c"}]}


def test_half_a_surrogate_pair_is_a_question_mark(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    """JSON can write it, and no file can hold it."""
    chat_server.script(r'{"reasoning": "\ud800 \ud83d\ude00", "edits": []}')
    answer = ask_json(make_model(), ASK, Proposal, Label("s"))
    assert answer.value == Proposal(reasoning="? \U0001f600")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I would rather not.", "no JSON object or array"),
        ('{"reasoning": "r", "edits": [{"op": "app', "broken JSON"),
        ('{"reasoning": "r", "edits": [{"op": "explode"}]}', "edits.0.op: Input should be"),
        ('[{"op": "append"}]', "reply: Input should be"),
    ],
)
def test_an_unreadable_reply_is_repaired_once(
    chat_server: ChatServer, make_model: ModelMaker, text: str, problem: str
) -> None:
    chat_server.script(text, json.dumps(GOOD))
    answer = ask_json(make_model(), ASK, Proposal, Label("s"))
    assert answer.value == Proposal.model_validate(GOOD)
    assert answer.usage.calls == 2
    quoted, asked = chat_server.bodies[1]["messages"][1:]
    assert quoted == {"role": "assistant", "content": text}
    assert problem in asked["content"]


def test_the_repair_shows_the_answer_and_not_the_thoughts_before_it(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    thoughts = json.dumps(GOOD | {"reasoning": "a draft"}) + " or not? " * 1000
    chat_server.script(f'{thoughts}</think>{{"reasoning": "r", "edits": [', json.dumps(GOOD))
    answer = ask_json(make_model(), ASK, Proposal, Label("s"))
    assert answer.value == Proposal.model_validate(GOOD)
    quoted = chat_server.bodies[1]["messages"][1]
    assert quoted["content"] == '{"reasoning": "r", "edits": ['


def test_a_reply_that_ends_within_its_thoughts_is_asked_for_again(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    draft = f"<think>{json.dumps(GOOD | {'reasoning': 'a draft'})}"
    chat_server.script(draft, json.dumps(GOOD))
    answer = ask_json(make_model(), ASK, Proposal, Label("s"))
    assert answer.value == Proposal.model_validate(GOOD)
    quoted, asked = chat_server.bodies[1]["messages"][1:]
    assert quoted["content"] == draft
    assert "no answer after its thoughts" in asked["content"]


def test_a_fault_in_the_repair_keeps_the_accounts_right(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    chat_server.script("no", chat_server.answer.error(500), "no", chat_server.answer.error(401))
    model = make_model(retries=0)
    answer = ask_json(model, ASK, Proposal, Label("s"))
    assert answer.value is None
    assert answer.usage.calls == 1
    with pytest.raises(ModelFault):
        ask_json(model, ASK, Proposal, Label("t"))


def test_the_form_is_asked_for_strictly() -> None:
    asked = response_format(Proposal)
    assert asked["type"] == "json_schema"
    assert asked["json_schema"]["name"] == "Proposal"
    assert asked["json_schema"]["strict"] is True
    schema = asked["json_schema"]["schema"]
    edit = schema["$defs"]["Edit"]
    assert schema["required"] == ["reasoning", "edits"]
    assert edit["required"] == ["op", "content"]
    assert schema["additionalProperties"] is edit["additionalProperties"] is False
    assert edit["properties"]["content"] == {"type": "string"}
