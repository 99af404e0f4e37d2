"""Settings of comparisons on further targets."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_skillopt.settings import setting


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """Settings of the add-on."""

    verify: str = setting(
        "", "further targets to compare on: provider:model[@URL], harness:NAME", many=","
    )
    verify_rule: str = setting(
        "report",
        "after a loss on one of them: {choices} (nothing is written)",
        choices=("report", "none_worse"),
    )

    @property
    def more_targets(self) -> tuple[str, ...]:
        """Targets, each once."""
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.verify.split(",")))))
