"""Before a run: its plan, and an examination of all that it needs."""
