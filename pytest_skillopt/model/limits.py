"""Rates, pauses and spending caps, decided in one place for all processes that call a model."""

from __future__ import annotations

import math
import operator
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_skillopt.model.types import CapReached, ModelFault, Price, Remote, Usage
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

_BUSY = 0.05
"""Seconds after which a call that waits for calls in flight asks again."""
BURST_SECONDS = 3.0
"""Seconds whose share of a minute's rate may be used at once."""
_LEAST = 1e-9
"""Share of a used-up cap, in dollars or seconds."""
_REMEMBERED = 100
"""Latest replies of a role from which the size of the next is estimated."""
_GUESSED_OUTPUT = 500
"""Estimated output tokens of the first reply."""


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """Size and price of a call, estimated before it is sent."""

    provider: str
    """Base URL; limits apply to each by itself."""
    role: str = "target"
    asked: int = 1
    """Estimate of the input tokens."""
    most: int = 0
    """Maximum output tokens that the provider was given; 0: no maximum."""
    price: Price = Price(0.0, 0.0)
    """0.0 if it is not known."""


class Caps(NamedTuple):
    """Amounts that a training spends, or caps on them; zero means no cap.

    ``seconds`` is wall time, ``cost`` US dollars.
    """

    rollouts: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    @classmethod
    def of(cls, settings: Settings) -> Caps:
        return cls(*(getattr(settings, name) for name in CAPS))

    def share(self, spent: Caps, parts: float) -> Caps:
        """Divide the rest of each cap by ``parts``; never zero, which means no cap."""

        def part(cap: Any, used: Any) -> Any:
            if not cap:
                return cap
            left = cap - used
            return max(1, int(left // parts)) if isinstance(cap, int) else max(_LEAST, left / parts)

        return Caps(*map(part, self, spent))

    def plus(self, other: Caps) -> Caps:
        return Caps(*map(operator.add, self, other))

    def put_into(self, settings: Settings) -> Settings:
        changes: dict[str, Any] = dict(zip(CAPS, self, strict=True))
        return replace(settings, **changes)


CAPS = ("max_rollouts", "max_calls", "max_tokens", "max_cost", "max_time")
"""The settings of ``Caps``, in the order of its fields."""


class Meter:
    """Allows calls or makes them wait, and keeps the accounts. Thread-safe.

    Under a cap of tokens or money a call reserves the most that it may use: the maximum output that
    the provider was given, else the longest of the last hundred replies of its role; and at least
    the share ``1 / (n + 1)`` of the rest of the cap after ``n`` replies of a role, since their
    length is not known at first. A call that does not fit beside those in flight waits for them.
    docs/decisions/replies.md says what may still exceed a cap.

    Args:
        settings: the caps (time counts from now; the sampler counts rollouts), and the rates, which
            apply to each provider.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, settings: Settings | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        settings = settings or Settings()
        self._limit = Caps.of(settings)
        self._most_in_flight = settings.max_in_flight
        self._clock = clock
        self._start = clock()
        self._spent = Usage()
        self._flying: dict[str, _Flight] = {}
        self._gone: set[str] = set()
        """Prefixes of processes that have ended; their messages may still arrive."""
        rates = settings.requests_per_minute, settings.tokens_per_minute
        self._pacers: defaultdict[str, _Pacer] = defaultdict(lambda: _Pacer(*rates))
        self._accounts: defaultdict[tuple[str, str], Usage] = defaultdict(Usage)
        self._sizes: defaultdict[tuple[str, str], _ReplySizes] = defaultdict(_ReplySizes)
        self._lock = threading.Lock()

    def ask(self, call: str, estimate: CallEstimate) -> float:
        """Ask if a call may be sent.

        Args:
            call: a unique name, which begins with the prefix of the process.
            estimate: size and price of the call.

        Returns:
            0.0 if it may: it is then in flight until ``done``; else seconds until asking again.

        Raises:
            CapReached: a spending cap allows no further call.
            ModelFault: the process was forgotten.
        """
        with self._lock:
            if call.startswith(tuple(self._gone)):
                raise ModelFault("the process that asked has ended")
            now = self._clock()
            self._check_time(now)
            beside = sum(f.estimate.provider == estimate.provider for f in self._flying.values())
            full = 0 < self._most_in_flight <= beside
            flight = self._reserve(estimate)
            if self._must_wait_for_others(flight) or full:
                return _BUSY
            pacer = self._pacers[estimate.provider]
            wait = pacer.wait(now)
            if not wait:
                pacer.take(now, flight.asked + flight.said)
                self._flying[call] = flight
            return wait

    def done(
        self, call: str, used: Usage, account: tuple[str, str, str], retry_after: float = 0.0
    ) -> None:
        """Record the end of a call in flight.

        Args:
            call: its name.
            used: its usage; no calls if the provider failed.
            account: role, stage and task (node id or empty).
            retry_after: seconds that the provider asked all callers to wait.
        """
        with self._lock:
            if call.startswith(tuple(self._gone)):
                return  # counted already
            self._add(used, account)
            flight = self._flying.pop(call, None)
            if flight is None:
                return
            estimate = flight.estimate
            if used.calls:
                self._sizes[estimate.provider, estimate.role].learn(estimate, used)
            pacer = self._pacers[estimate.provider]
            expected = flight.asked + flight.said
            pacer.correct(used.input_tokens + used.output_tokens - expected)
            pacer.pause(self._clock() + retry_after)

    def note(self, used: Usage, account: tuple[str, str, str]) -> None:
        """Record usage that was never in flight: a cached reply, or calls that a test reports.

        Paid calls count towards the caps.
        """
        with self._lock:
            self._add(used, account)

    @property
    def bounded(self) -> bool:
        return any(limit for _, limit, _ in self._caps())

    def check(self) -> None:
        """Raise CapReached if a spending cap is used up."""
        with self._lock:
            self._check_time(self._clock())
            for name, limit, used in self._caps():
                if limit and used >= limit - 1e-12:
                    raise CapReached(_cap_words(name, limit, used))

    def forget(self, prefix: str) -> None:
        """Count the calls in flight of a process that died: those whose name has the prefix.

        They may have been paid for, so they count with their estimates. No other process may use
        the prefix afterwards.
        """
        with self._lock:
            self._gone.add(prefix)
            for call in [c for c in self._flying if c.startswith(prefix)]:
                lost = self._flying.pop(call)
                cost = lost.estimate.price.cost(lost.asked, lost.said) or None
                guess = Usage(1, 0, lost.asked, lost.said, cost, estimated=True)
                self._add(guess, ("lost", "", ""))

    @property
    def spent(self) -> Usage:
        with self._lock:
            return self._spent

    @property
    def accounts(self) -> dict[tuple[str, str], Usage]:
        """Usage by role and stage."""
        with self._lock:
            return dict(self._accounts)

    def _add(self, usage: Usage, account: tuple[str, str, str]) -> None:
        self._spent += usage
        role, stage, _ = account
        self._accounts[role, stage] += usage

    def _check_time(self, now: float) -> None:
        limit = self._limit.seconds
        if limit and now - self._start >= limit:
            raise CapReached(f"skillopt_max_time: {limit:g} s are over")

    def _reserve(self, estimate: CallEstimate) -> _Flight:
        sizes = self._sizes[estimate.provider, estimate.role]
        asked, likely = sizes.expected(estimate)
        said = estimate.most or likely
        share = 0.0 if estimate.most else 1 / (sizes.count + 1)
        _, (_, tokens, used), (_, cost, paid) = self._caps()
        most_tokens = max(asked + said, share * (tokens - used))
        most_cost = max(estimate.price.cost(asked, said), share * (cost - paid))
        return _Flight(estimate, asked, likely, (1, most_tokens, most_cost))

    def _must_wait_for_others(self, flight: _Flight) -> bool:
        """Check if the reserves of the calls in flight leave no room for this one yet.

        Raises:
            CapReached: it would exceed a cap even without them; a cap is not declared reached on
                reserves that other calls may not use.
        """
        flying = zip((0, 0, 0), *(other.reserved for other in self._flying.values()), strict=True)
        reserved = map(sum, flying)
        for (name, limit, used), others, mine in zip(
            self._caps(), reserved, flight.reserved, strict=True
        ):
            if limit and used + others + mine > limit + 1e-12:
                if others and used + mine <= limit + 1e-12:
                    return True
                raise CapReached(_cap_words(name, limit, used))
        return False

    def _caps(self) -> tuple[tuple[str, float, float], ...]:
        """Return name, cap and amount used of calls, tokens and cost."""
        caps, spent = self._limit, self._spent
        return (
            ("max_calls", caps.calls, spent.calls),
            ("max_tokens", caps.tokens, spent.input_tokens + spent.output_tokens),
            ("max_cost", caps.cost, spent.cost or 0.0),
        )


Throttle = Meter | Remote


@dataclass(frozen=True, slots=True)
class _Flight:
    """A call in flight."""

    estimate: CallEstimate
    asked: int
    said: int
    """Expected tokens in and out."""
    reserved: tuple[int, float, float]
    """Calls, tokens and US dollars that it may use at most."""


class _ReplySizes:
    """Sizes of the latest replies of one role at one provider."""

    def __init__(self) -> None:
        self.count = 0
        self._said: deque[int] = deque(maxlen=_REMEMBERED)
        self._ratios: deque[float] = deque(maxlen=_REMEMBERED)

    def learn(self, estimate: CallEstimate, used: Usage) -> None:
        self.count += 1
        self._said.append(used.output_tokens)
        self._ratios.append(used.input_tokens / estimate.asked)

    def expected(self, estimate: CallEstimate) -> tuple[int, int]:
        """Return the largest likely tokens in and out, judged by the latest replies."""
        asked = math.ceil(estimate.asked * max([1.0, *self._ratios]))
        said = max(self._said, default=_GUESSED_OUTPUT)
        return asked, min(said, estimate.most) if estimate.most else said


class _Pacer:
    """Rates and pause of one provider.

    Uses the generic cell rate algorithm (ITU-T I.371): each request moves a virtual time forward
    by its cost at the agreed rate; a call may be sent while that time is ahead of the clock by less
    than the burst.
    """

    def __init__(self, requests_per_minute: int, tokens_per_minute: int) -> None:
        self._per_request = 60 / requests_per_minute if requests_per_minute else 0.0
        self._per_token = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._requests_until = 0.0
        self._tokens_until = 0.0
        self._paused_until = 0.0

    def wait(self, now: float) -> float:
        ahead = max(self._requests_until, self._tokens_until) - BURST_SECONDS
        return max(0.0, max(ahead, self._paused_until) - now)

    def take(self, now: float, tokens: int) -> None:
        self._requests_until = max(self._requests_until, now) + self._per_request
        self._tokens_until = max(self._tokens_until, now) + tokens * self._per_token

    def correct(self, tokens: int) -> None:
        self._tokens_until += tokens * self._per_token

    def pause(self, until: float) -> None:
        self._paused_until = max(self._paused_until, until)


def _cap_words(name: str, limit: float, used: float) -> str:
    unit = {"max_calls": "model calls", "max_tokens": "tokens", "max_cost": "US dollars"}[name]
    return f"skillopt_{name}: the cap of {limit:g} {unit} is reached ({used:g} used)"
