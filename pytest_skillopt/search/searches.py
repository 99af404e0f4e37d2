"""Which search a training takes, and which settings it leaves without effect."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.settings import Settings


def searches_in_batches(settings: Settings) -> bool:
    """A rewrite of the whole body cannot be tried edit by edit, whatever ``search`` says."""
    whole = settings.update_mode != "patch" and settings.search != "shorten"
    return settings.search == "batch" or whole


def decides_once(settings: Settings) -> bool:
    """Whether nothing but the final comparison decides, as it does by default."""
    return (
        settings.gate == "staged"
        and settings.metric == "hard"
        and not searches_in_batches(settings)
    )


def notes_on_search(settings: Settings) -> Iterator[str]:
    """What a user has set and will not get."""
    if searches_in_batches(settings):
        if settings.search != "batch":
            yield (
                f"update_mode={settings.update_mode} rewrites the whole body, which cannot be "
                "tried edit by edit: the search is batch"
            )
        return
    for field in fields(settings):
        if field.metadata["batch"] and getattr(settings, field.name) != field.default:
            yield f"skillopt_{field.name} changes nothing here, it is for --skillopt-search=batch"
