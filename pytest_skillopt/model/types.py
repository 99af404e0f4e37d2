"""Interface of a model to the rest of the package: one method, its result and its errors."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import KW_ONLY, dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

from pytest_skillopt.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Messages = Sequence[dict[str, Any]]
    """A conversation, as in the Chat Completions API."""
    Account = tuple[str, str, str]
    """Role, stage and task (node id or empty) that a call is counted for."""

Role = Literal["target", "optimizer", "judge", "user"]
ROLES: tuple[Role, ...] = get_args(Role)
NO_KEY = "none"
"""Stands for a key, or for the variable that holds it, if the server needs no key."""


class Price(NamedTuple):
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Input that is read from the provider's prompt cache; None: not known, the full price."""
    written: float | None = None
    """Input that is written to it; None: the price of other input."""

    def cost(
        self, input_tokens: float, output_tokens: float, read: float = 0, written: float = 0
    ) -> float:
        """Return US dollars for ``Tokens``."""
        price_read = self.input if self.cached is None else self.cached
        price_written = self.input if self.written is None else self.written
        rest = input_tokens - read - written
        of_input = rest * self.input + read * price_read + written * price_written
        return (of_input + output_tokens * self.output) / 1e6


@dataclass(frozen=True, slots=True)
class Usage:
    """Consumption of model calls. ``cost`` is in US dollars, None if no price is known."""

    calls: int = 0
    """Calls that were sent and answered in this run."""
    cached: int = 0
    """Calls answered from the cache at no cost."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    estimated: bool = False
    """True if the provider reported no token counts: the figures are estimates."""
    kept_tokens: int = 0
    """Tokens of the cached calls when they were paid for. Plans count them, caps do not."""
    kept_cost: float = 0.0
    read_tokens: int = 0
    """Input tokens that the provider read from its prompt cache."""
    written_tokens: int = 0
    """Input tokens that it wrote to it."""
    full_price: bool = False
    """True if input from the prompt cache is priced like other input: its price is not known."""

    @property
    def tokens(self) -> int:
        """Tokens of all calls, cached ones included."""
        return self.input_tokens + self.output_tokens + self.kept_tokens

    @property
    def worth(self) -> float:
        """US dollars of all calls, cached ones included, as far as prices are known."""
        return (self.cost or 0.0) + self.kept_cost

    def minus(self, part: Usage) -> Usage:
        """Return this usage without ``part``."""
        cost = self.cost
        if cost is not None:
            cost -= part.cost or 0.0
        rest = {name: getattr(self, name) - getattr(part, name) for name in _ADDED}
        return dataclasses.replace(self, cost=cost, **rest)

    def again(self) -> Usage:
        """Return the usage of the same calls answered from the cache."""
        calls = self.calls + self.cached
        return Usage(cached=calls, kept_tokens=self.tokens, kept_cost=self.worth)

    def __add__(self, other: Usage) -> Usage:
        cost = self.cost
        if cost is None:
            cost = other.cost
        elif other.cost is not None:
            cost += other.cost
        sums = {name: getattr(self, name) + getattr(other, name) for name in _ADDED}
        estimated = self.estimated or other.estimated
        full_price = self.full_price or other.full_price
        return Usage(cost=cost, estimated=estimated, full_price=full_price, **sums)


_ADDED = (
    "calls",
    "cached",
    "input_tokens",
    "output_tokens",
    "kept_tokens",
    "kept_cost",
    "read_tokens",
    "written_tokens",
)
"""Names of the figures of a usage that are plain sums."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool. ``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply of a model."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = Usage()

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Completion:
        calls = tuple(ToolCall(**call) for call in data["tool_calls"])
        return cls(data["text"], calls, data["finish_reason"], Usage(**data["usage"]))

    @classmethod
    def checked(cls, reply: object, model: str) -> Completion:
        """Return the reply of a model that may be the user's own.

        Raises:
            ModelFault: it is no completion (fatal).
        """
        if isinstance(reply, cls):
            return reply
        words = f"{model}: complete returned {type(reply).__name__}; a Completion is expected"
        raise ModelFault(f"{words} (docs/hooks.md)", fatal=True)


class Model(Protocol):
    """A chat model in one role."""

    @property
    def name(self) -> str:
        """``provider:model``, as the user wrote it."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 over base URL, model and parameters; never the key."""

    @property
    def simulated(self) -> bool:
        """True if it only simulates a model; the report says so."""

    def complete(
        self,
        messages: Messages,
        *,
        sample: str,
        stage: str = "",
        task: str = "",
        tools: Sequence[dict[str, Any]] = (),
        response_format: dict[str, Any] | None = None,
    ) -> Completion:
        """Ask once; the cache answers if the same was asked before.

        Args:
            messages: the conversation, as in the Chat Completions API.
            sample: tells draws apart: the same messages with another ``sample`` are another draw.
            stage: purpose of the call (``train``, ``reflect``, ...), only for the accounts.
            task: node id of the task, only for the accounts.
            tools: as in the Chat Completions API.
            response_format: as in the Chat Completions API.

        Raises:
            ModelFault: the provider failed after all retries (``.fatal`` if no retry can help).
            CapReached: a spending cap allows no further call.
            CacheMiss: the cache is read-only and does not hold the reply.
        """


class Remote:
    """An object of the controller for a worker, which calls its methods by ``Link.ask``."""

    def __init__(self, ask: Callable[..., Any], name: str) -> None:
        self._ask = ask
        self._name = name

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return functools.partial(self._ask, f"{self._name}.{method}")


class ModelError(Exception):
    """Base of the errors of ``Model.complete``. None is a wrong answer of the model."""

    kind = "provider"
    """Kind of fault, as in ``InfraError``."""
    fatal = False
    refused = False


hide_frames = methodcaller("errisinstance", (ModelError, AssertionError))
"""Value of ``__tracebackhide__`` in a module: a failed test shows its own line, not a call's."""


@dataclass(eq=False, repr=False)
class ModelFault(ModelError):
    """A failure of the provider to answer."""

    message: str
    _: KW_ONLY
    fatal: bool = False
    """True if no retry can help (a wrong key, no quota, an unknown model)."""
    refused: bool = False
    """True if the provider refuses this request for good, and may well answer others."""
    retry: bool = False
    """True if the same request may succeed a moment later."""
    retry_after: float = 0.0
    """Seconds that the provider asked all callers to wait; 0: it named no pause."""
    status: int = 0
    """HTTP status of a refusal; 200 for a reply that began and did not end; else 0."""
    answered: bool = False
    """True if the call may have been paid for: the provider received it and did not refuse it."""
    unreached: bool = False
    """True if no connection could be made: often the base URL is wrong."""
    usage: Usage = Usage()
    """Known usage of the failed calls."""
    filtered: bool = False
    """True if the provider's content filter withheld the reply, or refused the request."""
    fallback: Completion | None = None
    """Reply to use if a repetition brings the same."""


class CapReached(ModelError):
    """A spending cap is reached; the message names it."""

    kind = "cap"


class CacheMiss(ModelError):
    """The cache is read-only (``--skillopt-cache=ro``) and does not hold the reply."""

    kind = "cache"


class CacheError(ModelError):
    """The cache cannot be used; the message says what to do."""

    kind = "cache"


class ModelConfigError(UserError, ValueError):
    """The settings name no usable model; the message says what to set."""
