"""Worlds recorded from real models: their pass rates under sets of lines, drawn from again.

``tickets`` and ``forms`` hold what a small model was measured to do. ``airline`` holds five edits
of a policy for agents (tau2-bench, ``benchmarks/data/README.md``), each as one line: two in a row
that help, and after them one of +4, one of nothing and, after the first, one of -7 points.

A set that was measured, its lines in the order of the text, has its own rates. Any other has those
of the measured sets that differ from it by the fewest lines, their mean where there are several.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import Completion, Usage
from pytest_skillopt.rollouts.rollout import Message, Rollout
from pytest_skillopt.rollouts.sampler import Sampler
from pytest_skillopt.search.history import Observer
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version
from pytest_skillopt.tasks.splits import assign_splits
from pytest_skillopt.tasks.task import SkillTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.rollouts.rollout import RolloutRequest

DATA = Path(__file__).parent.parent / "data"
AIRLINE = "airline"
NAMES = ("tickets", "forms", AIRLINE)
Lines = tuple[int, ...]
"""Numbers of lines of the pool, in the order in which they are appended."""
_OBEYS = 0.8
"""Chance of leaving out what the prompt lists as tried before."""
_SLIGHT = 0.01
"""Change of the pass rate below which a line does nothing."""


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt and its answer, to the letter."""

    name: str
    prompt: str
    answer: str


@dataclass(frozen=True, slots=True)
class Suite:
    """Tasks and the SKILL.md that they begin with."""

    name: str
    start: str
    tasks: tuple[Task, ...]


class PoolOptimizer:
    """The optimizer model of a simulated training: answers with lines of the pool.

    It reads which lines the document has and which the prompt lists as tried, and knows nothing of
    what a line does.
    """

    name = "simulated:pool"
    fingerprint = "pool"
    simulated = True

    def __init__(self, pool: Sequence[str], seed: int) -> None:
        self._pool = pool
        self._seed = seed
        self.calls = 0

    def complete(
        self, messages: Sequence[dict[str, Any]], *, sample: str, **details: Any
    ) -> Completion:
        """Offer one or two lines that the document has not."""
        self.calls += 1
        luck = random.Random(f"{self._seed}/{sample}")
        prompt = "\n\n".join(message["content"] for message in messages)
        document = prompt.partition("[end of data")[0]
        lines = [line for line in self._pool if line not in document]
        if luck.random() < _OBEYS:
            lines = [line for line in lines if line not in prompt] or lines
        chosen = luck.sample(lines, min(len(lines), luck.choice((1, 2))))
        edits = [{"op": "append", "target": "", "content": f"- {line}"} for line in chosen]
        answer = {"reasoning": "what may help", "edits": edits}
        return Completion(json.dumps(answer), usage=Usage(calls=1))


class Recorded:
    """A suite, and what its model was measured to do."""

    def __init__(self, name: str) -> None:
        self.suite, self.pool, self.sets = _airline() if name == AIRLINE else _measured(name)
        self.asked: dict[Lines, int] = {}
        """Samples by set of lines."""
        tasks = [
            SkillTask(f"test_{name}.py::test_answer[{task.name}]", text=repr(task))
            for task in self.suite.tasks
        ]
        self.tasks = assign_splits(tasks, Settings().split)[0]
        self._numbers = {task.id: number for number, task in enumerate(tasks)}

    def lines(self, text: str) -> Lines:
        """Numbers of the pool's lines that a text has, in its order."""
        found = [(text.find(line), n) for n, line in enumerate(self.pool) if line in text]
        return tuple(n for _, n in sorted(found))

    def rates(self, lines: Lines) -> list[float]:
        """Pass rate of each task."""
        if lines in self.sets:
            return self.sets[lines]
        distance = {known: len(set(known) ^ set(lines)) for known in self.sets}
        least = min(distance.values())
        nearest = [self.sets[known] for known in self.sets if distance[known] == least]
        return [statistics.fmean(rates) for rates in zip(*nearest, strict=True)]

    def mean(self, lines: Lines) -> float:
        return statistics.fmean(self.rates(lines))

    def roll(self, request: RolloutRequest, text: str, seed: int) -> Rollout:
        """Draw a rollout."""
        lines = self.lines(text)
        number = self._numbers[request.task]
        self.asked[lines] = self.asked.get(lines, 0) + 1
        task = self.suite.tasks[number]
        passed = random.Random(f"{seed}/{request.key}").random() < self.rates(lines)[number]
        answer = task.answer if passed else "Let me think about that."
        talk = (Message("user", task.prompt), Message("assistant", answer))
        wrong = "" if passed else f"AssertionError: wanted something else than {answer!r}"
        return Rollout(
            request,
            "passed" if passed else "failed",
            float(passed),
            wrong,
            transcript=talk,
            usage=Usage(calls=1),
        )

    def effects(self, lines: Lines) -> list[float]:
        """Return what leaving each line out would cost."""
        mean = self.mean(lines)
        return [mean - self.mean(tuple(n for n in lines if n != line)) for line in lines]


