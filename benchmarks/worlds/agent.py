"""A scripted coding agent that proposes beside the analysts, in the folder of the real ones.

It has the ideas of the simulated optimizer, and tries each on the task that it is for before it
keeps it: what a coding agent can do and an analyst cannot.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

from pytest_skillopt.addons.harness.proposal import Folder, proposed
from pytest_skillopt.addons.harness.settings import MOST_PROPOSALS, MOST_ROLLOUTS
from pytest_skillopt.edits.reflect import reflect
from pytest_skillopt.model.types import Usage
from pytest_skillopt.search.extensions import Stages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.edits.combine import Patch
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.records import TaskRecord
    from worlds.proposer import Proposer


def with_agent(proposer: Proposer, seed: int) -> Stages:
    """Return the stages of a training with the agent beside the analysts."""
    runs = 0

    def work(folder: Folder) -> tuple[str, Usage]:
        luck, kept = random.Random(f"{seed}/agent/{runs}"), dict[str, list[int]]()
        skill, rollouts = folder.root / "skill" / "SKILL.md", 0
        about = (folder.root / "about.md").read_text()
        for number in range(1, len(list((folder.root / "failures").iterdir())) + 1):
            failure = (folder.root / "failures" / f"{number}.md").read_text()
            before = skill.read_text()
            proposer.calls += 1
            for line in proposer.lines(f"{about}\n\n# Rollouts\n\n{failure}", luck):
                if line in before or rollouts == MOST_ROLLOUTS:
                    continue
                skill.write_text(f"{before.rstrip()}\n\n{line}\n")
                rollouts += 1
                if "A rollout that passed" in folder.answer(str(number)):
                    kept[line] = [number]
                    break
                skill.write_text(before)
        (folder.root / "tasks.json").write_text(json.dumps(kept))
        return "The task passed with it.", Usage(calls=1)

    def reflect_with_agent(records: Sequence[TaskRecord], context: Context) -> list[Patch]:
        nonlocal runs
        found, failing = reflect(records, context), [r for r in records if r.failed]
        if not failing or runs >= MOST_PROPOSALS:
            return found
        runs += 1
        patches, _ = proposed(failing, context, work, name="scripted", others={})
        return [*found, *patches]

    return Stages(reflect=reflect_with_agent)
