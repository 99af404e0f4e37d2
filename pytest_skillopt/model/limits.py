"""Rates, pauses and spending caps: one place decides for every process that calls a model."""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pytest_skillopt.model.types import CapReached, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.settings import Settings

BURST_SECONDS = 3.0
"""How much of a minute's rate may be used at once."""
_RESTART_SECONDS = 0.5
_RESTART_SPACING = 0.01
"""After a pause, calls go this many seconds apart for a while, so that those who waited do not
all arrive at once at a provider that has just refused them."""
_SHORTEST_WAIT, _LONGEST_WAIT = 0.005, 1.0
"""Seconds between which a caller asks again when the calls in flight use up what is left."""


class Throttle(Protocol):
    """Whom a model asks before each call. Arguments are JSON values: it may be another process."""

    def ask(self, call: str, provider: str, tokens: int, cost: float) -> float:
        """Ask for leave to make a call.

        Args:
            call: a name that no other call has; begins with the process' own prefix.
            provider: whose limits apply, the base URL.
            tokens: estimate of the tokens it will use, in and out.
            cost: estimate in US dollars, 0.0 where no price is known.

        Returns:
            0.0: go, the call counts as in flight until ``done``; else seconds to wait, then ask
            again.

        Raises:
            CapReached: a spending cap allows no further call.
        """

    def done(
        self,
        call: str,
        usage: dict[str, Any],
        account: tuple[str, str, str],
        retry_after: float = 0.0,
        fault: str = "",
    ) -> None:
        """Tell how a call ended that was let go.

        Args:
            call: as in ``ask``.
            usage: ``Usage.to_json`` of what was paid; no calls where the provider failed.
            account: role, stage and task (node id or empty).
            retry_after: seconds the provider asked everybody to wait.
            fault: what went wrong, empty for a reply.
        """

    def note(self, usage: dict[str, Any], account: tuple[str, str, str]) -> None:
        """Enter a reply from the cache into the accounts: nothing was in flight or paid."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The settings that bound model calls; 0 means no bound."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    max_in_flight: int = 0
    """Calls at once to one provider."""
    max_calls: int = 0
    max_tokens: int = 0
    max_cost: float = 0.0
    """US dollars."""
    max_time: float = 0.0
    """Seconds since the ``Limits`` were made."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Bounds:
        return cls(**{f.name: getattr(settings, f.name) for f in dataclasses.fields(cls)})


