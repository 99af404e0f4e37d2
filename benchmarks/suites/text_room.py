"""A room with one thing to carry, played through the interface of ``textworld.start``."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Room:
    """A game: a JSON object with ``thing``, ``places``, ``at`` and ``goal``."""

    def __init__(self, file: Path) -> None:
        game = json.loads(file.read_text(encoding="utf-8"))
        self.thing = game["thing"]
        self.places = game["places"]
        self.goal = game["goal"]
        self.at: str | None = game["at"]  # None: in the hand
        self.here = ""

    def reset(self) -> SimpleNamespace:
        """Return the first state."""
        seen = ", ".join(self.places)
        return self._state(f"You see {seen}.\nYour task is to: put {self.thing} in {self.goal}.")

    def step(self, action: str) -> tuple[SimpleNamespace, int, bool]:
        """Do an action; return the state, the score and whether the game is over."""
        said = "Nothing happens."
        if action in self._actions():
            verb, _, rest = action.partition(" ")
            if verb == "go":
                self.here = rest.removeprefix("to ")
            elif verb in ("take", "move"):
                self.at = None if verb == "take" else self.here
            there = self.thing if self.at == self.here else "nothing"
            said = f"You {action}. At {self.here or 'the door'} you see {there}."
        won = self.at == self.goal
        return self._state(said), int(won), won

    def _actions(self) -> list[str]:
        known = ["look", *(f"go to {place}" for place in self.places if place != self.here)]
        if self.here and self.at == self.here:
            known.append(f"take {self.thing} from {self.here}")
        if self.here and self.at is None:
            known.append(f"move {self.thing} to {self.here}")
        return known

    def _state(self, said: str) -> SimpleNamespace:
        won = self.at == self.goal
        return SimpleNamespace(feedback=said, admissible_commands=self._actions(), won=won)
