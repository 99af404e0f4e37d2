"""What a test is handed: the skill, the recorder of its rollout, and its model."""

from __future__ import annotations

import contextlib
import json
import math
import operator
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import (
    NO_KEY,
    ModelConfigError,
    ModelError,
    ModelFault,
    Usage,
)
from pytest_skillopt.suite.rollouts import Message, RolloutRequest, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pytest

    from pytest_skillopt.model.types import Completion, Model, Price
    from pytest_skillopt.settings import Settings

_MESSAGE_LIMIT = 200_000
_MESSAGES_LIMIT = 2_000


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
    _open_proxy: Callable[[Skill], str] | None = field(default=None, repr=False, compare=False)

    @property
    def proxy_url(self) -> str:
        """Base URL, without ``/v1``, of a proxy to the target model, for an agent of one's own.

        It needs no key, counts the calls, keeps the caps, tells an infrastructure error from a
        wrong answer, and sees whether the skill's body reached the model. It answers until the
        rollout ends.
        """
        if self._open_proxy is None:
            raise RuntimeError("skill.proxy_url is there in a test alone")
        return self._open_proxy(self)


@dataclass(frozen=True, slots=True)
class Target:
    """The target model as it is configured, for an agent of one's own."""

    model: str
    """The provider's name of it, such as ``gpt-5-mini``."""
    base_url: str
    api_key_env: str
    """Environment variable that holds the key; empty where the server wants none, or a command
    prints it."""
    parameters: dict[str, Any]
    """Arguments of the SDK's ``chat.completions.create``, as configured: temperature, limits."""


