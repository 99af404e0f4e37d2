"""What a training may still spend, so that the last comparison is never left without means.

The caps themselves are enforced where calls are made; here they are only planned with. Samples and
calls that were answered from a ledger or a cache count like paid ones: a resumed or repeated run
then takes the decisions of the first.
"""

from __future__ import annotations

import bisect
import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.model.types import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.rollouts import Rollout


_OWN = "the search's own bound"
_LOSS = 1.25
"""Time that a round takes over the durations of its rollouts, since its last ones run alone."""
_LEAST = 1e-9
"""A bound of dollars or seconds that is used up."""


class OutOfMeans(Exception):
    """The search has to end here, or the last comparison could not be paid for."""

    def __init__(self, reason: str, *, capped: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.capped = capped
        """A cap of the user ended it: with a higher one the run could go on."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Amounts of what a training spends; as a bound, zero is none.

    ``seconds`` is wall time, ``cost`` US dollars.
    """

    rollouts: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    @classmethod
    def of(cls, settings: Settings) -> Caps:
        return cls(
            settings.max_rollouts,
            settings.max_calls,
            settings.max_tokens,
            settings.max_cost,
            settings.max_time,
        )

    def share(self, spent: Caps, parts: int) -> Caps:
        """An equal part of what is left of each bound: never zero, which would turn it off."""

        def whole(cap: int, used: int) -> int:
            return max(1, (cap - used) // parts) if cap else 0

        def real(cap: float, used: float) -> float:
            return max(_LEAST, (cap - used) / parts) if cap else 0.0

        return Caps(
            whole(self.rollouts, spent.rollouts),
            whole(self.calls, spent.calls),
            whole(self.tokens, spent.tokens),
            real(self.cost, spent.cost),
            real(self.seconds, spent.seconds),
        )

    def plus(self, other: Caps) -> Caps:
        return Caps(
            self.rollouts + other.rollouts,
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.cost + other.cost,
            self.seconds + other.seconds,
        )

    def put_into(self, settings: Settings) -> Settings:
        """The settings with these bounds in the place of theirs."""
        return dataclasses.replace(
            settings,
            max_rollouts=self.rollouts,
            max_calls=self.calls,
            max_tokens=self.tokens,
            max_cost=self.cost,
            max_time=self.seconds,
        )


class Allowance:
    """Counts what was spent and says what the search may still take."""

    def __init__(
        self,
        caps: Caps,
        *,
        search_samples: int = 0,
        at_once: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        search_samples: samples that the search may take in all; 0 leaves it to the caps.
        at_once: how many rollouts run at the same time.
        """
        self._caps = caps
        self._search_samples = search_samples
        self._at_once = at_once
        self._clock = clock
        self._start = clock()
        self._keys: set[str] = set()
        self._durations: list[float] = []
        """Wall seconds of the samples, in ascending order."""
        self._target = Usage()
        self._optimizer = Usage()
        self.reserve = 0
        """Samples kept back for the last comparison and the test split."""
        self.held = 0
        """Samples kept back for the gate while a search goes on."""

    @property
    def capped(self) -> bool:
        """Whether a cap is set, so that nothing may be spent on a guess."""
        return any(dataclasses.astuple(self._caps))

    @property
    def samples(self) -> int:
        """Distinct samples taken so far."""
        return len(self._keys)

    @property
    def spent(self) -> Caps:
        """All that was taken so far, as it counts towards the caps."""
        used = self._target + self._optimizer
        return Caps(
            self.samples,
            used.calls + used.cached,
            used.input_tokens + used.output_tokens,
            used.cost or 0.0,
            self._clock() - self._start,
        )

    def took(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            if rollout.request.key not in self._keys:
                self._keys.add(rollout.request.key)
                self._target += rollout.usage + rollout.judge_usage
                bisect.insort(self._durations, rollout.duration)

    def called(self, usage: Usage) -> None:
        self._optimizer += usage

    def release(self) -> None:
        """The search is over: nothing is kept back any more, and its own bound is gone."""
        self.reserve = self.held = 0
        self._search_samples = 0

    def left(self) -> int | None:
        """Samples that the search may still take; None without any bound."""
        tightest = self._tightest()
        return None if tightest is None else max(0, tightest[0] - self.held)

    def covers(self, samples: int) -> bool:
        left = self.left()
        return left is None or samples <= left

    def require(self, samples: int) -> None:
        """Raises:
        OutOfMeans: so many samples more would eat up what is kept back.
        """
        tightest = self._tightest()
        if tightest is None or samples <= max(0, tightest[0] - self.held):
            return
        name = tightest[1]
        kept = f", {self.reserve} are kept for the last comparison" if self.reserve else ""
        if name == _OWN:
            raise OutOfMeans(f"the search has had its {self.samples} samples{kept}")
        raise OutOfMeans(
            f"{name} leaves no more for the search after {self.samples} samples{kept}", capped=True
        )

    def _tightest(self) -> tuple[int, str] | None:
        """The bound that leaves the fewest samples, and its name; None without any bound."""
        bounds = [(left, name) for name, left in self._bounds() if left is not None]
        return min(bounds, default=None)

    def _bounds(self) -> list[tuple[str, int | None]]:
        """What each bound leaves of samples, the reserve taken off where it shares the bound."""
        caps, used = self._caps, self._target + self._optimizer
        spent = float(used.calls + used.cached)
        seconds = self._clock() - self._start
        rollouts = caps.rollouts - self.samples - self.reserve if caps.rollouts else None
        return [
            (_OWN, self._search_samples - self.samples if self._search_samples else None),
            ("skillopt_max_rollouts", rollouts),
            (
                "skillopt_max_calls",
                self._share(caps.calls, spent, float(self._target.calls + self._target.cached)),
            ),
            (
                "skillopt_max_tokens",
                self._share(caps.tokens, _tokens(used), _tokens(self._target)),
            ),
            (
                "skillopt_max_cost",
                self._share(caps.cost, used.cost or 0.0, self._target.cost or 0.0),
            ),
            ("skillopt_max_time", self._samples_in(caps.seconds - seconds)),
        ]

    def _samples_in(self, seconds: float) -> int | None:
        """Samples that can be taken in so many seconds; None without that cap.

        At the pace of the rollouts themselves, all workers busy: what the optimizer thinks is spent
        when it has been, and the first rollout of each worker, which starts the worker up, is not
        what the next ones take.
        """
        if not self._caps.seconds:
            return None
        at_once = max(1, self._at_once())
        usual = self._durations[:-at_once] or self._durations
        each = _LOSS * sum(usual) / max(1, len(usual)) / at_once
        if each == 0.0:
            return None if seconds > 0 else 0
        return int(seconds / each) - self.reserve

    def _share(self, cap: float, spent: float, by_target: float) -> int | None:
        """Samples that fit under a cap at the price that a sample had so far."""
        if not cap:
            return None
        each = by_target / self.samples if self.samples and by_target > 0 else 0.0
        if each == 0.0:
            return None if spent < cap else 0
        return int((cap - spent) / each) - self.reserve


def _tokens(usage: Usage) -> float:
    return float(usage.input_tokens + usage.output_tokens)
