"""One run of one task under one version of the skill: what is asked for and what comes back.

Both records are frozen, hold nothing but JSON values, and cross process boundaries and lie in the
journal in the form that ``to_json`` gives.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_skillopt.model.types import Usage
from pytest_skillopt.untrusted import bound, encodable

if TYPE_CHECKING:
    from collections.abc import Callable

_ERROR_LIMIT = 2_000

Outcome = Literal["passed", "failed", "skipped", "error"]
"""How a rollout ended. Only ``passed`` and ``failed`` are measurements."""


@dataclass(frozen=True)
class RolloutRequest:
    """Sample number ``index`` of a stream of independent samples of one task under one version.

    A stream names what the samples are for (``train``, ``tape``, ``final``, ...); samples of two
    streams are never the same draw.
    """

    task: str
    """Node id of the test."""
    source: str
    """SHA-256 of the task's source, so that an edited test is never answered from an old run."""
    skill: str
    """Path of the skill file, relative to the root directory, with ``/``."""
    version: str
    """SHA-256 of the bytes of the skill under test."""
    model: str
    """Fingerprint of the target model and its parameters."""
    stream: str
    index: int

    @functools.cached_property
    def key(self) -> str:
        """Content address: two requests with one key ask for the same sample."""
        fields = [self.task, self.source, self.skill, self.version, self.model, self.stream]
        return hashlib.sha256(json.dumps([*fields, self.index]).encode()).hexdigest()

    @property
    def sample(self) -> str:
        """What keeps the model replies of two samples apart in the cache, those of two tasks with
        one prompt too."""
        return f"{self.task}/{self.stream}/{self.index}"

    @property
    def stage(self) -> str:
        return self.stream.partition("/")[0]

    @property
    def seed(self) -> int:
        """A seed in [0, 2**32) of this sample alone, the same in every run and on every worker."""
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
    """Why a rollout could not be measured. Never a wrong answer, never in a pass rate."""

    kind: str
    """``setup``, ``provider``, ``timeout``, ``worker``, ``cap``, ``cache`` or ``internal``."""
    message: str
    fatal: bool = False
    """No retry can help (a wrong key, no quota, an unknown model): the run stops at once."""


@dataclass(frozen=True, slots=True)
class Rollout:
    request: RolloutRequest
    outcome: Outcome
    score: float | None = None
    """Soft score in [0, 1]: what the test recorded, else 1.0 or 0.0 by outcome; None unmeasured."""
    message: str = ""
    """First lines of what failed: the assertion as a reader of the test would see it."""
    location: str = ""
    """``path:line`` of the failed assertion, relative to the root directory."""
    feedback: str = ""
    """What the test told the optimizer with ``rollout.feedback``, in place of ``message``."""
    transcript: tuple[Message, ...] = ()
    usage: Usage = Usage()
    """Target calls of this rollout."""
    judge_usage: Usage = Usage()
    reported: Usage = Usage()
    """The part of ``usage`` that the test reported of an agent of its own."""
    duration: float = 0.0
    """Wall seconds."""
    output: str = ""
    """Captured output, bounded."""
    worker: str = ""
    attempt: int = 1
    skill_read: bool | None = None
    """Whether a coding agent read the skill's body; None where no proxy could tell."""
    error: InfraError | None = None
    """Set exactly when ``outcome`` is ``error``."""

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
        """One that could not be measured; ``kind``, ``message`` and ``fatal`` as in InfraError."""
        error = InfraError(kind, shorten(message, _ERROR_LIMIT), fatal)
        return cls(request, "error", worker=worker, error=error)

    @property
    def measured(self) -> bool:
        return self.outcome in ("passed", "failed")

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"

    def rewritten(self, clean: Callable[[str], str]) -> Rollout:
        """The same with every text as ``clean`` gives it; keys and ids stay as they are."""
        error = self.error
        return replace(
            self,
            message=clean(self.message),
            feedback=clean(self.feedback),
            output=clean(self.output),
            transcript=tuple(replace(m, content=clean(m.content)) for m in self.transcript),
            error=replace(error, message=clean(error.message)) if error else None,
        )

    def to_json(self) -> dict[str, Any]:
        return dict(_plain(self))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Rollout:
        data = dict(data)
        data["request"] = RolloutRequest(**data["request"])
        data["transcript"] = tuple(Message(**m) for m in data["transcript"])
        data["usage"] = Usage(**data["usage"])
        data["judge_usage"] = Usage(**data["judge_usage"])
        data["reported"] = Usage(**data.get("reported", {}))
        if data["error"] is not None:
            data["error"] = InfraError(**data["error"])
        return cls(**data)


def _plain(value: Any) -> Any:
    """As JSON values; ``dataclasses.asdict`` would copy all that is in them."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    names = getattr(value, "__dataclass_fields__", ())
    return {name: _plain(getattr(value, name)) for name in names} if names else value


def shorten(text: str, limit: int) -> str:
    """Keep the head and the tail of a text that is longer than ``limit`` characters."""
    return encodable(bound(text, limit // 2, limit // 2))
