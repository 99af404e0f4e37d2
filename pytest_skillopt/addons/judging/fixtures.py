"""Fixture for a model that grades; imports happen when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_skillopt.addons.judging.judge import Judge


@pytest.fixture
def skill_judge(request: pytest.FixtureRequest) -> Judge:
    """Grade an answer by a model.

    ``skill_judge(rubric, answer, votes=1)`` returns a ``Judgement`` with .score and .reason.
    """
    from pytest_skillopt.addons.judging.judge import Judge
    from pytest_skillopt.fixtures import without_traceback
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.suite.context import GuardedModel, recorder

    running = recorder(request)
    with without_traceback():
        return Judge(
            GuardedModel(Models.of(request.config).get("judge")),
            sample=running.request.sample,
            stage=running.request.stage,
            task=request.node.nodeid,
            on_usage=running.add_judge_usage,
        )
