"""Checks of the text that an edit adds."""
