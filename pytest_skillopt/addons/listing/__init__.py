"""Command ``pytest-skillopt runs``."""
