"""What the fixtures hand to a test: the skill, the recorder of its rollout, and its model."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_skillopt.model.types import Completion, Model
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
        self, *, calls: int = 1, input_tokens: int = 0, output_tokens: int = 0, cost: float = 0.0
    ) -> None:
        """Account for model calls that an agent of one's own has paid for.

        They count towards the spending caps when the rollout has ended.

        Args:
            cost: in US dollars; 0.0 where it is not known.

        Raises:
            ValueError: a negative or infinite number, or one that is none.
            TypeError: not a number.
        """
        context = self._context or _unrecorded(self._nodeid)
        context.report_usage(calls, input_tokens, output_tokens, cost)


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
