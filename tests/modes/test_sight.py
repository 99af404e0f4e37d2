"""What a training says of the gains that its gate can see."""

from __future__ import annotations

import re

import pytest

from pytest_skillopt.gate.data import GateTask, Sample
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.modes.plan import sight
from pytest_skillopt.search.stages import configured_gate
from pytest_skillopt.settings import Settings


@pytest.mark.parametrize("tasks", [1, 2])
def test_of_very_few_tasks_it_says_what_is_seen_and_what_helps(tasks: int) -> None:
    said = sight(tasks, Settings())
    assert "tasks that are wholly fixed" in said
    assert "add val tasks" in said
    gate = configured_gate(Settings(), [GateTask(f"t{i}") for i in range(tasks)])
    verdict = run_gate(gate, lambda draws: [Sample(d, d.arm == "candidate") for d in draws])
    assert verdict.accepted, "a task that is wholly fixed is seen"


def test_more_tasks_show_smaller_gains() -> None:
    said = [sight(tasks, Settings()) for tasks in (3, 8, 20)]
    assert all("if its" in words for words in said)
    points = [
        int(match[1]) for words in said if (match := re.search(r"gain of (\d+) point", words))
    ]
    assert points == sorted(set(points), reverse=True)
    assert len(points) == 3
