"""The objects behind the fixtures: the skill, the recorder of a rollout, and the guarded model."""

from __future__ import annotations

import contextlib
import json
import math
import operator
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_skillopt.model.types import (
    NO_KEY,
    Completion,
    ModelConfigError,
    ModelError,
    ModelFault,
    Usage,
    hide_frames,
)
from pytest_skillopt.rollouts.rollout import IDLE, Message, RolloutRequest
from pytest_skillopt.skill.version import SKILL_FILE, is_outside
from pytest_skillopt.untrusted import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_skillopt.model.roles import Models
    from pytest_skillopt.model.types import Messages, Model, Price, Role
    from pytest_skillopt.settings import Settings

__tracebackhide__ = hide_frames
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
    """A directory with the whole skill, including this version of its file."""
    name: str
    version: str
    """SHA-256 of the file's bytes."""
    file: str = SKILL_FILE
    """Path of the file in the project, with ``/``."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts of the files trained with it, by path relative to its folder in the project."""

    @property
    def memory(self) -> str:
        """Text of the document outside of the skill's folder that is trained with it, or ""."""
        return next((text for name, text in self.files.items() if is_outside(name)), "")


@dataclass(frozen=True, slots=True)
class Target:
    """The configured target model, for your own agent."""

    model: str
    """The provider's name of the model, such as ``gpt-5-mini``."""
    base_url: str
    api_key_env: str
    """Environment variable with the key; empty if the server needs none or a command prints it."""
    parameters: dict[str, Any]
    """Arguments of the SDK's ``chat.completions.create``, as configured: temperature, limits."""


class Stubs(Protocol):
    """Commands that a test answers in place of real programs; a plugin puts them into a recorder.

    Whoever starts an agent for the test shows it the ``folder``, puts ``path`` first on its path,
    and keeps with a cached run the calls that were made in it.
    """

    folder: Path
    path: Path

    def covered(self) -> Iterable[tuple[Path, Path]]:
        """Yield real programs that a sandbox should cover, each with what stands in its place."""

    def digest(self) -> str:
        """Return a hash of what the answers depend on."""

    def told(self) -> list[dict[str, Any]]:
        """Return the calls so far as JSON values."""

    def repeat(self, calls: Sequence[Mapping[str, Any]]) -> None:
        """Take over the calls of an earlier run."""


