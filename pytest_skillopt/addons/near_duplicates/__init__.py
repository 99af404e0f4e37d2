"""Finding tasks that are nearly the same, which belong in one split."""