class Recorder:
    """What the fixture ``rollout`` gives: who this rollout is, and where it leaves its traces.

    In an ordinary run it checks what a test records and forgets it. Thread-safe.

    Args:
        config: of the session that runs it; None: nothing is known of its models.
        skill_dir: directory that holds the whole skill, with this version of its file.
        content: the bytes of the version under test.
    """

    def __init__(
        self,
        request: RolloutRequest,
        config: pytest.Config | None = None,
        skill_dir: Path | None = None,
        content: bytes = b"",
    ) -> None:
        self.request = request
        self.config = config
        self.skill_dir = skill_dir or Path()
        self.content = content
        self.transcript: list[Message] = []
        self.soft_score: float | None = None
        """In [0, 1], None where the test recorded none."""
        self.told = ""
        """What the test told the optimizer."""
        self.used = Usage()
        """What calls of the target took, those of an agent of the test's own included."""
        self.judge_used = Usage()
        self.reported = Usage()
        """The part of ``used`` that the test reported itself."""
        self.refusals: list[str] = []
        """What could not be recorded. The rollout fails even where the test swallowed the error."""
        self.skill_read: bool | None = None
        """Whether a coding agent read the skill's body; None where nobody can tell."""
        self.fault: Exception | None = None
        """Of the infrastructure, met by an agent of the test's own behind our back."""
        self.at_end = contextlib.ExitStack()
        """What is closed when the rollout has ended."""
        self._lock = threading.Lock()

    @property
    def index(self) -> int:
        """Number of this sample, from 0; always 0 in an ordinary run."""
        return self.request.index

    @property
    def seed(self) -> int:
        """A seed in [0, 2**32), another for every sample and the same in every repetition."""
        return self.request.seed

    @property
    def key(self) -> str:
        """SHA-256 of all that this rollout depends on, for a cache of one's own: task and source,
        version, target model, and which sample it is."""
        return self.request.key

    @property
    def target(self) -> Target:
        """The target model of the settings, for an agent of one's own; a fatal ModelFault where
        they name none."""
        from pytest_skillopt.model.config import model_config

        try:
            config = model_config(self._settings(), "target")
            keyless = config.key_command or config.api_key() == NO_KEY
        except ModelConfigError as error:
            raise ModelFault(str(error), fatal=True) from None
        key = "" if keyless else config.key_env
        return Target(config.model, config.base_url, key, config.parameters)

    def score(self, value: float) -> None:
        """Record the soft score of this rollout, in [0, 1]; the last one counts. ValueError or
        TypeError for anything else."""
        with self._refusing("score"):
            if not 0.0 <= float(value) <= 1.0:
                raise ValueError(f"{value!r} is not a finite number from 0 to 1")
        self.soft_score = float(value)

    def feedback(self, text: str) -> None:
        """Tell the optimizer this in place of the assertion's text; the last one counts."""
        self.told = shorten(str(text), _MESSAGE_LIMIT)

    def record(self, role: str, content: Any) -> None:
        """Append a turn to the transcript, for an agent of one's own.

        Args:
            role: chat role, or ``tool``.
            content: a text, or any JSON value, which is kept as JSON text; else an error.
        """
        if not isinstance(content, str):
            with self._refusing("record"):
                content = json.dumps(content, ensure_ascii=False, allow_nan=False)
        with self._lock:
            if len(self.transcript) < _MESSAGES_LIMIT:
                kept = (shorten(said, _MESSAGE_LIMIT) for said in (str(role), content))
                self.transcript.append(Message(*kept))

    def usage(
        self,
        *,
        calls: int = 1,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: float = 0.0,
        model: str = "",
    ) -> None:
        """Account for model calls that an agent of one's own has paid for.

        They count towards the spending caps when the rollout has ended.

        Args:
            cost: in US dollars; 0.0 where it is not known.
            model: the model that was called; without ``cost`` its price is taken from
                ``skillopt_prices``, or from OpenAI's price list.

        Raises:
            ValueError: a negative or infinite number, or one that is none.
            TypeError: not a number.
            ModelFault: fatal; there is a cap in money, and the price of the model is not known.
        """
        with self._refusing("usage"):
            counts = [operator.index(count) for count in (calls, input_tokens, output_tokens)]
            dollars = float(cost or 0.0)
            for number in (*counts, dollars):
                if not 0 <= number < math.inf:
                    raise ValueError(f"{number!r} is not a finite number from 0")
        price = self._price(model) if model and not dollars else None
        if price is not None:
            dollars = price.cost(counts[1], counts[2])
        usage = Usage(counts[0], 0, counts[1], counts[2], dollars or None)
        self.add_usage(usage)
        with self._lock:
            self.reported += usage

    def add_usage(self, usage: Usage) -> None:
        with self._lock:
            self.used += usage

    def add_judge_usage(self, usage: Usage) -> None:
        with self._lock:
            self.judge_used += usage

    def note_skill_read(self, read: bool) -> None:
        """Record whether an agent read the skill's body; of several, one is enough."""
        self.skill_read = bool(self.skill_read) or read

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Make this the current rollout of the calling thread."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def _price(self, model: str) -> Price | None:
        from pytest_skillopt.model.config import OPENAI_URL, price_of

        settings = self._settings()
        price = price_of(model, OPENAI_URL, settings.prices)
        if price is None and settings.max_cost:
            words = f"no price is known for {model}, which rollout.usage names"
            raise ModelFault(f"skillopt_max_cost: {words}; see skillopt_prices", fatal=True)
        return price

    def _settings(self) -> Settings:
        from pytest_skillopt.models import Models
        from pytest_skillopt.settings import Settings

        return Models.of(self.config).settings if self.config else Settings()

    @contextlib.contextmanager
    def _refusing(self, name: str) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError, RecursionError) as error:
            self.refusals.append(f"rollout.{name}: {error}")
            raise


_CURRENT: ContextVar[Recorder | None] = ContextVar("skillopt_rollout", default=None)


def current(config: pytest.Config) -> Recorder | None:
    """The rollout that this thread or coroutine runs in the session of ``config``; None outside.

    Threads that a test starts have none: fixtures keep the recorder they found during set-up.
    """
    found = _CURRENT.get()
    return found if found is not None and found.config is config else None


def recorder(request: pytest.FixtureRequest) -> Recorder:
    """That of the rollout in progress; in an ordinary run one that keeps nothing."""
    plain = RolloutRequest(request.node.nodeid, "", "", "", "", "plain", 0)
    return current(request.config) or Recorder(plain, request.config)


class OwnFault(ModelError):
    """A fixture of ours, or the model behind it, broke while a test used it.

    Whatever the cause, the test has not judged an answer.
    """

    kind = "internal"


@dataclass(frozen=True)
class GuardedModel:
    """A model as tests get it: whatever breaks in it is a fault, never the verdict of a test.

    An ``AssertionError`` is let through, it can only be somebody's verdict.
    """

    model: Model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def complete(self, messages: Sequence[dict[str, Any]], **options: Any) -> Completion:
        try:
            return self.model.complete(messages, **options)
        except (ModelError, AssertionError):
            raise
        except Exception as error:
            raise OwnFault(f"{type(error).__name__}: {error}") from error
