"""Plan what a training may still spend, so that the final comparison is always paid for.

The caps are enforced where calls are made (``model/limits.py``). Samples and calls that were
answered from a journal or a cache count like paid ones here, so that a continued or repeated run
takes the decisions of the first.
"""

from __future__ import annotations

import bisect
import time
from enum import Enum
from typing import TYPE_CHECKING

from pytest_skillopt.model.limits import CAPS, Caps
from pytest_skillopt.model.types import Usage
from pytest_skillopt.suite.sampler import Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_skillopt.suite.rollouts import Rollout

_OWN = "the search's own bound"
_LOSS = 1.25
"""Time that a round takes over the durations of its rollouts: few run at its end."""


class Purpose(Enum):
    """Purposes for which samples are reserved."""

    FINAL = "the final comparison and the test split, after the search"
    ABLATION = "leaving edits out, during the search"


class OutOfBudget(StopRun):
    """The search ends here, because it would spend a reserve or exceed its bound."""

    def __init__(self, reason: str, *, capped: bool = False) -> None:
        super().__init__(reason, kind=Stop.CAP if capped else Stop.SPENT)
        self.capped = capped
        """True if a cap of the user ended it: with a higher one the run could continue."""


class Budget:
    """Count what was spent, and tell what the search may still take.

    Args:
        caps: the caps of the training.
        search_samples: samples that the search may take in all; 0 leaves it to the caps.
        at_once: returns how many rollouts run at the same time, at least 1.
        clock: returns seconds.
    """

    def __init__(
        self,
        caps: Caps,
        *,
        search_samples: int = 0,
        at_once: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
        self._held = dict.fromkeys(Purpose, 0)

    @property
    def samples(self) -> int:
        """Number of distinct samples taken so far."""
        return len(self._keys)

    @property
    def spent(self) -> Caps:
        """Amounts taken so far, as they count towards the caps."""
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

    def hold(self, purpose: Purpose, samples: int) -> None:
        """Reserve so many samples for a purpose, in place of what was reserved for it before."""
        self._held[purpose] = samples

    def release(self) -> None:
        """End the search: free all reserves and lift its own bound."""
        self._held = dict.fromkeys(Purpose, 0)
        self._search_samples = 0

    def allow(self, samples: int) -> None:
        """Let a search take so many samples from now on."""
        self._search_samples = self.samples + samples

    def left(self) -> int | None:
        """Count the samples that the search may still take; None without any bound."""
        held = self._held[Purpose.ABLATION]
        bounds = [left - held for left, _ in self._bounds()]
        return max(0, min(bounds)) if bounds else None

    def covers(self, samples: int) -> bool:
        left = self.left()
        return left is None or samples <= left

    def require(self, samples: int) -> None:
        """Check that so many more samples may be taken.

        Raises:
            OutOfBudget: they would spend a reserve.
        """
        if self.covers(samples):
            return
        _, name = min(self._bounds())
        reserve = self._held[Purpose.FINAL]
        kept = f"; {reserve} more are reserved for the final comparison" if reserve else ""
        if name == _OWN:
            raise OutOfBudget(f"the search has had its {self.samples} samples{kept}")
        raise OutOfBudget(
            f"{name} leaves no more for the search after {self.samples} samples{kept}", capped=True
        )

    def _bounds(self) -> Iterator[tuple[int, str]]:
        """Yield the samples that each bound leaves, at the price of one so far, and its name.

        The reserve for the final comparison counts against the caps, not the search's own bound.
        """
        if self._search_samples:
            yield self._search_samples - self.samples, _OWN
        taken = max(1, self.samples)
        prices = (1.0, *(amount / taken for amount in _amounts(self._target)), self._seconds())
        for name, cap, spent, price in zip(CAPS, self._caps, self.spent, prices, strict=True):
            if cap and (price or spent >= cap):
                left = int((cap - spent) / price) - self._held[Purpose.FINAL] if price else 0
                yield left, f"skillopt_{name}"

    def _seconds(self) -> float:
        """Estimate the seconds of a sample at the pace of the rollouts, all workers busy.

        The time of the optimizer counts as spent only; the first rollout of each worker starts the
        worker up, so the slowest ones do not count.
        """
        at_once = self._at_once()
        usual = self._durations[:-at_once] or self._durations
        return _LOSS * sum(usual) / max(1, len(usual)) / at_once


def _amounts(usage: Usage) -> tuple[int, int, float]:
    """Return calls, tokens and US dollars, cached ones included."""
    return usage.calls + usage.cached, usage.tokens, usage.worth
