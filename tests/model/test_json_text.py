from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.model.structured import NoJson, find_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
).filter(lambda value: isinstance(value, dict | list))


@given(values, st.sampled_from([None, 1]))
def test_bare_fenced_and_surrounded_json_is_found(value: object, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert find_json(text) == value
    assert find_json(f"Here it is:\n\n```json\n{text}\n```\nAnything else?") == value
    assert find_json(f"~~~\n{text}\n~~~") == value
    assert find_json(f"The answer is {text}. Done!") == value


@given(st.text())
def test_any_text_gives_an_object_an_array_or_no_json(text: str) -> None:
    with contextlib.suppress(NoJson):
        assert isinstance(find_json(text), dict | list)


@each_row(
    ("text", "value"),
    [
        ('See [1]: {"total": 3, "currency": "EUR"}', {"total": 3, "currency": "EUR"}),
        ('{"broken": } and then {"a": 1}', {"a": 1}),
        ('```\nnot json\n```\n```json\n{"a": 1}\n```', {"a": 1}),
        ('```json\n{"a": 1}\n', {"a": 1}),
        (" ````x\n" * 50_000 + '{"a": 1}', {"a": 1}),
        ('{"b": 1}' * 500 + "<think>x</think>" * 5_000 + '{"a": 1}', {"a": 1}),
        ('{"a": 1}\n' + "`" * 200_000, {"a": 1}),
        ('{"code": "```json\\n{}\\n```"}', {"code": "```json\n{}\n```"}),
    ],
)
def test_the_answer_is_told_from_what_surrounds_it(text: str, value: object) -> None:
    assert find_json(text) == value


TAGS = [
    ("<think>", "</think>"),
    ("<Thinking>", "</Thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<reflection>", "</reflection>"),
    ("<|think|>", "<|/think|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
]
DRAFT = 'The total may be {"total": 1, "note": "draft"}.'
ANSWER = '{"total": 2}'


@each_row(("opening", "closing"), TAGS)
def test_thoughts_are_no_answer(opening: str, closing: str) -> None:
    """The template of a prompt may hold the opening tag; then the reply begins with thoughts."""
    for text in (
        f"{opening}{DRAFT}\n{closing}\n{ANSWER}",
        f"{DRAFT}\n{closing}\n{ANSWER}",
        f"The tag {opening} begins my thoughts. {DRAFT}{closing}```json\n{ANSWER}\n```",
        f"{DRAFT}{closing}First.\n{opening}{DRAFT}{closing}{ANSWER}",
        f"{DRAFT}{closing}{ANSWER}\n{opening}{DRAFT}",
        f"{DRAFT}{closing}{ANSWER} I had closed my thoughts by {closing}",
    ):
        assert find_json(text) == {"total": 2}, text


@each_row(
    "text",
    [
        f"<think>First.<think>Second.</think>{DRAFT}</think>{ANSWER}",
        f"<think><think><think>{DRAFT}</think></think></think>{ANSWER}",
        f"analysis{DRAFT}assistantfinal{ANSWER}",
    ],
)
def test_thoughts_within_thoughts_and_channels_without_their_tokens_are_no_answer(
    text: str,
) -> None:
    assert find_json(text) == {"total": 2}


@each_row(("opening", "closing"), TAGS)
def test_a_reply_that_ends_within_its_thoughts_is_none(opening: str, closing: str) -> None:
    for text in (
        f"{opening}{DRAFT}",
        f"Well.\n{DRAFT}\n{closing}",
        f"{DRAFT}{closing}\n{opening}{DRAFT}",
    ):
        with pytest.raises(NoJson, match="no answer after its thoughts"):
            find_json(text)


@each_row(("opening", "closing"), TAGS)
def test_a_tag_in_the_answer_is_text(opening: str, closing: str) -> None:
    value = {"rule": f"Never write {closing} and {opening}"}
    text = json.dumps(value)
    assert find_json(text) == find_json(f"```json\n{text}\n```") == value
    assert find_json(f"{opening}{DRAFT}{closing}{text}") == value
    assert find_json(f"I left out the tag {opening}: {ANSWER}") == {"total": 2}


@each_row(
    ("text", "words"),
    [
        ("no idea", "no JSON object or array"),
        ("42", "no JSON object or array"),
        ('{"total": 12', "broken JSON"),
        ("{'total': 12}", "broken JSON"),
        ('{"total": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "broken JSON"),
    ],
)
def test_what_is_missing_or_broken_is_said(text: str, words: str) -> None:
    with pytest.raises(NoJson, match=words):
        find_json(text)
