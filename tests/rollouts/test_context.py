"""Records of a test: the allowed ones, and those that are refused at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_skillopt.rollouts.context import Recorder
from pytest_skillopt.rollouts.rollout import RolloutRequest
from pytest_skillopt.untrusted import shorten

REQUEST = RolloutRequest("a.py::t", "source", "SKILL.md", "v", "model", "train", 0)


@pytest.fixture
def context(pytestconfig: pytest.Config) -> Recorder:
    return Recorder(REQUEST, pytestconfig)


def test_the_last_score_counts(context: Recorder) -> None:
    context.score(0)
    context.score(1)
    assert context.soft_score == 1.0


def test_json_values_are_kept_as_json(context: Recorder) -> None:
    context.record("tool", {"total": [1, None, "ä"]})
    assert context.transcript[0].content == '{"total": [1, null, "ä"]}'


@given(st.text(st.characters(), max_size=300), st.integers(10, 400))
def test_a_shortened_text_can_be_encoded_and_is_bounded(text: str, limit: int) -> None:
    short = shorten(text, limit)
    short.encode("utf-8")
    assert len(short) <= limit + 60
    if len(text) <= limit and text.isascii():
        assert short == text
