"""The searches by their names: how each is made, what it costs at most, which stages it takes.

An add-on declares further ones in its table ``SEARCHES``: by name, a function that returns a
``Search``, so that nothing of a search is imported before it is chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pytest_skillopt.addons import merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.settings import Settings


class RunsSearch(Protocol):
    """A search over one training's state."""

    def run(self) -> str:
        """Search to the end and say why it ended; StopRun if something else ends it."""
        ...


@dataclass(frozen=True, slots=True)
class Search:
    """A search of an add-on.

    Args:
        make: makes it over a ``search.state.TrainingState``.
        most: from the numbers of train and val tasks to rollouts and optimizer calls at most.
        stages: returns the ``search.stages.Stages`` that it takes.
    """

    make: Callable[..., RunsSearch]
    most: Callable[[int, int, Settings], tuple[int, int]]
    stages: Callable[[], Any]


def added_search(settings: Settings) -> Search | None:
    """Return the search of the settings if an add-on brings it, None for a built-in one."""
    load = merged("SEARCHES").get(settings.search)
    found: Search | None = load() if load else None
    return found


def notes_on_search(settings: Settings) -> Iterator[str]:
    """List the settings that have no effect in the search that is chosen."""
    for field, value in settings.fields():
        only = field.metadata["search"]
        if only not in ("", settings.search) and value != field.default:
            yield (
                f"skillopt_{field.name} changes nothing here, it is for --skillopt-search={only}"
            )


def decides_at_the_end(settings: Settings) -> bool:
    """Whether only the final comparison decides, as by default."""
    return settings.gate == "sequential" and added_search(settings) is None
