"""Tasks of a gate, and answers to its draws."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pytest_skillopt.gate.data import Draw, GateOptions, GateTask, Sample, Searched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def tasks(n: int, *must_pass: str) -> list[GateTask]:
    return [GateTask(f"t{i}", f"t{i}" in must_pass) for i in range(n)]


def taker(passes: Callable[[Draw], bool | None]) -> Callable[[Sequence[Draw]], list[Sample]]:
    return lambda draws: [Sample(draw, passes(draw)) for draw in draws]


def candidate_passes(draw: Draw) -> bool:
    return draw.arm == "candidate"


@lru_cache(maxsize=1 << 17)
def luck(key: str) -> float:
    """A number in [0, 1) that depends on the key only; many tests ask for the same ones."""
    return random.Random(key).random()


def noisy(seed: int, lift: float) -> Callable[[Draw], bool]:
    def passes(draw: Draw) -> bool:
        key = f"{seed}/{draw.arm}/{draw.task}/{draw.stream}/{draw.index}"
        return luck(key) < 0.5 + (lift if draw.arm == "candidate" else 0)

    return passes


def options_with(options: GateOptions | None = None, **told: Any) -> GateOptions:
    """Replace options; what a search says has its own names, and no ``lift`` means no search."""
    names = {one.name for one in fields(Searched)}
    found = {name: told.pop(name) for name in names & told.keys()}
    if found.get("lift") is not None:
        told["searched"] = Searched(**found)
    return replace(options or GateOptions(), **told)