class Limits:
    """The ``Throttle`` of this process, and the accounts. Safe to use from many threads.

    Args:
        bounds: rates and caps.
        spent: what an earlier part of the same run has consumed; counts towards the caps.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        spent: Usage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = bounds
        self._clock = clock
        self._start = clock()
        self._spent = spent or Usage()
        self._flying: dict[str, _Flight] = {}
        self._pacers: dict[str, _Pacer] = {}
        self._accounts: dict[tuple[str, str, str], Usage] = {}
        self._waiting: set[str] = set()
        self._duration = 0.1
        self._lock = threading.Lock()

    def ask(self, call: str, provider: str, tokens: int, cost: float) -> float:
        with self._lock:
            now = self._clock()
            self._waiting.discard(call)
            self._check_time(now)
            full = 0 < self._bounds.max_in_flight <= self._count(provider)
            if self._must_wait_for_others(tokens, cost) or full:
                self._waiting.add(call)
                return self._busy_wait()
            pacer = self._pacer(provider)
            wait = pacer.wait(now)
            if wait:
                return wait
            pacer.take(now, tokens)
            self._flying[call] = _Flight(provider, tokens, cost, now)
            return 0.0

    def done(
        self,
        call: str,
        usage: dict[str, Any],
        account: tuple[str, str, str],
        retry_after: float = 0.0,
        fault: str = "",
    ) -> None:
        used = Usage.from_json(usage)
        with self._lock:
            self._add(used, account)
            flight = self._flying.pop(call, None)
            if flight is None:
                return
            now = self._clock()
            self._duration += 0.1 * (now - flight.start - self._duration)
            pacer = self._pacer(flight.provider)
            pacer.correct(used.input_tokens + used.output_tokens - flight.tokens)
            if retry_after > 0:
                pacer.pause(now + retry_after)

    def note(self, usage: dict[str, Any], account: tuple[str, str, str]) -> None:
        with self._lock:
            self._add(Usage.from_json(usage), account)

    def report(self, usage: Usage, account: tuple[str, str, str]) -> None:
        """Enter calls that were made without asking, and are paid: they count towards the caps."""
        with self._lock:
            self._add(usage, account)

    @property
    def bounded(self) -> bool:
        """Whether there is a spending cap."""
        return any(limit for _, limit, _ in self._caps())

    def check(self) -> None:
        """Raises:
        CapReached: a spending cap leaves nothing.
        """
        with self._lock:
            self._check_time(self._clock())
            for name, limit, used in self._caps():
                if limit and used >= limit - 1e-12:
                    raise CapReached(_cap_words(name, limit, used))

    def forget(self, prefix: str) -> None:
        """Give up the calls in flight of a process that died: those whose name has the prefix.

        They may have been paid for, so they stay counted as calls, with their estimates.
        """
        with self._lock:
            self._waiting = {c for c in self._waiting if not c.startswith(prefix)}
            for call in [c for c in self._flying if c.startswith(prefix)]:
                lost = self._flying.pop(call)
                guess = Usage(1, 0, lost.tokens, 0, lost.cost or None, estimated=True)
                self._add(guess, ("lost", "", ""))

    @property
    def spent(self) -> Usage:
        """Everything paid for so far, what an earlier part of the run spent included."""
        with self._lock:
            return self._spent

    @property
    def in_flight(self) -> int:
        with self._lock:
            return len(self._flying)

    def accounts(self) -> dict[tuple[str, str, str], Usage]:
        """Usage by role, stage and task of this part of the run."""
        with self._lock:
            return dict(self._accounts)

    def rows(self) -> list[dict[str, Any]]:
        """Usage by role and stage, sorted: the arguments of ``run.result.UsageRow``."""
        sums: dict[tuple[str, str], Usage] = {}
        for (role, stage, _), usage in self.accounts().items():
            sums[role, stage] = sums.get((role, stage), Usage()) + usage
        return [
            {"role": role, "stage": stage, **usage.to_json()}
            for (role, stage), usage in sorted(sums.items())
        ]

    def _add(self, usage: Usage, account: tuple[str, str, str]) -> None:
        self._spent += usage
        role, stage, task = account
        key = (role, stage, task)
        self._accounts[key] = self._accounts.get(key, Usage()) + usage

    def _check_time(self, now: float) -> None:
        limit = self._bounds.max_time
        if limit and now - self._start >= limit:
            raise CapReached(f"skillopt_max_time: {limit:g} s are over")

    def _must_wait_for_others(self, tokens: int, cost: float) -> bool:
        """Whether the calls in flight must first tell what they used.

        A call that could exceed a cap together with those in flight waits for them; one that
        would exceed it alone is refused. So many workers cannot overshoot together, and a cap
        is not declared reached on estimates that other calls may not need.
        """
        flying = self._flying.values()
        asked = (
            (len(flying), 1),
            (sum(f.tokens for f in flying), tokens),
            (sum(f.cost for f in flying), cost),
        )
        for (name, limit, used), (reserved, mine) in zip(self._caps(), asked, strict=True):
            if limit and used + reserved + mine > limit + 1e-12:
                if reserved and used + mine <= limit + 1e-12:
                    return True
                raise CapReached(_cap_words(name, limit, used))
        return False

    def _caps(self) -> tuple[tuple[str, float, float], ...]:
        """Name, bound and what counts towards it, of calls, tokens and cost."""
        bounds, spent = self._bounds, self._spent
        return (
            ("max_calls", bounds.max_calls, spent.calls),
            ("max_tokens", bounds.max_tokens, spent.input_tokens + spent.output_tokens),
            ("max_cost", bounds.max_cost, spent.cost or 0.0),
        )

    def _busy_wait(self) -> float:
        """Seconds after which one of those who wait should ask again.

        By the time that calls have taken, so that all of them together ask four times for each
        call that ends, however many they are.
        """
        wait = self._duration * len(self._waiting) / (4 * max(1, len(self._flying)))
        return min(_LONGEST_WAIT, max(_SHORTEST_WAIT, wait))

    def _pacer(self, provider: str) -> _Pacer:
        if provider not in self._pacers:
            rates = (self._bounds.requests_per_minute, self._bounds.tokens_per_minute)
            self._pacers[provider] = _Pacer(*rates)
        return self._pacers[provider]

    def _count(self, provider: str) -> int:
        return sum(flight.provider == provider for flight in self._flying.values())


@dataclass(frozen=True, slots=True)
class _Flight:
    """What a call that is in flight has reserved."""

    provider: str
    tokens: int
    cost: float
    start: float


class _Pacer:
    """Rates of one provider, and its pause.

    The generic cell rate algorithm (ITU-T I.371): a virtual time runs ahead of the clock by what
    has been sent, at the agreed rate; a call may go while it is ahead by less than the burst. A
    single call larger than the burst goes too and is paid for by the wait of the next one.
    """

    def __init__(self, requests_per_minute: int, tokens_per_minute: int) -> None:
        self._per_request = 60 / requests_per_minute if requests_per_minute else 0.0
        self._per_token = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._requests_until = 0.0
        self._tokens_until = 0.0
        self._paused_until = 0.0
        self._last = 0.0

    def wait(self, now: float) -> float:
        """Seconds until a call may go."""
        ahead = max(self._requests_until, self._tokens_until) - BURST_SECONDS
        until = max(ahead, self._paused_until)
        if self._paused_until and now < self._paused_until + _RESTART_SECONDS:
            until = max(until, self._last + _RESTART_SPACING)
        return max(0.0, until - now)

    def take(self, now: float, tokens: int) -> None:
        """Enter a call that goes now."""
        self._last = now
        self._requests_until = max(self._requests_until, now) + self._per_request
        self._tokens_until = max(self._tokens_until, now) + tokens * self._per_token

    def correct(self, tokens: int) -> None:
        """Enter the difference between what a call used and its estimate."""
        self._tokens_until += tokens * self._per_token

    def pause(self, until: float) -> None:
        """Let nobody go before ``until``."""
        self._paused_until = max(self._paused_until, until)


def _cap_words(name: str, limit: float, used: float) -> str:
    unit = {"max_calls": "model calls", "max_tokens": "tokens", "max_cost": "US dollars"}[name]
    return f"skillopt_{name}: the cap of {limit:g} {unit} is reached ({used:g} used)"
