"""Which search a training takes, and which settings it leaves without effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.settings import Settings

BATCH_ONLY = {
    "accumulation": "updates once an edit has won its trial",
    "merge_batch_size": "merges only what says the same, without a call",
    "failure_only": "has no analysts of successes anyhow",
    "autonomous_budget": "tries every edit, so that there is none to choose",
}
"""Settings of the search ``batch`` alone, with what ``trials`` does instead."""


def searches_in_batches(settings: Settings) -> bool:
    """A rewrite of the whole body cannot be tried edit by edit, whatever ``search`` says."""
    return settings.search == "batch" or settings.update_mode != "patch"


def notes_on_search(settings: Settings) -> Iterator[str]:
    """What a user has set and will not get."""
    if searches_in_batches(settings):
        if settings.search != "batch":
            yield (
                f"update_mode={settings.update_mode} rewrites the whole body, which cannot be "
                "tried edit by edit: the search is batch"
            )
        return
    standard = type(settings)()
    for name, instead in BATCH_ONLY.items():
        if getattr(settings, name) != getattr(standard, name):
            yield (
                f"skillopt_{name} changes nothing in this search, which {instead}; it is for "
                "--skillopt-search=batch"
            )
