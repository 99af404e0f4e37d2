"""The modes by their names: the function that takes an open run to its result.

To add one, write the function, give it a row in ``carry_out`` here, and in ``mode.py`` the option
that turns it on; ``report/live.py`` says in a word what it does, ``run/result.py`` lists its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_skillopt.mode import Name
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result


def carry_out(name: Name, run: Run, display: Display) -> Result:
    """Carry out a mode. Only a training imports what it needs."""
    if name == "train":
        from pytest_skillopt.modes.train import train

        return train(run, display)
    from pytest_skillopt.modes import measure

    modes = {
        "evaluate": measure.evaluate,
        "check": measure.check,
        "compare": measure.compare,
        "aa": measure.aa,
    }
    return modes[name](run, display)
