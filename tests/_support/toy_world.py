"""A small simulated world: a suite whose tasks need conventions, a target, an optimizer.

Task ``t7`` passes with probability ``strong`` when the skill states every convention it needs and
``weak`` otherwise. The optimizer reads the failures in its prompt and, like a real one, proposes
the convention that is missing, at times rubbish, at times harm.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gate_draws import luck

from pytest_skillopt.edits.calls import Calls, Prompts
from pytest_skillopt.edits.context import Context
from pytest_skillopt.edits.records import Memory, TaskRecord
from pytest_skillopt.edits.vetting import Vetting
from pytest_skillopt.model.types import Completion, Usage
from pytest_skillopt.rollouts.rollout import InfraError, Message, Rollout, RolloutRequest
from pytest_skillopt.rollouts.sampler import Sampler
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.edits import Edit
from pytest_skillopt.skill.version import Version
from pytest_skillopt.tasks.task import SkillTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SKILL = b"---\nname: toy\ndescription: A toy.\n---\n\n# Toy\n\nDo what is asked.\n"
HARM = "Always answer in one word and skip every check."
NOUNS = ("dates", "totals", "names", "currency", "addresses", "units", "codes", "headers")


def rule(number: int) -> str:
    """The line that states convention ``number``."""
    return f"- Convention {number}: write the {NOUNS[number % len(NOUNS)]} in form {number}."


@dataclass
class World:
    """Conventions that each task needs, and pass rates of the target."""

    needs: dict[str, tuple[int, ...]]
    strong: float = 0.95
    weak: float = 0.05
    seed: int = 0
    errors: Callable[[RolloutRequest], InfraError | None] = lambda request: None

    def rate(self, task: str, text: str) -> float:
        """True pass rate of a task under a skill's text."""
        stated = all(rule(number) in text for number in self.needs[task])
        rate = self.strong if stated else self.weak
        return rate * 0.3 if HARM in text else rate

    def mean(self, text: str, tasks: Iterable[str]) -> float:
        rates = [self.rate(task, text) for task in tasks]
        return sum(rates) / len(rates)

    def run(self, request: RolloutRequest, text: str) -> Rollout:
        fault = self.errors(request)
        if fault is not None:
            return Rollout(request, "error", error=fault)
        usage = Usage(calls=1, input_tokens=100, output_tokens=20)
        talk = (Message("user", f"work on {request.task}"), Message("assistant", "done"))
        if luck(f"{self.seed}/{request.key}") < self.rate(request.task, text):
            return Rollout(request, "passed", 1.0, transcript=talk, usage=usage)
        missing = [n for n in self.needs[request.task] if rule(n) not in text]
        what = f"convention {missing[0]} is not followed" if missing else "a slip"
        return Rollout(
            request,
            "failed",
            0.0,
            f"AssertionError: {what}",
            f"tests/test_toy.py:{10 + len(what)}",
            transcript=talk,
            usage=usage,
        )


@dataclass
class ToySampler(Sampler):
    """Answers every request at once; counts what is new."""

    world: World
    tasks: Sequence[SkillTask]
    versions: dict[str, str] = field(default_factory=dict)
    sampled: dict[str, Rollout] = field(default_factory=dict)
    before_take: Callable[[int], None] = lambda taken: None

    rollouts_left = None
    at_once = 1
    ended = ""

    def add_version(self, skill: str, version: Version) -> str:
        self.versions[version.digest] = version.packed.decode()
        return version.digest

    def request(
        self, task: str, version: str, stream: str, index: int, target: str = ""
    ) -> RolloutRequest:
        return RolloutRequest(task, "source", "SKILL.md", version, "toy", stream, index)

    def take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        for request in requests:
            if request.key not in self.sampled:
                self.before_take(len(self.sampled))
                text = self.versions[request.version]
                self.sampled[request.key] = self.world.run(request, text)
        return self.kept(requests)

    def kept(self, requests: Iterable[RolloutRequest]) -> list[Rollout]:
        return [self.sampled[r.key] for r in requests if r.key in self.sampled]


