"""Functions with which a test checks an answer: they are imported, and declare nothing."""
