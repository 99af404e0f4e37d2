"""From failures to checked edits: prompts, replies and checks of the optimizer model."""
