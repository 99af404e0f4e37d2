"""What a training may still spend, so that the last comparison is always paid for.

The caps themselves are enforced where calls are made; here they are only planned with. Samples and
calls that were answered from a ledger or a cache count like paid ones: a resumed or repeated run
then takes the decisions of the first.
"""

from __future__ import annotations

import bisect
import time
from typing import TYPE_CHECKING

from pytest_skillopt.model.limits import CAPS, Caps
from pytest_skillopt.model.types import Usage
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_skillopt.suite.rollouts import Rollout


SPENT = "spent"
"""Kind of the end of a search that has had all that it may take."""
_OWN = "the search's own bound"
_LOSS = 1.25
"""Time that a round takes over the durations of its rollouts, since its last ones run alone."""


class OutOfBudget(StopRun):
    """The search has to end here, or the last comparison could not be paid for."""

    def __init__(self, reason: str, *, capped: bool = False) -> None:
        super().__init__(reason, kind="cap" if capped else SPENT)
        self.capped = capped
        """A cap of the user ended it: with a higher one the run could go on."""


class Budget:
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
        at_once: how many rollouts run at the same time, at least 1.
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
        """Samples kept back for leaving edits out while a search goes on."""

    @property
    def samples(self) -> int:
        """Distinct samples taken so far."""
        return len(self._keys)

    @property
    def spent(self) -> Caps:
        """All that was taken so far, as it counts towards the caps."""
        seconds = self._clock() - self._start
        return Caps(self.samples, *_amounts(self._target + self._optimizer), seconds)

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

    def allow(self, samples: int) -> None:
        """Let a search take so many samples from now on."""
        self._search_samples = self.samples + samples

    def left(self) -> int | None:
        """Samples that the search may still take; None without any bound."""
        bounds = [left - self.held for left, _ in self._bounds()]
        return max(0, min(bounds)) if bounds else None

    def covers(self, samples: int) -> bool:
        left = self.left()
        return left is None or samples <= left

    def require(self, samples: int) -> None:
        """Raises:
        OutOfBudget: so many samples more would eat up what is kept back.
        """
        if self.covers(samples):
            return
        _, name = min(self._bounds())
        kept = f", {self.reserve} are kept for the last comparison" if self.reserve else ""
        if name == _OWN:
            raise OutOfBudget(f"the search has had its {self.samples} samples{kept}")
        raise OutOfBudget(
            f"{name} leaves no more for the search after {self.samples} samples{kept}", capped=True
        )

    def _bounds(self) -> Iterator[tuple[int, str]]:
        """What each bound leaves of samples, at the price that one had so far, and its name.

        The reserve is taken off where it shares the bound.
        """
        if self._search_samples:
            yield self._search_samples - self.samples, _OWN
        taken = max(1, self.samples)
        prices = (1.0, *(amount / taken for amount in _amounts(self._target)), self._seconds())
        for name, cap, spent, price in zip(CAPS, self._caps, self.spent, prices, strict=True):
            if cap and (price or spent >= cap):
                left = int((cap - spent) / price) - self.reserve if price else 0
                yield left, f"skillopt_{name}"

    def _seconds(self) -> float:
        """That a sample takes at the pace of the rollouts themselves, all workers busy.

        What the optimizer thinks is spent when it has been, and the first rollout of each worker,
        which starts the worker up, is not what the next ones take.
        """
        at_once = self._at_once()
        usual = self._durations[:-at_once] or self._durations
        return _LOSS * sum(usual) / max(1, len(usual)) / at_once


def _amounts(usage: Usage) -> tuple[int, int, float]:
    """Calls, tokens and US dollars, of what was answered from a cache as well."""
    return usage.calls + usage.cached, usage.tokens, usage.worth
