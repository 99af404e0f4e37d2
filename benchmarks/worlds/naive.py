"""The loop that many people write first: keep a patch if the suite's pass rate rises."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pytest_skillopt.rollouts.rollout import RolloutRequest
from worlds.proposer import Proposer
from worlds.target import WorldExecutor
from worlds.world import SKILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.rollouts.rollout import Rollout
    from worlds.world import World


class NaiveLoop:
    """One sample of every task, one reply about one failure, and again."""

    def __init__(self, world: World, cap: int, seed: int) -> None:
        """Take a world and the most samples."""
        self.samples = 0
        self.calls = 0
        self._world = world
        self._cap = cap
        self._luck = random.Random(f"naive/{seed}")
        self._executor = WorldExecutor(world)
        self._proposer = Proposer(world.kind, seed)

    def run(self) -> str:
        """Train until less than one sample of every task is left; return the text."""
        text = self._world.start
        best, failures = self._measure(text)
        while self.samples + len(self._world.tasks) <= self._cap and self.calls < self._cap:
            if not failures:
                best, failures = self._measure(text)
                continue
            lines = self._ask(text, self._luck.choice(failures))
            if not lines:
                continue
            longer = "\n".join([text.rstrip("\n"), *lines, ""])
            mean, failed = self._measure(longer)
            if mean > best:
                text = longer
                best = mean
                failures = failed
        return text

    def _measure(self, text: str) -> tuple[float, Sequence[Rollout]]:
        """Return the pass rate of one sample of every task, and the failures."""
        tasks = self._world.tasks
        version = f"{self.samples}"
        self._executor.add_version(SKILL, version, text.encode())
        self._executor.submit(
            RolloutRequest(task.id, task.source, SKILL, version, "world", "naive", 0)
            for task in tasks
        )
        self.samples += len(tasks)
        rollouts = [self._executor.next() for _ in tasks]
        failures = [rollout for rollout in rollouts if not rollout.passed]
        return 1 - len(failures) / len(tasks), failures

    def _ask(self, text: str, failure: Rollout) -> list[str]:
        """Return the lines of a reply about a failure that the text does not have yet."""
        self.calls += 1
        talk = "\n".join(message.content for message in failure.transcript)
        prompt = f"{text}\n[end of data]\n# Rollouts\n{talk}\n{failure.message}"
        known = text.split("\n")
        lines = self._proposer.lines(prompt, random.Random(f"naive/{self._luck.random()}"))
        return [line for line in lines if line not in known]
