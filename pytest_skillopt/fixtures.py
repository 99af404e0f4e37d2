"""The fixtures that a task sees: ``skill``, ``skill_agent``, ``skill_judge`` and ``rollout``.

They work the same in an ordinary run, where the skill is the file on disk and nothing is recorded,
and in a rollout, where the runner has put a version and a recorder into the context.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_skillopt.models import Models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.model.judge import Judge
    from pytest_skillopt.model.types import Usage
    from pytest_skillopt.suite.context import RolloutContext

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Skill:
    """The version of the skill under test, read-only."""

    text: str
    """The whole file."""
    body: str
    """The file without its frontmatter."""
    path: Path
    """A directory that holds the whole skill with this version of its file."""
    name: str
    version: str
    """SHA-256 of the file's bytes."""


class Recorder:
    """What the fixture ``rollout`` gives: who this rollout is, and where it leaves its traces."""

    def __init__(self, context: RolloutContext | None, nodeid: str) -> None:
        self._context = context
        self._nodeid = nodeid

    @property
    def index(self) -> int:
        """Number of this sample, from 0; always 0 in an ordinary run."""
        return self._context.request.index if self._context else 0

    @property
    def seed(self) -> int:
        """A seed in [0, 2**32), another for every sample and the same in every repetition."""
        return self._context.request.seed if self._context else zlib.crc32(self._nodeid.encode())

    @property
    def sample(self) -> str:
        """What keeps the model replies of two samples apart, for a cache of one's own."""
        return self._context.request.sample if self._context else "plain/0"

    def score(self, value: float) -> None:
        """Record the soft score of this rollout; the last one counts.

        Raises:
            ValueError: not a finite number in [0, 1].
            TypeError: not a number.
        """
        (self._context or _unrecorded(self._nodeid)).set_score(value)

    def feedback(self, text: str) -> None:
        """Tell the optimizer this in place of the assertion's text; the last one counts."""
        (self._context or _unrecorded(self._nodeid)).set_feedback(text)

    def record(self, role: str, content: Any) -> None:
        """Append a turn to the transcript, for an agent of one's own.

        Raises:
            TypeError: ``content`` is neither a text nor a JSON value.
        """
        (self._context or _unrecorded(self._nodeid)).record(role, content)

    def usage(
        self, *, calls: int = 1, input_tokens: int = 0, output_tokens: int = 0, cost: float = 0.0
    ) -> None:
        """Account for model calls that an agent of one's own has made; ``cost`` in US dollars."""
        from pytest_skillopt.model.types import Usage

        if self._context:
            self._context.add_usage(
                Usage(
                    calls=calls,
                    input_tokens=input_tokens,
                    output_tokens=output_tokens,
                    cost=cost or None,
                )
            )


def _unrecorded(nodeid: str) -> RolloutContext:
    """A context that checks what a test records and forgets it, so that a mistake shows at once."""
    from pathlib import Path

    from pytest_skillopt.suite.context import RolloutContext
    from pytest_skillopt.suite.rollouts import RolloutRequest

    request = RolloutRequest(nodeid, "", "", "", "", "plain", 0)
    return RolloutContext(None, request, Path(), b"")  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def skill(request: pytest.FixtureRequest) -> Skill:
    """The version of the SKILL.md under test: .text, .body, .path, .name, .version (read-only)."""
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.context import current

    context = current(request.config)
    if context is None:
        return _skill_on_disk(request)
    document = Document.from_bytes(context.content)
    return Skill(document.text, document.body, context.skill_dir, document.name, document.version)


@pytest.fixture
def rollout(request: pytest.FixtureRequest) -> Recorder:
    """The recorder: .index, .seed, .score(x), .feedback(text), .record(role, text), .usage()."""
    return Recorder(_context(request), request.node.nodeid)


@pytest.fixture
def skill_agent(request: pytest.FixtureRequest, skill: Skill) -> Agent:
    """Call the target model with the skill as system prompt: skill_agent(prompt) -> Reply."""
    from pytest_skillopt.model.agent import Agent

    context = _context(request)
    recorder = Recorder(context, request.node.nodeid)
    return _configured(
        lambda models: Agent(
            models.get("target"),
            system=skill.text,
            sample=recorder.sample,
            task=request.node.nodeid,
            record=recorder.record,
            on_usage=context.add_usage if context else _ignore,
            max_turns=models.settings.max_turns,
        ),
        request,
    )


@pytest.fixture
def skill_judge(request: pytest.FixtureRequest) -> Judge:
    """An LLM judge: skill_judge(rubric, answer, votes=1) -> Judgement with .score and .reason."""
    from pytest_skillopt.model.judge import Judge

    context = _context(request)
    recorder = Recorder(context, request.node.nodeid)
    return _configured(
        lambda models: Judge(
            models.get("judge"),
            sample=recorder.sample,
            task=request.node.nodeid,
            on_usage=context.add_judge_usage if context else _ignore,
        ),
        request,
    )


def _configured(make: Callable[[Models], _T], request: pytest.FixtureRequest) -> _T:
    """Settings that name no model are an error of the test that needs one, without a traceback."""
    from pytest_skillopt.model.types import ModelConfigError

    try:
        return make(Models.of(request.config))
    except ModelConfigError as error:
        pytest.fail(str(error), pytrace=False)


def _context(request: pytest.FixtureRequest) -> RolloutContext | None:
    from pytest_skillopt.suite.context import current

    return current(request.config)


def _ignore(usage: Usage) -> None:
    """An ordinary run keeps no accounts."""


def _skill_on_disk(request: pytest.FixtureRequest) -> Skill:
    from pytest_skillopt.skill.document import SkillError
    from pytest_skillopt.skill.files import read_skill
    from pytest_skillopt.suite.locate import selected_skill

    try:
        path = selected_skill(request)
        document = read_skill(path, request.config.rootpath)
    except SkillError as error:
        pytest.fail(str(error), pytrace=False)
    return Skill(document.text, document.body, path.parent, document.name, document.version)
