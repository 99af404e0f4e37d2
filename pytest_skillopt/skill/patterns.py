"""Every pattern of the lint, in the order in which they are tried."""

from __future__ import annotations

from pytest_skillopt.skill.languages import FOREIGN
from pytest_skillopt.skill.pattern import Pattern, prose
from pytest_skillopt.skill.patterns_machine import (
    CREDENTIALS,
    DESTRUCTIVE,
    HIDDEN_COMMAND,
    INSTALL,
    NETWORK,
    SPELLED,
)
from pytest_skillopt.skill.patterns_orders import HIDE, OVERRIDE
from pytest_skillopt.skill.patterns_tests import TAMPER

PATTERNS: tuple[Pattern, ...] = (
    prose("frontmatter", r"\ballowed-tools\b"),
    *SPELLED,
    *OVERRIDE,
    *HIDE,
    *TAMPER,
    *NETWORK,
    *CREDENTIALS,
    *INSTALL,
    *DESTRUCTIVE,
    *HIDDEN_COMMAND,
    *(Pattern(rule, "prose", regex, negatable=False) for rule, regex in FOREIGN),
)
