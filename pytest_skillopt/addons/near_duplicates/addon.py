"""Add-on: tasks that are nearly the same are kept in one split, with a note for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.addon import AddOn
from pytest_skillopt.addons.later import Later

if TYPE_CHECKING:
    from pytest_skillopt.addons.near_duplicates import words
else:
    words = Later("near_duplicates.words")

ADDON = AddOn(alike=words.alike)
