"""What a gate is told before it decides: the tasks of the suite, and its share of the settings."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_skillopt.gate.metric import MetricName
    from pytest_skillopt.settings import Settings


@dataclass(frozen=True, slots=True)
class GateTask:
    """What a gate knows of a task."""

    id: str
    must_pass: bool = False
    """A credible failure blocks, whatever else improves."""


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The gate's share of the settings; see ``settings.py`` for the ranges."""

    metric: MetricName = "hard"
    mixed_weight: float = 0.5
    rollouts: int = 3
    """Samples of each arm and task in the gates with a fixed number of them."""
    alpha: float = 0.05
    guard: float = 0.10
    k0: int = 3
    kc: int = 3
    kmax: int = 32
    focus: float = 0.3
    """E-value down to which a task still looks promising (or suspect) and is sampled again."""
    margin: float = 0.05
    alpha_run: float = 0.0
    trades: bool = False
    broad: bool = False
    deterministic: bool = False
    """A task has one fixed outcome under one skill (replay), so one sample tells all."""
    max_error_rate: float = 0.05
    first: tuple[str, ...] = ()
    """Tasks that come first where a gate takes them in an order; no verdict depends on it."""
    held_out: tuple[str, ...] = ()
    """Tasks that the search has not seen, where a gate is about others too."""
    budget: int | None = None
    """Samples that the final comparison may take in all, where it would go on as far as they reach;
    None without a bound."""
    alone: bool = False
    """The final comparison is the only decision: nothing has passed a gate before."""
    prior: float = 1.0
    """E-value of earlier samples that no gate draws again (say of trials on train tasks), for the
    same null hypothesis and already divided by the number of candidates it was the best of."""

    @classmethod
    def from_settings(cls, settings: Settings, *, deterministic: bool = False) -> GateOptions:
        return cls(
            metric=settings.metric,
            mixed_weight=settings.mixed_weight,
            rollouts=settings.rollouts,
            alpha=settings.gate_alpha,
            guard=settings.gate_guard,
            k0=settings.gate_k0,
            kc=settings.gate_kc,
            kmax=settings.gate_kmax,
            margin=settings.gate_margin,
            alpha_run=settings.gate_alpha_run,
            trades=settings.gate_trades,
            broad=settings.gate_broad,
            deterministic=deterministic,
            max_error_rate=settings.max_error_rate,
        )

    def economy(self) -> GateOptions:
        """The same bounds for about four fifths of the samples, and a little less power."""
        return dataclasses.replace(self, k0=min(self.k0, 2), kc=min(self.kc, 2), focus=0.5)

    def thin(self) -> GateOptions:
        """The same bounds for three fifths of the samples.

        The literal rule is then often a matter of one round, so that edits which win as much as
        they lose come through more often; for an inner gate with a fresh comparison after it.
        """
        return dataclasses.replace(self, k0=1, kc=1, focus=0.5)

    def alpha_at(self, decisions_before: int) -> float:
        """Alpha of a decision; with ``alpha_run``, what the series 6 / (pi t)^2 leaves for it."""
        if not self.alpha_run:
            return self.alpha
        return self.alpha_run * 6 / (math.pi * (decisions_before + 1)) ** 2
