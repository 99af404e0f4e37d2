from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('See [1]: {"total": 3, "currency": "EUR"}', {"total": 3, "currency": "EUR"}),
        ('{"broken": } and then {"a": 1}', {"a": 1}),
        ('<think>{"a": 1}? no</think>\n{"a": 2}', {"a": 2}),
        ('```\nnot json\n```\n```json\n{"a": 1}\n```', {"a": 1}),
        ('```json\n{"a": 1}\n', {"a": 1}),
        pytest.param(" ````x\n" * 50_000 + '{"a": 1}', {"a": 1}, id="many fences"),
        pytest.param('{"a": 1}\n' + "`" * 200_000, {"a": 1}, id="a long fence"),
        ('{"code": "```json\\n{}\\n```"}', {"code": "```json\n{}\n```"}),
    ],
)
def test_the_answer_is_told_from_what_surrounds_it(text: str, value: object) -> None:
    assert find_json(text) == value


@pytest.mark.parametrize(
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
