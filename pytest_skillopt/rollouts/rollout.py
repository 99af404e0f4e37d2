"""The request for one run of a task under one version of the skill, and its result, a rollout.

Both records are frozen and contain only JSON values; ``to_json`` gives the form in which they cross
process boundaries and are stored in the journal.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping  # noqa: TC003 (pydantic reads it)
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_skillopt.model.types import Usage
from pytest_skillopt.untrusted import shorten

if TYPE_CHECKING:
    from collections.abc import Callable

_ERROR_LIMIT = 2_000

Outcome = Literal["passed", "failed", "skipped", "error"]
"""End of a rollout. Only ``passed`` and ``failed`` are measurements."""


IDLE = "idle"
"""Stream of the samples with an agent that does nothing."""


@dataclass(frozen=True)
class RolloutRequest:
    """Sample number ``index`` of a stream of independent samples of one task under one version.

    A stream names the purpose of the samples (``train``, ``tape``, ``final``, ...); two streams
    never share a sample.
    """

    task: str
    """Node id of the test."""
    source: str
    """SHA-256 of the task's source, so that a changed test is never answered from an old run."""
    skill: str
    """Path of the skill file, relative to the root directory, with ``/``."""
    version: str
    """Digest of the version of the skill under test."""
    model: str
    """Fingerprint of the target model and its parameters."""
    stream: str
    index: int

    @functools.cached_property
    def key(self) -> str:
        """Content address: two requests with the same key ask for the same sample."""
        fields = [self.task, self.source, self.skill, self.version, self.model, self.stream]
        return hashlib.sha256(json.dumps([*fields, self.index]).encode()).hexdigest()

    @property
    def sample(self) -> str:
        """Name that separates the cached replies of different samples, even for equal prompts."""
        return f"{self.task}/{self.stream}/{self.index}"

    @property
    def stage(self) -> str:
        return self.stream.partition("/")[0]

    @property
    def is_idle(self) -> bool:
        """Whether the sample has an agent and a judge that do nothing (``rollouts/idle.py``)."""
        return self.stream == IDLE

    @property
    def seed(self) -> int:
        """This sample's seed in [0, 2**32), the same in every run and on every worker."""
        return int(self.key[:8], 16)

    def to_json(self) -> dict[str, Any]:
        return dict(_plain(self))


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a transcript. ``role`` is the chat role, or ``tool`` for a tool's result."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class InfraError:
    """The reason why a rollout could not be measured: not a wrong answer, in no pass rate."""

    kind: str
    """``setup``, ``teardown``, ``provider``, ``timeout``, ``worker``, ``cap``, ``cache`` or
    ``internal``."""
    message: str
    fatal: bool = False
    """True if no retry can help (a wrong key, no quota, an unknown model): the run stops."""
    refused: bool = False
    """True if the provider refuses this task's request for good, such as a content filter does."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The result of a request."""

    request: RolloutRequest
    outcome: Outcome
    score: float | None = None
    """Soft score in [0, 1]: the recorded one, else 1.0 or 0.0 by outcome; None if unmeasured."""
    message: str = ""
    """First lines of the failure, as pytest shows them."""
    location: str = ""
    """``path:line`` of the failed assertion, relative to the root directory."""
    line: int = 0
    """Line of the test's own function at which it failed, counted from 1; 0 if it is not known."""
    feedback: str = ""
    """Text of ``rollout.feedback``, which the optimizer sees instead of ``message``."""
    transcript: tuple[Message, ...] = ()
    usage: Usage = Usage()
    """Usage of target calls."""
    other_usage: Mapping[str, Usage] = field(default_factory=dict, hash=False)
    """Usage of the calls of other models, by role."""
    reported: Usage = Usage()
    """The part of ``usage`` that the test reported for its own agent."""
    duration: float = 0.0
    """Wall-clock time in seconds."""
    output: str = ""
    """Captured output, shortened."""
    worker: str = ""
    attempt: int = 1
    skill_read: bool | None = None
    """True if a coding agent read the skill's body; None if unknown."""
    fault_of_test: bool = False
    """True if an exception ended it that no reply of a model can cause."""
    error: InfraError | None = None
    """Set exactly when ``outcome`` is ``error``."""
    refused: bool = False
    """True if it counts as skipped, since the provider refuses the task for good."""

    @classmethod
    def of_error(
        cls,
        request: RolloutRequest,
        kind: str,
        message: str,
        *,
        fatal: bool = False,
        worker: str = "",
    ) -> Rollout:
        """Make a rollout that could not be measured, with the fields of ``InfraError``."""
        error = InfraError(kind, shorten(message, _ERROR_LIMIT), fatal)
        return cls(request, "error", worker=worker, error=error)

    @property
    def measured(self) -> bool:
        return self.outcome in ("passed", "failed")

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"

    @property
    def all_usage(self) -> Usage:
        """Usage of all model calls."""
        return sum(self.other_usage.values(), self.usage)

    def rewritten(self, clean: Callable[[str], str]) -> Rollout:
        """Return a copy with ``clean`` applied to every text but keys and ids."""
        error = self.error
        if error is not None:
            error = replace(error, message=clean(error.message))
        turns = [replace(turn, content=clean(turn.content)) for turn in self.transcript]
        return replace(
            self,
            message=clean(self.message),
            feedback=clean(self.feedback),
            output=clean(self.output),
            transcript=tuple(turns),
            error=error,
        )

    def to_json(self) -> dict[str, Any]:
        return dict(_plain(self))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Rollout:
        data = dict(data)
        data["request"] = RolloutRequest(**data["request"])
        data["transcript"] = tuple(Message(**m) for m in data["transcript"])
        data["usage"] = Usage(**data["usage"])
        others = data["other_usage"].items()
        data["other_usage"] = {role: Usage(**used) for role, used in others}
        data["reported"] = Usage(**data["reported"])
        if data["error"] is not None:
            data["error"] = InfraError(**data["error"])
        return cls(**data)


def _plain(value: Any) -> Any:
    """Convert to JSON values without the copies that ``dataclasses.asdict`` makes."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    names = getattr(value, "__dataclass_fields__", ())
    return {name: _plain(getattr(value, name)) for name in names} if names else value
