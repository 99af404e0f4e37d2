"""The settings of published mechanisms: what they may be. ``docs/published.md`` explains them.

They are ini keys (``-o`` sets them too) and no options. Only a run that sets one imports this.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pytest_skillopt.settings import Rule, Settings, converted

RULES = {
    "epochs": Rule("passes over the train tasks", low=1),
    "batch_size": Rule("train tasks of a step; 0: fits the suite", low=0),
    "minibatch_size": Rule(
        "tasks an analyst sees at once; 0: 1 in the search trials, 8 in batch", low=0
    ),
    "accumulation": Rule("rounds of rollout and reflection before one update", low=1),
    "merge_batch_size": Rule("patches merged in one call", low=2),
    "failure_only": Rule("no analysts for successes"),
    "update_mode": Rule(
        "patch, rewrite_from_suggestions or full_rewrite_minibatch",
        choices=("patch", "rewrite_from_suggestions", "full_rewrite_minibatch"),
    ),
    "autonomous_budget": Rule("let the optimizer say how many edits to apply"),
    "edit_budget": Rule("edits of one update at the start", low=1),
    "min_edit_budget": Rule(
        "edits of one update at the end; 0: 2, or edit_budget where that is less", low=0
    ),
    "schedule": Rule(
        "how the edit budget falls: constant, linear or cosine",
        choices=("constant", "linear", "cosine"),
    ),
    "candidates": Rule("candidates raced in a step", low=1),
    "splitting": Rule("take a patch apart that fixes some tasks and breaks others"),
    "pruning": Rule("leave out accepted edits that turn out useless"),
    "slow_update": Rule("compare epochs and write guidance, through the gate"),
    "slow_update_samples": Rule("train tasks of a slow update", low=1),
    "slow_update_pairs": Rule(
        "tasks shown to a slow update: mixed, changed or unchanged",
        choices=("mixed", "changed", "unchanged"),
    ),
    "meta_skill": Rule("advice to the optimizer about edits that worked"),
    "skill_aware": Rule("tell defects of the skill from lapses in following it"),
    "appendix_threshold": Rule("reminders in the appendix before they are merged", low=1),
    "gate_margin": Rule("margin of the gate named margin", low=0, high=1),
    "gate_k0": Rule("samples of the current skill before a comparison", low=1),
    "gate_kc": Rule("complete rounds of a candidate before it is accepted", low=1),
    "gate_kmax": Rule("most samples of one task and skill in one decision", low=1),
    "gate_alpha_run": Rule("alpha of a whole run; 0: per decision", low=0, high=0.5),
    "gate_veto": Rule("refuse an edit that breaks a task, whatever it fixes"),
    "gate_broad": Rule("a second test for thin effects on many tasks"),
}
"""Every setting, with what it means and its range."""


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
