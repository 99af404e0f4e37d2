"""Setting of the scanner."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_skillopt.settings import setting


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """Settings of the add-on."""

    scan: str = setting("", "command that scans the folder {skill} before a write")