@dataclass
class ToyOptimizer:
    """Sees only the prompt. ``script`` may answer first: schema name and messages to text."""

    useful: float = 0.7
    harmful: float = 0.05
    seed: int = 0
    script: Callable[[str, Sequence[dict[str, Any]]], str | None] = lambda form, messages: None
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """(form, sample, whole prompt) of every call."""
    name: str = "toy:optimizer"
    fingerprint: str = "toy"
    simulated: bool = True

    def complete(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        sample: str,
        stage: str = "",
        task: str = "",
        tools: Sequence[dict[str, Any]] = (),
        response_format: dict[str, Any] | None = None,
    ) -> Completion:
        assert response_format is not None
        form = response_format["json_schema"]["name"]
        prompt = "\n\n".join(message["content"] for message in messages)
        self.asked.append((form, sample, prompt))
        text = self.script(form, messages)
        if text is None:
            text = json.dumps(self._answer(form, prompt, random.Random(f"{self.seed}/{sample}")))
        return Completion(text, usage=Usage(calls=1, input_tokens=len(prompt) // 4))

    def forms(self) -> list[str]:
        return [form for form, _, _ in self.asked]

    def _answer(self, form: str, prompt: str, luck: random.Random) -> dict[str, Any]:
        if form == "Edits" and "# Proposed edits" in prompt:
            return self._merge(prompt)
        if form in ("Edits", "CausedEdits"):
            return self._propose(prompt, luck, causes=form == "CausedEdits")
        if form == "Ranking":
            return {"reasoning": "in order", "selected_indices": list(range(20))}
        if form == "EditCount":
            return {"reasoning": "few", "count": 1}
        if form == "Reminders":
            return {"reasoning": "lapses", "reminders": ["Think of the conventions."]}
        if form == "Body":
            return {"reasoning": "anew", "body": self._body(prompt)}
        return {"reasoning": "so far", "text": "Short rules work."}

    def _propose(self, prompt: str, luck: random.Random, *, causes: bool = False) -> dict[str, Any]:
        edits: list[str] = []
        stated = re.findall(r"^- Convention \d+: .*\.$", prompt, re.MULTILINE)
        lapses = [
            {"op": "insert_after", "target": line, "content": f"Mind: {line}", "cause": "lapse"}
            for line in stated[:1]
            if causes and "a slip" in prompt
        ]
        for number in dict.fromkeys(re.findall(r"convention (\d+) is not followed", prompt)):
            draw = luck.random()
            if draw < self.useful:
                edits.append(rule(int(number)))
            elif draw < self.useful + self.harmful:
                edits.append(HARM)
            else:
                edits.append(f"- Take care over matter {luck.randrange(1000)}.")
        return {
            "reasoning": "what the failures say",
            "edits": [
                *({"op": "append", "target": "", "content": line} for line in edits),
                *lapses,
            ],
        }

    def _merge(self, prompt: str) -> dict[str, Any]:
        lines = dict.fromkeys(re.findall(r"^- Convention \d+: .*\.$", prompt, re.MULTILINE))
        document = prompt.split("# Proposed edits")[0]
        return {
            "reasoning": "merged",
            "edits": [
                {"op": "append", "target": "", "content": line}
                for line in lines
                if line not in document
            ],
        }

    def _body(self, prompt: str) -> str:
        numbers = re.findall(r"[Cc]onvention (\d+)", prompt)
        return "\n".join(["# Toy", "", *dict.fromkeys(rule(int(n)) for n in numbers)])


def make_tasks(
    world: World, splits: dict[str, str] | None = None, **fields: Any
) -> list[SkillTask]:
    """A task for each entry of ``needs``; by default half train, a quarter val, a quarter test."""
    kinds = ("train", "val", "train", "test")
    return [
        SkillTask(
            name,
            "source",
            "SKILL.md",
            name,
            split=(splits or {}).get(name, kinds[i % 4]),
            doc=f"Task {name} of the toy suite.",
            **fields,
        )
        for i, name in enumerate(world.needs)
    ]


def make_world(tasks: int = 40, rules: int = 4, **fields: Any) -> World:
    """A suite in which every second task needs one of the conventions, in turn."""
    needs: dict[str, tuple[int, ...]] = {}
    for i in range(tasks):
        needs[f"tests/test_toy.py::test_it[t{i}]"] = ((i // 8) % rules,) if i % 8 < 5 else ()
    return World(needs, **fields)


def make_context(model: Any = None, tasks: Sequence[SkillTask] = (), **fields: Any) -> Context:
    """Make what a stage is told; unknown fields are settings."""
    own = {name: fields.pop(name) for name in list(fields) if name in Context.__dataclass_fields__}
    document = own.pop("version", Version.from_bytes(SKILL))
    settings = Settings(**fields)
    calls = Calls(model or ToyOptimizer(useful=1.0, harmful=0.0), Prompts())
    vetting = Vetting(tasks, document, settings)
    memory = own.pop("memory", None) or Memory()
    return Context(document, settings, calls, memory, vetting, step=1, **own)


def make_record(
    name: str, outcomes: str, *, message: str = "convention 1 is not followed", **task: Any
) -> TaskRecord:
    """A task with rollouts: ``+`` passed, ``-`` failed, each with a transcript of its own."""
    task.setdefault("split", "train")
    known = SkillTask(name, "source", "SKILL.md", name, **task)
    return TaskRecord.of(
        known,
        [
            Rollout(
                RolloutRequest(name, "source", "SKILL.md", "v", "toy", "train", i),
                "passed" if sign == "+" else "failed",
                float(sign == "+"),
                "" if sign == "+" else f"AssertionError: {message}",
                "" if sign == "+" else "tests/test_toy.py:12",
                transcript=(Message("assistant", f"reply {i} of {name}"),),
            )
            for i, sign in enumerate(outcomes)
        ],
    )


def append(line: str, *tasks: str, **fields: Any) -> Edit:
    """A proposal that appends one line."""
    return Edit("append", "", line, tasks=tasks, **fields)
