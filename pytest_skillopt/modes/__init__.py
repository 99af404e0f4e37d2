"""Find the function of a mode, from a ``Run`` to a ``Result``, by the mode's name.

To add a mode, write the function, add a row to ``carry_out`` here, and the option that selects it
to ``mode.py``; ``report/live.py`` holds a word for what it does, ``run/result.py`` its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_skillopt.mode import Name
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.run.result import Result


def carry_out(name: Name, run: Run, display: Display) -> Result:
    """Carry out a mode; only a training imports the search."""
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
