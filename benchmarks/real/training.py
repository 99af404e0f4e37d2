"""A training of a suite through the plugin: pytest in a process, workers, cache, a real model."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from real.measure import MAX_TOKENS, TEMPERATURE
from real.tasks import SUITES

if TYPE_CHECKING:
    from pathlib import Path

_TEST = '''
import json
from pathlib import Path

import pytest

TASKS = json.loads((Path(__file__).parent / "tasks.json").read_text())


@pytest.mark.skill_task
@pytest.mark.parametrize("name", TASKS)
def test_answer(skill_agent, name):
    """Gives the answer to the letter."""
    prompt, answer = TASKS[name]
    reply = skill_agent(prompt)
    assert reply.strip() == answer, f"wanted {answer!r}, got {reply.strip()!r}"
'''


def train(
    suite: str, folder: Path, target: str, optimizer: str, rollouts: int, workers: int, seed: int
) -> dict[str, Any]:
    """Train once in an empty folder, and read what came out.

    Args:
        suite: name of a suite of ``tasks.py``.
        folder: where it is trained.
        target: the model, ``openai:NAME@URL``.
        optimizer: likewise.
        rollouts: the cap.
        workers: processes.
        seed: of all random choices.

    Raises:
        RuntimeError: the run left no result; with the end of what pytest said.
    """
    (folder / "SKILL.md").write_text(SUITES[suite].skill())
    (folder / f"test_{suite}.py").write_text(_TEST)
    tasks = {task.name: [task.prompt, task.answer] for task in SUITES[suite].tasks}
    (folder / "tasks.json").write_text(json.dumps(tasks))
    (folder / "pytest.ini").write_text(
        f"""[pytest]
skillopt_target = {target}
skillopt_optimizer = {optimizer}
skillopt_request_timeout = 900
skillopt_requests =
    target.temperature = {TEMPERATURE}
    target.max_output_tokens = {MAX_TOKENS}
    optimizer.max_output_tokens = 400
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "--skillopt-train", f"-n{workers}",
               "--skillopt-lanes=4", f"--skillopt-max-rollouts={rollouts}",
               f"--skillopt-seed={seed}"]  # fmt: skip
    with (folder / "said.txt").open("w") as said:
        subprocess.run(command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, check=False)
    results = sorted(folder.glob(".skillopt/**/result.json"))
    if not results:
        raise RuntimeError((folder / "said.txt").read_text()[-3000:])
    found: dict[str, Any] = json.loads(results[-1].read_text())
    return found