def _measured(name: str) -> tuple[Suite, list[str], dict[Lines, list[float]]]:
    """Read a suite, the lines on offer, and the pass rates by lines."""
    data = json.loads((DATA / "real_model.json").read_text())["suites"][name]
    suite = Suite(name, data["start"], tuple(Task(*task) for task in data["tasks"]))
    return suite, data["pool"], {tuple(row["lines"]): row["rates"] for row in data["sets"]}


def _airline() -> tuple[Suite, list[str], dict[Lines, list[float]]]:
    """Read the recorded edits: a version has the lines of its parent and one of its own."""
    data = json.loads((DATA / "tau2_airline_edits.json").read_text())
    seed, *edited = data["versions"]
    tasks = sorted(seed["counts"])
    lines: dict[str, Lines] = {seed["id"]: ()}
    for number, version in enumerate(edited):
        lines[version["id"]] = (*lines[version["parent"]], number)
    start = "---\nname: airline\ndescription: Serves passengers.\n---\n# Policy\n\nBe of help.\n"
    suite = Suite(AIRLINE, start, tuple(Task(f"task-{t}", f"Request {t}", "done") for t in tasks))
    pool = [f"Apply amendment {version['id']} of the policy." for version in edited]
    return (
        suite,
        pool,
        {
            lines[version["id"]]: [version["counts"][task] / data["trials"] for task in tasks]
            for version in data["versions"]
        },
    )


class Replay:
    """An executor that draws rollouts from a recorded world, one at a time."""

    capacity = 1
    ended = ""

    def __init__(self, world: Recorded, seed: int) -> None:
        self._world = world
        self._seed = seed
        self._texts: dict[str, str] = {}
        self._queue: dict[str, RolloutRequest] = {}

    def add_version(self, skill: str, version: str, content: bytes) -> None:
        self._texts[version] = content.decode()

    def submit(self, requests: Iterable[RolloutRequest]) -> None:
        self._queue.update((request.key, request) for request in requests)

    def next(self) -> Rollout:
        request = self._queue.pop(next(iter(self._queue)))
        return self._world.roll(request, self._texts[request.version], self._seed)

    def cancel(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if self._queue.pop(key, None)}

    def text(self, version: str) -> str:
        return self._texts[version]


def train(
    name: str,
    cap: int,
    seed: int,
    settings: dict[str, Any],
    world: Recorded | None = None,
) -> tuple[float, int, int, int, int, int, int, str, str, float]:
    """Train once; the fields of ``learning.Run``."""
    world = world or Recorded(name)
    executor = Replay(world, seed)
    sampler = Sampler(executor, world.tasks, model=name, settings=Settings(max_rollouts=cap))
    optimizer = PoolOptimizer(world.pool, seed)
    verdicts = Verdicts()
    outcome = Trainer(
        Version.from_bytes(world.suite.start.encode()),
        world.tasks,
        sampler,
        optimizer,
        Settings(seed=seed, max_rollouts=cap, optimizer_workers=1, **settings),
        skill="SKILL.md",
        observer=verdicts,
    ).run()
    lines = world.lines(outcome.after.main.text)
    effects = world.effects(lines)
    start = world.mean(())
    end = world.mean(lines)
    reachable = max(map(statistics.fmean, world.sets.values()))
    steps = [(), *(world.lines(executor.text(version)) for version in verdicts.accepted)]
    false = sum(world.mean(b) <= world.mean(a) for a, b in itertools.pairwise(steps))
    return (
        (end - start) / (reachable - start),
        false,
        sampler.taken,
        optimizer.calls,
        sum(abs(effect) <= _SLIGHT for effect in effects),
        sum(effect < -_SLIGHT for effect in effects),
        0,
        outcome.status,
        outcome.reason,
        (world.mean(world.lines(outcome.proposal.main.text)) - start) / (reachable - start),
    )


class Verdicts(Observer):
    """Notes which versions were accepted."""

    def __init__(self) -> None:
        self.accepted: list[str] = []

    def record(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "verdict" and data["decision"] == "accepted":
            self.accepted.append(data["candidate"])


class _Ledger(dict[str, Rollout]):
    """Measurements by key."""

    def put(self, rollout: Rollout) -> None:
        self[rollout.request.key] = rollout
