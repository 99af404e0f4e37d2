"""Before a run: its plan."""
