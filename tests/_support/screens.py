"""Lines and reports of a training in seven situations, as text.

``python tests/_support/screens.py`` trains, and writes results and texts anew.

World, optimizer and sampler are those of ``toy_world.py``; the trainer, the lines while it runs and
the report are the real ones.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import toy_world as toy

from pytest_skillopt.modes.train import _Observer, _skill_result
from pytest_skillopt.report.live import Display
from pytest_skillopt.report.terminal import lines
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.run.directory import Home
from pytest_skillopt.run.openrun import Run
from pytest_skillopt.run.result import SCHEMA, Arm, Result, UsageRow
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version
from pytest_skillopt.tasks.splits import assign_splits
from pytest_skillopt.tasks.task import SkillTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest

FOLDER = Path(__file__).parents[1] / "data" / "screens"
SIZES = (8, 60)
ARMS = ("start", "before", "after")
COMMAND = ["pytest", "--skillopt-train"]


@dataclass(frozen=True)
class Situation:
    """A world and the limits of a training in it."""

    weak: float = 0.6
    strong: float = 0.95
    useful: float = 0.5
    cap: dict[int, int] | None = None
    """Cap of rollouts by the number of tasks."""
    stop: int = 0
    """Number of samples at which the session is interrupted."""
    broken: bool = False
    """Whether the test of every task ends in an error of its own."""


SITUATIONS = {
    "accepted": Situation(),
    "refused": Situation(weak=0.6, strong=0.72, cap={8: 150, 60: 260}),
    "nothing-found": Situation(useful=0.0, cap={8: 250, 60: 400}),
    "nothing-to-find": Situation(weak=1.0, strong=1.0),
    "capped": Situation(useful=0.1, cap={8: 50, 60: 110}),
    "interrupted": Situation(stop=60),
    "faulty": Situation(broken=True, cap={8: 250, 60: 400}),
}


class _World(toy.World):
    """A world whose tests may all end in an error of their own."""

    broken = False

    def run(self, request: RolloutRequest, text: str) -> Rollout:
        rollout = super().run(request, text)
        if self.broken:
            said = "KeyError: 'total'"
            where = "tests/test_toy.py:7"
            return replace(rollout, outcome="failed", score=0.0, message=said, location=where)
        return rollout


def train(name: str, size: int) -> tuple[list[str], Result]:
    """Train in a situation; return the lines meanwhile, and the result."""
    situation = SITUATIONS[name]
    world = _World(
        {f"tests/test_toy.py::test_it[t{i}]": (1,) for i in range(size)},
        strong=situation.strong,
        weak=situation.weak,
    )
    world.broken = situation.broken
    tasks = [
        SkillTask(task, f"{task} source", "SKILL.md", task, doc="Writes a total.")
        for task in world.needs
    ]
    tasks, notes = assign_splits(tasks, Settings().split, 0)
    cap = situation.cap[size] if situation.cap else 0
    settings = Settings(max_rollouts=cap)

    def stop(taken: int) -> None:
        if situation.stop and taken == situation.stop:
            raise StopRun("the session was interrupted", kind=Stop.INTERRUPTED)

    printed: list[str] = []
    display = _display(printed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        journal = SimpleNamespace(entries=[], write=lambda *_: None, kept=lambda kind: [])
        known = {
            "settings": settings,
            "fingerprint": "toy",
            "notes": [],
            "tasks": tasks,
            "versions": {"SKILL.md": None},
        }
        known["directory"] = SimpleNamespace(name="RUN")
        home = Home(root / ".skillopt")
        made = SimpleNamespace(
            root=root, journal=journal, home=home, tasks_of=lambda skill: tasks, **known
        )
        made.skill_result = partial(Run.skill_result, cast("Any", made))
        run = cast("Any", made)
        sampler = toy.ToySampler(world, tasks, before_take=stop)
        optimizer = toy.ToyOptimizer(useful=situation.useful, harmful=0.0)
        trainer = Trainer(
            Version.from_bytes(toy.SKILL),
            tasks,
            sampler,
            optimizer,
            settings,
            skill="SKILL.md",
            root=root,
            observer=_Observer(run, display, "SKILL.md"),
        )
        outcome = trainer.run()
        skill = _skill_result(run, outcome)
    rows = []
    for row in skill.tasks:
        taken = [one for key, one in sampler.sampled.items() if one.request.task == row.id]
        measured = [one for one in taken if one.measured]
        passed = sum(one.passed for one in measured)
        rows.append(row.model_copy(update={"passed": passed, "samples": len(measured)}))
    written = outcome.status == "accepted"
    skill = skill.model_copy(update={"tasks": rows, "written": written})
    resume = f"{' '.join(COMMAND)} --skillopt-resume=RUN" if outcome.resumable else ""
    result = Result(
        mode="train",
        run="RUN",
        started="2026-01-02T03:04:05+00:00",
        seconds=60.0,
        status=skill.status,
        reason=skill.reason,
        command=[*COMMAND, *([f"--skillopt-max-rollouts={cap}"] if cap else [])],
        skills=[skill],
        models={"target": "toy:target", "optimizer": "toy:optimizer"},
        settings=settings.to_json(),
        usage=[UsageRow(role="target", stage="all", calls=outcome.samples, input_tokens=1)],
        rollouts=outcome.samples,
        notes=[*notes, *outcome.notes],
        resume=resume,
    )
    return printed, _slim(result)


def screen(printed: Sequence[str], result: Result, width: int = 80) -> str:
    """Return the lines of a training and its report."""
    told = [note for note in result.notes if "are not split" in note]
    report = [line.text for line in lines(result, width, live=True, told=told)]
    return "\n".join([*printed, "", *report, ""])


def _slim(result: Result) -> Result:
    """Return the result without what no screen shows."""
    (skill,) = result.skills
    tasks = [
        row.model_copy(update={arm: _without_talk(getattr(row, arm)) for arm in ARMS})
        for row in skill.tasks
    ]
    verdict = {key: (skill.verdict or {}).get(key) for key in ("decision", "e_value")}
    slim = skill.model_copy(update={"tasks": tasks, "verdict": verdict, "steps": []})
    return result.model_copy(update={"skills": [slim], "settings": {"seed": 0}})


def _without_talk(arm: Arm | None) -> Arm | None:
    if arm is None or arm.sample is None:
        return arm
    return arm.model_copy(update={"sample": arm.sample.model_copy(update={"transcript": []})})


def _display(printed: list[str]) -> Display:
    """Return a display of a log that keeps its lines."""
    reporter = SimpleNamespace(isatty=False, ensure_newline=list, write_line=printed.append)
    config = SimpleNamespace(
        pluginmanager=SimpleNamespace(get_plugin=lambda name: reporter),
        option=SimpleNamespace(verbose=0),
        hook=SimpleNamespace(pytest_skillopt_step=lambda **_: None),
    )
    return Display(cast("Any", config))


def path(name: str, size: int, suffix: str = "txt") -> Path:
    return FOLDER / f"{name}-{size}.{suffix}"


def kept(name: str, size: int) -> tuple[list[str], Result]:
    """Return the lines and the result of a training that was kept."""
    found = json.loads(path(name, size, "json").read_text("utf-8"))
    return found["printed"], Result.load(json.dumps(found["result"]))


def keep(name: str, size: int) -> None:
    """Train, and keep the lines, the result and what they look like."""
    printed, result = train(name, size)
    told = result.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    text = json.dumps({"printed": printed, "result": {"schema": SCHEMA, **told}}, indent=None)
    path(name, size, "json").write_text(f"{text}\n", encoding="utf-8")
    path(name, size).write_text(screen(printed, result), encoding="utf-8")


if __name__ == "__main__":
    for chosen in SITUATIONS if len(sys.argv) < 2 else sys.argv[1:]:
        for number in SIZES:
            keep(chosen, number)
