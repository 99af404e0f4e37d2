"""The settings of published mechanisms: what they may be. ``docs/published.md`` explains them.

They are ini keys (``-o`` sets them too) and no options. Only a run that sets one imports this.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pytest_skillopt.settings import Rule, Settings, converted

RULES = {
    "epochs": Rule(low=1),
    "batch_size": Rule(low=0),
    "minibatch_size": Rule(low=0),
    "accumulation": Rule(low=1),
    "merge_batch_size": Rule(low=2),
    "failure_only": Rule(),
    "update_mode": Rule(
        choices=("patch", "rewrite_from_suggestions", "full_rewrite_minibatch"),
    ),
    "autonomous_budget": Rule(),
    "edit_budget": Rule(low=1),
    "min_edit_budget": Rule(low=0),
    "schedule": Rule(choices=("constant", "linear", "cosine")),
    "candidates": Rule(low=1),
    "splitting": Rule(),
    "pruning": Rule(),
    "slow_update": Rule(),
    "slow_update_samples": Rule(low=1),
    "slow_update_pairs": Rule(choices=("mixed", "changed", "unchanged")),
    "meta_skill": Rule(),
    "skill_aware": Rule(),
    "appendix_threshold": Rule(low=1),
    "gate_margin": Rule(low=0, high=1),
    "gate_k0": Rule(low=1),
    "gate_kc": Rule(low=1),
    "gate_kmax": Rule(low=1),
    "gate_alpha_run": Rule(low=0, high=0.5),
    "gate_veto": Rule(),
    "gate_broad": Rule(),
}
"""Every setting with its range."""


def with_published(settings: Settings, given: dict[str, Any]) -> Settings:
    """The settings with those of published mechanisms.

    Args:
        given: values as pytest read them, by name.

    Raises:
        pytest.UsageError: a value that cannot be, or two that do not go together.
    """
    found = {}
    for field in dataclasses.fields(settings):
        if field.name in given:
            checked = RULES[field.name].field(field.default)
            found[field.name] = converted(checked, given[field.name], f"skillopt_{field.name}")
    settings = dataclasses.replace(settings, **found)
    if settings.min_edit_budget > settings.edit_budget:
        raise pytest.UsageError(
            f"skillopt_min_edit_budget={settings.min_edit_budget} is above "
            f"skillopt_edit_budget={settings.edit_budget}: the budget falls during a training; "
            "lower the one or raise the other"
        )
    return settings
