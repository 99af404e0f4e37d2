"""Add-on: tasks that are nearly the same are kept in one split, with a note for the report."""

from __future__ import annotations

from pytest_skillopt.addons.later import later

alike = later("near_duplicates.words:alike")
