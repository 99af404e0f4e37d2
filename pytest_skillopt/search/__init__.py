"""The training: which edits are tried, kept and compared, and what that may cost."""
