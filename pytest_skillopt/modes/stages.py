"""The stages of a training with the user's hooks in the place of the built-in ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.search.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def hooked_stages(config: pytest.Config) -> Stages:
    """Every stage asks its hook. The plugin implements the built-in ones itself, all but the gate:
    where nobody answers, the training knows that the gate is its own."""
    hook = config.hook
    return Stages(
        reflect=lambda records, context: hook.pytest_skillopt_reflect(
            config=config, records=records, context=context
        ),
        aggregate=lambda patches, context: hook.pytest_skillopt_aggregate(
            config=config, patches=patches, context=context
        ),
        select=lambda patch, context: hook.pytest_skillopt_select(
            config=config, patch=patch, context=context
        ),
        update=lambda patch, context: hook.pytest_skillopt_update(
            config=config, patch=patch, context=context
        ),
        gate=lambda question: hook.pytest_skillopt_gate(config=config, question=question),
    )


def hooked_prompt(config: pytest.Config) -> Callable[[str], str | None]:
    """Returns the user's template of a name, or None."""

    def prompt(name: str) -> str | None:
        template: str | None = config.hook.pytest_skillopt_prompt(config=config, name=name)
        return template

    return prompt
