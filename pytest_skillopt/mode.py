"""Which of the plugin's modes is on, and what may not stand beside it on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.options import COMPANIONS, FLAGS, Name, given

if TYPE_CHECKING:
    from collections.abc import Callable

_BIASING: tuple[tuple[str, str, Callable[[object], bool]], ...] = (
    ("maxfail", "-x / --maxfail", bool),
    ("lf", "--lf", bool),
    ("stepwise", "--sw", bool),
    ("usepdb", "--pdb", bool),
    ("trace", "--trace", bool),
    ("reruns", "--reruns", bool),
)


@dataclass(frozen=True, slots=True)
class Mode:
    """What this session does besides being a pytest session."""

    name: Name
    ref: str = ""
    """With ``check``: the git revision that the working tree is compared with."""
    strict: bool = False
    """With ``check``: too little evidence is a failure too."""
    pair: tuple[str, str] = ("", "")
    """With ``compare``: the two skills."""
    resume: str | None = None
    """Run to continue; '' is the latest."""
    init: bool = False
    """With ``train``: make the SKILL.md if there is none."""
    save_baseline: bool = False
    """With ``evaluate``: write the counts to ``.skillopt-baseline.json``."""

    @classmethod
    def from_config(cls, config: pytest.Config) -> Mode | None:
        """The mode that the options ask for; None where none of them was given.

        Raises:
            pytest.UsageError: two modes at once, or an option that only goes with another mode.
        """
        option = config.option
        chosen = [(flag, name) for flag, dest, name in FLAGS if given(config, dest)]
        if len(chosen) > 1:
            raise pytest.UsageError(f"{chosen[0][0]} and {chosen[1][0]} do not go together")
        name = chosen[0][1] if chosen else None
        for flag, dest, needed in COMPANIONS:
            if given(config, dest) and name not in needed:
                flags = " or ".join(f for f, _, n in FLAGS if n in needed)
                raise pytest.UsageError(f"{flag} only goes with {flags}")
        if name is None:
            return None
        mode = cls(
            name=name,
            ref=option.skillopt_check or "",
            strict=option.skillopt_check_strict,
            pair=tuple(option.skillopt_compare or ("", "")),
            resume="" if option.skillopt_resume == "latest" else option.skillopt_resume,
            init=option.skillopt_init,
            save_baseline=option.skillopt_save_baseline,
        )
        mode._refuse_biasing(config)
        return mode

    @property
    def flag(self) -> str:
        return next(flag for flag, _, name in FLAGS if name == self.name)

    def _refuse_biasing(self, config: pytest.Config) -> None:
        """Options that stop early, pick failures or repeat them would bias a measurement."""
        if self.name == "evaluate":
            return
        for dest, shown, is_on in _BIASING:
            if is_on(config.getoption(dest, default=None)):
                raise pytest.UsageError(
                    f"{self.flag} does not go with {shown}: it would truncate or bias the "
                    "measurement (look in addopts too)"
                )
