"""Train a SKILL.md with your own pytest suite."""

from __future__ import annotations

__version__ = "0.1.0"
