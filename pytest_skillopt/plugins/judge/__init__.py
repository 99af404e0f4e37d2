"""Fixture ``skill_judge``, and the command ``judge``, which compares it with people."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from pytest_skillopt.plugins.judge.judge import Judge


def pytest_skillopt_task(item: pytest.Item) -> Mapping[str, Any] | None:
    """Tell that a task calls the judge."""
    return {"roles": ["judge"]} if "skill_judge" in getattr(item, "fixturenames", ()) else None


def pytest_skillopt_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    parser = commands.add_parser("judge", help="compare the judge with people")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser("calibrate", help="compare its grades with people's labels")
    action.add_argument(
        "file", type=Path, metavar="FILE", help="one JSON object with a label per line"
    )
    action.set_defaults(handle=_calibrate)


def _calibrate(args: argparse.Namespace) -> int:
    from pytest_skillopt.plugins.judge.calibrate import calibrate
    from pytest_skillopt.run.project import with_model

    return with_model("judge", lambda config, model: calibrate(model, args.file))


@pytest.fixture
def skill_judge(request: pytest.FixtureRequest) -> Judge:
    """Grade an answer by a model.

    ``skill_judge(rubric, answer, votes=1)`` returns a ``Judgement`` with .score and .reason.
    """
    from pytest_skillopt.fixtures import without_traceback
    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.plugins.judge.judge import Judge
    from pytest_skillopt.rollouts.context import model_of_test, recorder

    running = recorder(request)
    with without_traceback():
        return Judge(
            model_of_test(running.request, Models.of(request.config), "judge"),
            sample=running.request.sample,
            stage=running.request.stage,
            task=request.node.nodeid,
            on_usage=partial(running.add_usage_of, "judge"),
        )
