"""The simulated target: an executor that draws rollouts from a world."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pytest_skillopt.model.types import Usage
from pytest_skillopt.rollouts.rollout import Message, Rollout, RolloutRequest
from worlds.timeline import Timeline
from worlds.world import CONVENTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worlds.world import World


class WorldExecutor:
    """Answers in the order of submission."""

    ended = ""

    def __init__(
        self,
        world: World,
        timeline: Timeline | None = None,
        lanes: int = 1,
        *,
        repeats: bool = False,
    ) -> None:
        """Take the world that it plays.

        Args:
            world: the tasks and their pass rates.
            timeline: is told of each round of rollouts.
            lanes: rollouts that are said to run at once.
            repeats: each text has one outcome for each task, as of a model that repeats itself.
        """
        self.world = world
        self.capacity = lanes
        self._repeats = repeats
        self._timeline = timeline or Timeline()
        self.texts: dict[str, str] = {}
        self._queue: dict[str, RolloutRequest] = {}

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        self.texts[version] = content.decode()

    def submit(self, requests: Iterable[RolloutRequest]) -> None:
        wanted = {request.key: request for request in requests}
        self._timeline.rolled(len(wanted))
        self._queue.update(wanted)

    def next(self) -> Rollout:
        return self._run(self._queue.pop(next(iter(self._queue))))

    def cancel(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if self._queue.pop(key, None)}

    def _run(self, request: RolloutRequest) -> Rollout:
        world = self.world
        text = self.texts[request.version]
        drawn = f"{request.task}/{request.version}" if self._repeats else request.key
        luck = random.Random(f"{world.seed}/{drawn}")
        passed = luck.random() < world.rate(request.task, text)
        case = world.cases[request.task]
        stated = world.stated(text)
        missing = [n for n in case.needs if n not in stated or world.heeded(n, text) < 1]
        talk = [Message("user", f"Write the record of letter {case.code}.")]
        if passed:
            did = [
                f"wrote the {thing} {form}" for thing, form in map(CONVENTIONS.__getitem__, missing)
            ]
            talk.append(Message("assistant", f"I {' and '.join(did) or 'wrote the record'}."))
            return Rollout(request, "passed", 1.0, transcript=tuple(talk), usage=Usage(calls=1))
        talk.append(Message("assistant", "Here is the record."))
        line = 10 + 5 * (len(case.needs) - len(missing))
        return Rollout(
            request,
            "failed",
            0.0,
            self._message(case.code, missing, luck),
            f"tests/test_records.py:{line}",
            line,
            transcript=tuple(talk),
            usage=Usage(calls=1),
        )

    def _message(self, code: str, missing: list[int], luck: random.Random) -> str:
        """Return the assertion's message: often what is wrong, at times beside the point."""
        kind = self.world.kind
        wrong = missing
        if not missing and kind.everywhere:
            wrong = list(range(kind.rules))
        if wrong and luck.random() < kind.clear:
            return f"AssertionError: wrong {CONVENTIONS[luck.choice(wrong)][0]} in '{code}'"
        if not wrong and luck.random() < 0.3:
            return f"AssertionError: wrong {luck.choice(CONVENTIONS)[0]} in '{code}'"
        return f"AssertionError: the record is not '{code}'"
