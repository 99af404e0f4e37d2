"""Mode ``--skillopt-aa``."""

from __future__ import annotations

from pytest_skillopt.options import Mode

MODES = (
    Mode(
        name="aa",
        help="measure the noise: compare the skill with itself",
        function="pytest_skillopt.addons.aa.measure:aa",
        doing="measuring the noise of",
        samples=lambda task, settings: 2 * settings.rollouts,
        typical=1.0,
        sides=("first", "second"),
        noise=True,
    ),
)
