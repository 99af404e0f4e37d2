"""Fixture ``skill_user``: a model that plays an agent's user, for tasks of several turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt import Model
    from pytest_skillopt.plugins.users.user import User


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("skillopt_user", "model of skill_user (default: the optimizer)", default=None)


def pytest_skillopt_task(item: pytest.Item) -> Mapping[str, Any] | None:
    """Tell that a task calls the model of the user."""
    return {"roles": ["user"]} if "skill_user" in getattr(item, "fixturenames", ()) else None


@pytest.fixture
def skill_user(request: pytest.FixtureRequest) -> User:
    """Talk to an agent as its user, by a model.

    ``skill_user(agent, opening, knows={...}, plan=...)`` returns a ``Talk`` with .messages,
    .asked_for(fact), .tool(name) and .ended.
    """
    from pytest_skillopt.fixtures import without_traceback
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.plugins.users.user import User
    from pytest_skillopt.rollouts.context import model_of_test, recorder

    running = recorder(request)

    def model() -> Model:
        with without_traceback():
            return model_of_test(running.request, Models.of(request.config), "user")

    return User(model, recorder=running, task=request.node.nodeid)
