"""What fixtures see of the rollout in progress, and where they record what it did."""

from __future__ import annotations

import contextlib
import json
import math
import operator
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_skillopt.model.types import Usage
from pytest_skillopt.suite.rollouts import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    from pytest_skillopt.model.prices import Price
    from pytest_skillopt.suite.rollouts import RolloutRequest

_MESSAGE_LIMIT = 200_000
_MESSAGES_LIMIT = 2_000

_CURRENT: ContextVar[RolloutContext | None] = ContextVar("skillopt_rollout", default=None)


def current(config: pytest.Config) -> RolloutContext | None:
    """The rollout that this thread or coroutine runs in the session of ``config``; None outside.

    Threads that a test starts have no rollout of their own before Python 3.14: fixtures keep the
    context they found during set-up.
    """
    context = _CURRENT.get()
    return context if context is not None and context.config is config else None


class RolloutContext:
    """One rollout while it runs. Its recorders may be called from any thread of the test."""

    def __init__(
        self, config: pytest.Config | None, request: RolloutRequest, skill_dir: Path, content: bytes
    ) -> None:
        self.config = config
        """Of the session that runs it; None where no session does, and nothing is kept."""
        self.request = request
        self.skill_dir = skill_dir
        """Directory that holds the whole skill, with this version of its file."""
        self.content = content
        """The bytes of the version under test."""
        self._lock = threading.Lock()
        self._transcript: list[Message] = []
        self._score: float | None = None
        self._feedback = ""
        self._usage = Usage()
        self._judge_usage = Usage()
        self._reported = Usage()
        self._refusals: list[str] = []
        self._at_end: list[Callable[[], None]] = []
        self.skill_read: bool | None = None
        """Whether a coding agent read the skill's body; None where nobody can tell."""
        self.fault: Exception | None = None
        """Of the infrastructure, met by an agent of the test's own behind our back."""

    @property
    def transcript(self) -> tuple[Message, ...]:
        return tuple(self._transcript)

    @property
    def score(self) -> float | None:
        """Soft score in [0, 1], None where the test recorded none."""
        return self._score

    @property
    def feedback(self) -> str:
        return self._feedback

    @property
    def usage(self) -> Usage:
        return self._usage

    @property
    def judge_usage(self) -> Usage:
        return self._judge_usage

    @property
    def reported(self) -> Usage:
        """The part of ``usage`` that the test reported itself."""
        return self._reported

    @property
    def refusals(self) -> tuple[str, ...]:
        """What could not be recorded. The rollout fails even where the test swallowed the error."""
        return tuple(self._refusals)

    def record(self, role: str, content: Any) -> None:
        """Append a turn to the transcript.

        Args:
            role: chat role, or ``tool``.
            content: a text, or any JSON value, which is kept as JSON text.

        Raises:
            TypeError: ``content`` is neither, or ``role`` is no text.
        """
        if not isinstance(role, str):
            self._refuse(f"rollout.record: the role must be a text, not {_kind(role)}")
        text = content if isinstance(content, str) else self._as_json("rollout.record", content)
        with self._lock:
            if len(self._transcript) < _MESSAGES_LIMIT:
                self._transcript.append(Message(clean(role), shorten(text, _MESSAGE_LIMIT)))

    def set_score(self, value: float) -> None:
        """Record the soft score; the last one counts.

        Raises:
            ValueError: not a finite number in [0, 1].
            TypeError: not a number.
        """
        try:
            score = float(value)
        except (TypeError, ValueError):
            self._refuse(f"rollout.score: {_kind(value)} is not a number")
        if not math.isfinite(score) or not 0.0 <= score <= 1.0:
            message = f"rollout.score: {score!r} is not a finite number from 0 to 1"
            self._refusals.append(message)
            raise ValueError(message)
        self._score = score

    def set_feedback(self, text: str) -> None:
        """Record what the optimizer is told in place of the assertion's text; the last one counts.

        Raises:
            TypeError: ``text`` is not a text.
        """
        if not isinstance(text, str):
            self._refuse(f"rollout.feedback: it must be a text, not {_kind(text)}")
        self._feedback = shorten(text, _MESSAGE_LIMIT)

    def add_usage(self, usage: Usage) -> None:
        """Add what a call of the target consumed."""
        with self._lock:
            self._usage += usage

    def report_usage(
        self,
        calls: int,
        input_tokens: int,
        output_tokens: int,
        cost: float | None,
        price: Price | None = None,
    ) -> None:
        """Add what an agent of the test's own consumed; without a cost at the given price.

        Raises:
            ValueError: a negative or infinite number, or one that is none.
            TypeError: not numbers, or no whole ones.
        """
        given = {"calls": calls, "input_tokens": input_tokens, "output_tokens": output_tokens}
        try:
            counts = {name: operator.index(count) for name, count in given.items()}
            dollars = float(cost or 0.0)
        except (TypeError, ValueError) as error:
            self._refuse(f"rollout.usage: calls and tokens must be whole numbers ({error})")
        for name, number in {**counts, "cost": dollars}.items():
            if not math.isfinite(number) or number < 0:
                message = f"rollout.usage: {name}={number!r} is not a finite number from 0"
                self._refusals.append(message)
                raise ValueError(message)
        if price is not None:
            dollars = dollars or price.cost(counts["input_tokens"], counts["output_tokens"])
        usage = Usage(
            calls=counts["calls"],
            input_tokens=counts["input_tokens"],
            output_tokens=counts["output_tokens"],
            cost=dollars or None,
        )
        with self._lock:
            self._usage += usage
            self._reported += usage

    def add_judge_usage(self, usage: Usage) -> None:
        """Add what a call of the judge consumed."""
        with self._lock:
            self._judge_usage += usage

    def note_skill_read(self, read: bool) -> None:
        """Record whether an agent read the skill's body; of several, one is enough."""
        self.skill_read = bool(self.skill_read) or read

    def at_end(self, function: Callable[[], None]) -> None:
        """Have a function called when the rollout has ended."""
        self._at_end.append(function)

    def close(self) -> None:
        """The rollout has ended."""
        while self._at_end:
            self._at_end.pop()()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Make this the current rollout of the calling thread."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def _as_json(self, where: str, value: Any) -> str:
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            self._refuse(f"{where}: {_kind(value)} cannot be kept as JSON ({error})")

    def _refuse(self, message: str) -> NoReturn:
        self._refusals.append(message)
        raise TypeError(message)


def clean(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded anywhere."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def shorten(text: str, limit: int) -> str:
    """Keep the head and the tail of a text that is longer than ``limit`` characters."""
    if len(text) > limit:
        half = limit // 2
        gap = f"[... {len(text) - 2 * half} characters left out ...]"
        text = f"{text[:half]}\n{gap}\n{text[-half:]}"
    return clean(text)


def _kind(value: object) -> str:
    return f"an object of type {type(value).__name__}"
