"""What one sample is worth: the number that the suite's mean is a mean of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from pytest_skillopt.gate.verdict import Sample

MetricName = Literal["hard", "soft", "mixed"]


@dataclass(frozen=True, slots=True)
class Metric:
    """``hard`` is the test's outcome, ``soft`` the recorded score, ``mixed`` a blend of both.

    Raises:
        ValueError: the name is none of the three, or ``weight`` is outside [0, 1].
    """

    name: MetricName = "hard"
    weight: float = 0.5
    """Weight of the soft score in ``mixed``, in [0, 1]."""

    def __post_init__(self) -> None:
        if self.name not in get_args(MetricName):
            raise ValueError(f"metric {self.name!r} is none of {', '.join(get_args(MetricName))}")
        if not 0 <= self.weight <= 1:
            raise ValueError(f"weight of the soft score is {self.weight}, not in [0, 1]")

    def value(self, sample: Sample) -> float:
        """The sample's worth in [0, 1].

        Raises:
            ValueError: the sample is no measurement, or its score is not a number in [0, 1].
        """
        if sample.passed is None:
            raise ValueError(f"{sample.draw.task}: a sample without an outcome has no value")
        if not (math.isfinite(sample.score) and 0 <= sample.score <= 1):
            raise ValueError(
                f"{sample.draw.task}: score {sample.score} is not a number in [0, 1]; "
                "scale it before rollout.score(...)"
            )
        hard = 1.0 if sample.passed else 0.0
        if self.name == "hard":
            return hard
        if self.name == "soft":
            return sample.score
        return self.weight * sample.score + (1 - self.weight) * hard
