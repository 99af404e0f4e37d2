"""Settings of comparisons on further targets."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_skillopt.settings import setting


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """Settings of the add-on."""

    verify: str = setting("", "further targets: provider:model[@URL], harness:NAME", many=",")
    verify_rule: str = setting(
        "report",
        "if one loses: {choices}",
        choices=("report", "none_worse"),
    )

    @property
    def more_targets(self) -> tuple[str, ...]:
        """Targets, each once."""
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.verify.split(",")))))
