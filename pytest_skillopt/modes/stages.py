"""The stages of a training with the user's hooks in the place of the built-in ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.search.stages import Stages, open_gate

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pytest_skillopt.gate.gate import Gate
    from pytest_skillopt.search.stages import GateQuestion


def hooked_stages(config: pytest.Config) -> Stages:
    """Every stage asks its hook; the plugin's own implementation is the built-in one."""
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
        gate=_gate(config),
    )


def _gate(config: pytest.Config) -> Callable[[GateQuestion], Gate]:
    """The built-in one itself where nobody else answers, so that a training knows its gate."""
    hook = config.hook.pytest_skillopt_gate
    if len(hook.get_hookimpls()) == 1:
        return open_gate
    return lambda question: hook(config=config, question=question)


def hooked_prompt(config: pytest.Config) -> Callable[[str], str | None]:
    """Returns the user's template of a name, or None."""

    def prompt(name: str) -> str | None:
        template: str | None = config.hook.pytest_skillopt_prompt(config=config, name=name)
        return template

    return prompt
