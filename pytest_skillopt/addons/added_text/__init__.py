"""Rules of the lint on the text that an edit adds."""
