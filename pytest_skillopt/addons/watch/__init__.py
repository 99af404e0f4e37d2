"""Add-on ``pytest-skillopt watch``: show a run in the browser, from its files only."""
