"""What a training may still spend, so that the last comparison is always paid for.

The caps themselves are enforced where calls are made; here they are only planned with. Samples and
calls that were answered from a ledger or a cache count like paid ones: a resumed or repeated run
then takes the decisions of the first.
"""

from __future__ import annotations

import bisect
import dataclasses
import time
from typing import TYPE_CHECKING

from pytest_skillopt.model.limits import Caps
from pytest_skillopt.model.types import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.suite.rollouts import Rollout


_OWN = "the search's own bound"
_LOSS = 1.25
"""Time that a round takes over the durations of its rollouts, since its last ones run alone."""


class OutOfBudget(Exception):
    """The search has to end here, or the last comparison could not be paid for."""

    def __init__(self, reason: str, *, capped: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
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

    def allow(self, samples: int) -> None:
        """Let a search take so many samples from now on."""
        self._search_samples = self.samples + samples

    def left(self) -> int | None:
        """Samples that the search may still take; None without any bound."""
        tightest = self._tightest()
        return None if tightest is None else max(0, tightest[0] - self.held)

    def covers(self, samples: int) -> bool:
        left = self.left()
        return left is None or samples <= left

    def require(self, samples: int) -> None:
        """Raises:
        OutOfBudget: so many samples more would eat up what is kept back.
        """
        tightest = self._tightest()
        if tightest is None or samples <= max(0, tightest[0] - self.held):
            return
        name = tightest[1]
        kept = f", {self.reserve} are kept for the last comparison" if self.reserve else ""
        if name == _OWN:
            raise OutOfBudget(f"the search has had its {self.samples} samples{kept}")
        raise OutOfBudget(
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
