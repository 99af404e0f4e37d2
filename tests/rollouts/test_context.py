"""Records of a test: the allowed ones, and those that are refused at once."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.rollouts.context import Recorder, current
from pytest_skillopt.rollouts.rollout import RolloutRequest
from pytest_skillopt.untrusted import shorten

REQUEST = RolloutRequest("a.py::t", "source", "SKILL.md", "v", "model", "train", 0)


@pytest.fixture
def context(pytestconfig: pytest.Config) -> Recorder:
    return Recorder(REQUEST, pytestconfig)


def test_there_is_a_current_rollout_only_while_it_is_active(
    context: Recorder, pytestconfig: pytest.Config
) -> None:
    assert current(pytestconfig) is None
    with context.active():
        assert current(pytestconfig) is context
    assert current(pytestconfig) is None


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_a_score_out_of_range_is_refused(context: Recorder, value: float) -> None:
    with pytest.raises(ValueError, match="is not a finite number from 0 to 1"):
        context.score(value)
    assert context.soft_score is None
    assert len(context.refusals) == 1


def test_the_last_score_counts(context: Recorder) -> None:
    context.score(0)
    context.score(1)
    assert context.soft_score == 1.0


def test_json_values_are_kept_as_json(context: Recorder) -> None:
    context.record("tool", {"total": [1, None, "ä"]})
    assert context.transcript[0].content == '{"total": [1, null, "ä"]}'


@each_row(
    "value",
    [object(), {1, 2}, b"bytes", math.nan, {"x": Path()}],
)
def test_what_is_not_json_is_refused(context: Recorder, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match="JSON"):
        context.record("tool", value)
    assert context.transcript == []
    assert context.refusals


@given(st.text(st.characters(), max_size=300), st.integers(10, 400))
def test_a_shortened_text_can_be_encoded_and_is_bounded(text: str, limit: int) -> None:
    short = shorten(text, limit)
    short.encode("utf-8")
    assert len(short) <= limit + 60
    if len(text) <= limit and text.isascii():
        assert short == text
