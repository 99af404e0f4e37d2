"""From failures to checked edits: what the optimizer model is shown, asked and allowed."""
