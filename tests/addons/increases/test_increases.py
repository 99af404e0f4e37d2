"""Bounds on how much dearer or slower a rollout may become."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from greetings import HEAD, RULE, greet, project, result_of

from pytest_skillopt.suite import runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from chat_server import ChatServer

__all__ = ["project"]


def reply(edit: dict[str, str]) -> Callable[[dict[str, Any]], str]:
    answer = json.dumps({"reasoning": "it is missing", "edits": [edit]})
    return lambda body: answer if body["model"] == "thinker" else greet(body)


COST, TIME = "skillopt_max_cost_increase", "skillopt_max_time_increase"


@pytest.mark.parametrize(
    ("setting", "bound", "said"),
    [
        (COST, "20%", "% more tokens ("),
        (TIME, "50%", "100 % more seconds (1 before, 2 after)"),
        (COST, "900", ""),
    ],
)
def test_a_better_skill_that_costs_or_takes_too_much_is_not_written(
    project: pytest.Pytester,
    chat_server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    bound: str,
    said: str,
) -> None:
    """By a clock that only answers advance: by two seconds under the new rule, else by one."""
    now = 0.0
    clock = SimpleNamespace(**{**vars(time), "perf_counter": lambda: now})
    monkeypatch.setattr(runner, "time", clock)
    (project.path / "SKILL.md").write_text(f"{HEAD}Say hello.\n")
    rule = f"{RULE} " + "So do it. " * 20
    play = reply({"op": "append", "content": rule})

    def slow(body: dict[str, Any]) -> str:
        nonlocal now
        now += 2.0 if RULE in str(body["messages"]) else 1.0
        return str(play(body))

    chat_server.reply = slow
    project.runpytest_inprocess("--skillopt-train", "-p", "no:xdist", "-o", f"{setting}={bound}")
    skill = result_of(project.path)
    assert skill["written"] is not bool(said)
    refused = {name for name in (COST, TIME) if name in skill["reason"]}
    assert refused == ({setting} if said else set())
    assert said in skill["reason"]


@pytest.mark.parametrize("bound", ["much", "-5%", "nan"])
@pytest.mark.parametrize("name", ["max_cost_increase", "max_time_increase"])
def test_a_bound_that_is_none_is_a_usage_error(
    project: pytest.Pytester, name: str, bound: str
) -> None:
    wrong = ("--skillopt-train", "-n2", "-o", f"skillopt_{name}={bound}")
    result = project.runpytest_inprocess(*wrong)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*skillopt_{name}: '{bound}' is not a share such as 20%*"])
    result.stdout.no_fnmatch_line("*workers*")
