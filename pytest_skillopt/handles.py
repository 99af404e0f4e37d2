"""What the fixtures hand to a test: the skill, the recorder of its rollout, and its model."""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest

    from pytest_skillopt.model.prices import Price
    from pytest_skillopt.model.types import Completion, Model
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.context import RolloutContext


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

        It counts the calls, keeps the caps, tells an infrastructure error from a wrong answer,
        and sees whether the skill's body reached the model. It needs no key, and answers until
        the rollout ends.
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
    """Environment variable that holds the key; empty where the server wants none."""
    parameters: dict[str, Any]
    """Of the Chat Completions API, as configured: temperature, limits."""


class Recorder:
    """What the fixture ``rollout`` gives: who this rollout is, and where it leaves its traces."""

    def __init__(
        self, context: RolloutContext | None, nodeid: str, config: pytest.Config | None = None
    ) -> None:
        """Args:
        config: of the session, for what its settings say of models; None: nothing is known.
        """
        self._context = context
        self._nodeid = nodeid
        self._config = config

    @property
    def target(self) -> Target:
        """The target model of the settings, for an agent of one's own.

        Raises:
            ModelFault: the settings name no usable model; fatal.
        """
        from pytest_skillopt.model.config import NO_KEY, model_config
        from pytest_skillopt.model.types import ModelConfigError, ModelFault

        try:
            config = model_config(self._settings(), "target", os.environ)
        except ModelConfigError as error:
            raise ModelFault(str(error), fatal=True) from None
        key = "" if config.api_key(os.environ) == NO_KEY else config.api_key_env
        return Target(config.model, config.base_url, key, config.parameters)

    @property
    def key(self) -> str:
        """SHA-256 of all that this rollout depends on, for a cache of one's own: the task and its
        source, the skill's version, the target model, and which sample it is."""
        if self._context:
            return self._context.request.key
        return hashlib.sha256(self._nodeid.encode()).hexdigest()

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

    @property
    def stage(self) -> str:
        """What the sample is for, as in the report's accounts, such as ``train`` or ``final``."""
        return self._context.request.stage if self._context else "plain"

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
        context = self._context or _unrecorded(self._nodeid)
        price = self._price(model) if model and not cost else None
        context.report_usage(calls, input_tokens, output_tokens, cost, price)

    def _price(self, model: str) -> Price | None:
        from pytest_skillopt.model.prices import OPENAI_URL, parse_prices, price_of
        from pytest_skillopt.model.types import ModelFault

        settings = self._settings()
        price = price_of(model, OPENAI_URL, parse_prices(settings.prices))
        if price is None and settings.max_cost:
            raise ModelFault(
                f"skillopt_max_cost: no price is known for {model}, which rollout.usage names. "
                f"Give it with skillopt_prices, e.g. {model}=0.10/0.40",
                fatal=True,
            )
        return price

    def _settings(self) -> Settings:
        from pytest_skillopt.models import Models
        from pytest_skillopt.settings import Settings

        return Models.of(self._config).settings if self._config else Settings()


class GuardedModel:
    """A model as tests get it: whatever breaks in it is a fault, never the verdict of a test.

    An ``AssertionError`` is let through, it can only be somebody's verdict.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def fingerprint(self) -> str:
        return self._model.fingerprint

    @property
    def simulated(self) -> bool:
        return self._model.simulated

    def complete(self, messages: Sequence[dict[str, Any]], **options: Any) -> Completion:
        """See ``Model.complete``.

        Raises:
            ModelError: nothing else but an ``AssertionError``.
        """
        from pytest_skillopt.model.types import ModelError
        from pytest_skillopt.suite.outcome import OwnFault

        try:
            return self._model.complete(messages, **options)
        except (ModelError, AssertionError):
            raise
        except Exception as error:
            raise OwnFault(f"{type(error).__name__}: {error}") from error


def _unrecorded(nodeid: str) -> RolloutContext:
    """A context that checks what a test records and forgets it, so that a mistake shows at once."""
    from pathlib import Path

    from pytest_skillopt.suite.context import RolloutContext
    from pytest_skillopt.suite.rollouts import RolloutRequest

    request = RolloutRequest(nodeid, "", "", "", "", "plain", 0)
    return RolloutContext(None, request, Path(), b"")
