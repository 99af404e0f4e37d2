"""The check that an edit carries no words of a particular task."""
