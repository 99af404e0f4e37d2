"""Settings of the search ``batch``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.settings import AddOnSettings, setting

if TYPE_CHECKING:
    from pytest_skillopt.settings import Settings


def _batch(default: Any, **about: Any) -> Any:
    return setting(default, quiet=True, search="batch", **about)


@dataclass(frozen=True, slots=True)
class PublishedSettings(AddOnSettings):
    """Settings of the search ``batch`` (see ``docs/published.md``)."""

    minibatch_size: int = _batch(0, low=0)
    accumulation: int = _batch(1, low=1)
    merge_batch_size: int = _batch(8, low=2)
    failure_only: bool = _batch(False)
    contrasts: int = _batch(0, low=0)
    update_mode: str = _batch(
        "patch", choices=("patch", "rewrite_from_suggestions", "full_rewrite_minibatch")
    )
    autonomous_budget: bool = _batch(False)
    min_edit_budget: int = _batch(0, low=0)
    schedule: str = _batch("cosine", choices=("constant", "linear", "cosine"))
    slow_update: bool = _batch(True)
    slow_update_samples: int = _batch(20, low=1)
    slow_update_pairs: str = _batch("mixed", choices=("mixed", "changed", "unchanged"))
    meta_skill: bool = _batch(True)
    skill_aware: bool = _batch(False)
    appendix_source: str = _batch("both", choices=("both", "failure_only"))
    appendix_threshold: int = _batch(6, low=0)

    def validate(self, settings: Settings) -> None:
        """Raise UsageError for settings that contradict each other."""
        if self.min_edit_budget > settings.edit_budget:
            raise pytest.UsageError(
                f"skillopt_min_edit_budget={self.min_edit_budget} is above "
                f"skillopt_edit_budget={settings.edit_budget}: the budget falls during a training; "
                "lower the former or raise the latter"
            )
        if self.update_mode != "patch" and "trials" in settings.search:
            raise pytest.UsageError(
                f"skillopt_update_mode={self.update_mode} rewrites the whole body, which cannot be "
                "sampled edit by edit: set --skillopt-search=batch, or omit this setting"
            )