@dataclass(eq=False, repr=False)  # a failing test shows the fixtures it was given
class Recorder:
    """The fixture ``rollout``: identifies this rollout and records its traces. Thread-safe.

    In an ordinary run it checks what a test records and discards it.
    """

    request: RolloutRequest
    config: pytest.Config | None = None
    """Configuration of the session; None: its models are unknown."""
    skill_dir: Path = Path()
    """Directory with the whole skill, including this version of its file."""
    content: bytes = b""
    """The bytes of the version under test."""
    transcript: list[Message] = field(default_factory=list)
    soft_score: float | None = None
    """Soft score in [0, 1]; None if the test recorded none."""
    told: str = ""
    """Feedback of the test for the optimizer."""
    used: Usage = Usage()
    """Usage of target calls, those of the test's own agent included."""
    others_used: dict[str, Usage] = field(default_factory=dict)
    """Usage of the calls of other models, by role."""
    reported: Usage = Usage()
    """The part of ``used`` that the test reported itself."""
    refusals: list[str] = field(default_factory=list)
    """Errors of wrong records; the rollout fails even if the test swallowed them."""
    skill_read: bool | None = None
    """True if a coding agent read the skill's body; None if unknown."""
    fault: Exception | None = None
    """An infrastructure error that the test's own agent met and may have swallowed."""
    commands: Stubs | None = None
    """The commands that the test answers itself."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def index(self) -> int:
        """Number of this sample, from 0; always 0 in an ordinary run."""
        return self.request.index

    @property
    def seed(self) -> int:
        """A seed in [0, 2**32): different for every sample, the same in every repetition."""
        return self.request.seed

    @property
    def key(self) -> str:
        """SHA-256 of task, source, version, target model and sample, for your own cache."""
        return self.request.key

    @property
    def target(self) -> Target:
        """The target model of the settings, for your own agent.

        Raises:
            ModelFault: fatal; the settings name no target model.
        """
        from pytest_skillopt.model.config import model_config

        try:
            config = model_config(self._settings(), "target")
            keyless = config.key_command or config.api_key() == NO_KEY
        except ModelConfigError as error:
            raise ModelFault(str(error), fatal=True) from None
        key = "" if keyless else config.key_env
        return Target(config.model, config.base_url, key, config.parameters)

    def score(self, value: float) -> None:
        """Record the soft score of this rollout, in [0, 1]; the last one counts.

        Raises:
            ValueError: the value is not in [0, 1].
            TypeError: the value is not a number.
        """
        with self._refusing("score"):
            if not 0.0 <= float(value) <= 1.0:
                raise ValueError(f"{value!r} is not a finite number from 0 to 1")
        self.soft_score = float(value)

    def feedback(self, text: str) -> None:
        """Replace the assertion's text for the optimizer; the last call counts."""
        self.told = shorten(str(text), _MESSAGE_LIMIT)

    def record(self, role: str, content: Any) -> None:
        """Append a turn of your own agent to the transcript.

        Args:
            role: chat role, or ``tool``.
            content: a text, or any JSON value, which is stored as JSON text.

        Raises:
            ValueError, TypeError: the content is neither.
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
        cached_tokens: int = 0,
        cost: float = 0.0,
        model: str = "",
    ) -> None:
        """Report paid model calls of your own agent.

        They count towards the spending caps when the rollout has ended.

        Args:
            calls: number of calls.
            input_tokens: number of input tokens.
            output_tokens: number of output tokens.
            cached_tokens: number of the input tokens that the provider read from its prompt cache.
            cost: in US dollars; 0.0 if unknown.
            model: the model that was called; without ``cost`` its price is taken from
                ``skillopt_prices`` or from OpenAI's price list.

        Raises:
            ValueError: a negative or infinite number, or NaN.
            TypeError: not a number.
            ModelFault: fatal; there is a cap in money, and the price of the model is unknown.
        """
        from pytest_skillopt.model.config import usage_at
        from pytest_skillopt.model.tokens import Tokens

        with self._refusing("usage"):
            given = (calls, input_tokens, output_tokens, cached_tokens)
            counts = [operator.index(count) for count in given]
            dollars = float(cost or 0.0)
            for number in (*counts, dollars):
                if not 0 <= number < math.inf:
                    raise ValueError(f"{number!r} is not a finite number from 0")
        price = self._price(model) if model and not dollars else None
        number, sent, received, cached = counts
        usage = usage_at(price, number, Tokens(sent, received, min(cached, sent)))
        if dollars:
            usage = replace(usage, cost=dollars, full_price=False)
        self.add_usage(usage)
        with self._lock:
            self.reported += usage

    def add_usage(self, usage: Usage) -> None:
        with self._lock:
            self.used += usage

    def add_usage_of(self, role: Role, usage: Usage) -> None:
        with self._lock:
            self.others_used[role] = self.others_used.get(role, Usage()) + usage

    def note_skill_read(self, read: bool) -> None:
        """Record whether an agent read the skill's body; one of several agents is enough."""
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
        from pytest_skillopt.model.roles import Models
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
    """Return the rollout that this thread or coroutine runs in the session of ``config``, or None.

    Threads that a test starts have none: fixtures keep the recorder that they got during set-up.
    """
    found = _CURRENT.get()
    return found if found is not None and found.config is config else None


def recorder(request: pytest.FixtureRequest) -> Recorder:
    """Return the recorder of the current rollout; in an ordinary run one that is dropped."""
    running = current(request.config)
    stash: pytest.Stash = request.node.stash
    if running is not None:
        return running
    if _PLAIN not in stash:
        plain = RolloutRequest(request.node.nodeid, "", "", "", "", "plain", 0)
        stash[_PLAIN] = Recorder(plain, request.config)
        request.addfinalizer(lambda: stash.__delitem__(_PLAIN))
    return stash[_PLAIN]


_PLAIN = pytest.StashKey[Recorder]()


class OwnFault(ModelError):
    """A fault of a fixture of this package or of its model: the test has not judged an answer."""

    kind = "internal"


class SilentModel:
    """A model that answers nothing."""

    name = fingerprint = IDLE
    simulated = True

    def complete(self, messages: Messages, **options: Any) -> Completion:
        return Completion("")


def model_of_test(request: RolloutRequest, models: Models, role: Role) -> Model:
    """Return the model of a role for a fixture; a silent one for a sample without a real agent."""
    return SilentModel() if request.is_idle else GuardedModel(models.get(role))


@dataclass(frozen=True)
class GuardedModel:
    """A model for tests: its exceptions become faults, never the verdict of a test.

    An ``AssertionError`` passes through, since it can only be a verdict.
    """

    model: Model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def complete(self, messages: Messages, **options: Any) -> Completion:
        try:
            reply = self.model.complete(messages, **options)
            return Completion.checked(reply, self.model.name)
        except (ModelError, AssertionError):
            raise
        except Exception as error:
            raise OwnFault(f"{type(error).__name__}: {error}") from error
