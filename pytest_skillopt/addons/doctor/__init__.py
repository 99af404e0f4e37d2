"""Command ``pytest-skillopt doctor``."""
