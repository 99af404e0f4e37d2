"""Pauses and calls in flight, decided in one place for all processes that call a model."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.model.types import ModelFault, Price, Remote, Usage
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_skillopt.model.types import Account

_BUSY = 0.05
"""Seconds after which a call that waits for calls in flight asks again."""
OUTAGE_SECONDS = 60.0
"""Seconds without a successful call after which a run ends."""
_FAILURES = 5
"""Failures in a row that an outage has at least: one may be a slow reply."""
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
    input_tokens: int = 1
    most: int = 0
    """Maximum output tokens that the provider was given; 0: no maximum."""
    price: Price = Price(0.0, 0.0)
    """0.0 if it is not known."""


class Meter:
    """Allows calls or makes them wait, and keeps the accounts. Thread-safe.

    Under a cap of tokens or money a call reserves the most that it may use: the maximum output that
    the provider was given, else the longest of the last hundred replies of its role; and at least
    the share ``1 / (n + 1)`` of the rest of the cap after ``n`` replies of a role, since their
    length is not known at first. A call that does not fit beside those in flight waits for them.
    docs/decisions/replies.md says what may still exceed a cap.

    Args:
        settings: the bound of calls in flight to each provider, and the caps of its purse.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, settings: Settings | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        settings = settings or Settings()
        self.purse = Purse(Amounts.caps_of(settings), clock=clock)
        """Bounds what this session pays."""
        self._most_in_flight = settings.max_in_flight
        self._clock = clock
        self._spent = Usage()
        self._flying: dict[str, _Flight] = {}
        self._gone: set[str] = set()
        """Prefixes of processes that have ended; their messages may still arrive."""
        self._paused: defaultdict[str, float] = defaultdict(float)
        """Time until which each provider has asked all callers to wait."""
        self._outages: defaultdict[str, _Outage] = defaultdict(_Outage)
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
            ModelFault: the process was forgotten; or, fatal, no call has succeeded for a minute.
        """
        with self._lock:
            if call.startswith(tuple(self._gone)):
                raise ModelFault("the process that asked has ended")
            now = self._clock()
            self.purse.check_time()
            self._outages[estimate.provider].check(now)
            beside = sum(f.estimate.provider == estimate.provider for f in self._flying.values())
            full = 0 < self._most_in_flight <= beside
            flight = self._reserve(estimate)
            in_flight = (other.reserved for other in self._flying.values())
            others = reduce(Amounts.plus, in_flight, Amounts())
            if not self.purse.has_room(flight.reserved, others) or full:
                return _BUSY
            wait = max(0.0, self._paused[estimate.provider] - now)
            if not wait:
                self._flying[call] = flight
            return wait

    def done(
        self,
        call: str,
        used: Usage,
        account: Account,
        retry_after: float = 0.0,
        failure: str = "",
    ) -> None:
        """Record the end of a call in flight.

        Args:
            call: its name.
            used: its usage; no calls if the provider failed.
            account: role, stage and task (node id or empty).
            retry_after: seconds that the provider asked all callers to wait.
            failure: the provider's words if it was not reached or failed; empty if it answered.
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
            until = self._clock() + retry_after
            self._paused[estimate.provider] = max(self._paused[estimate.provider], until)
            self._outages[estimate.provider].note(failure, self._clock(), retry_after)

    def check_time(self) -> None:
        """Raise CapReached if the time is over, for who waits for something else than a call."""
        self.purse.check_time()

    def note(self, used: Usage, account: Account) -> None:
        """Record usage that was never in flight: a cached reply, or calls that a test reports.

        Paid calls count towards the caps.
        """
        with self._lock:
            self._add(used, account)

    def forget(self, prefix: str) -> None:
        """Count the calls in flight of a process that died: those whose name has the prefix.

        They may have been paid for, so they count with their estimates. No other process may use
        the prefix afterwards.
        """
        with self._lock:
            self._gone.add(prefix)
            for call in [c for c in self._flying if c.startswith(prefix)]:
                lost = self._flying.pop(call)
                cost = lost.estimate.price.cost(lost.input_tokens, lost.output_tokens) or None
                guess = Usage(1, 0, lost.input_tokens, lost.output_tokens, cost, estimated=True)
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

    def _add(self, usage: Usage, account: Account) -> None:
        self._spent += usage
        self.purse.count_payment(usage)
        role, stage, _ = account
        self._accounts[role, stage] += usage

    def _reserve(self, estimate: CallEstimate) -> _Flight:
        sizes = self._sizes[estimate.provider, estimate.role]
        prompt, likely = sizes.expected(estimate)
        reply = estimate.most or likely
        share = 0.0 if estimate.most else 1 / (sizes.count + 1)
        rest = self.purse.rest()
        tokens = max(prompt + reply, share * rest.tokens)
        cost = max(estimate.price.cost(prompt, reply), share * rest.cost)
        return _Flight(estimate, prompt, likely, Amounts(calls=1, tokens=tokens, cost=cost))


Throttle = Meter | Remote


@dataclass(frozen=True, slots=True)
class _Flight:
    """A call in flight."""

    estimate: CallEstimate
    input_tokens: int
    output_tokens: int
    """Expected ones."""
    reserved: Amounts
    """Amounts that it may use at most."""


class _ReplySizes:
    """Sizes of the latest replies of one role at one provider."""

    def __init__(self) -> None:
        self.count = 0
        self._outputs: deque[int] = deque(maxlen=_REMEMBERED)
        self._ratios: deque[float] = deque(maxlen=_REMEMBERED)

    def learn(self, estimate: CallEstimate, used: Usage) -> None:
        self.count += 1
        self._outputs.append(used.output_tokens)
        self._ratios.append(used.input_tokens / estimate.input_tokens)

    def expected(self, estimate: CallEstimate) -> tuple[int, int]:
        """Return the largest likely tokens in and out, judged by the latest replies."""
        prompt = math.ceil(estimate.input_tokens * max(self._ratios, default=1.0))
        reply = max(self._outputs, default=_GUESSED_OUTPUT)
        if estimate.most:
            reply = min(reply, estimate.most)
        return prompt, reply


class _Outage:
    """Failures of one provider in a row."""

    def __init__(self) -> None:
        self._since = 0.0
        self._failures = 0
        self._words = ""

    def note(self, failure: str, now: float, pause: float) -> None:
        """Note how a call has ended; an announced pause is no part of an outage."""
        if not failure:
            self._failures = 0
            return
        self._failures += 1
        self._words = failure
        self._since = now if self._failures == 1 else self._since + pause

    def check(self, now: float) -> None:
        """Raise ModelFault, fatal, if the provider has failed for long enough."""
        if self._failures >= _FAILURES and now - self._since >= OUTAGE_SECONDS:
            words = f"no call has succeeded for {now - self._since:.0f} s, the last: {self._words}"
            raise ModelFault(f"{words}; run again when the server answers", fatal=True)
