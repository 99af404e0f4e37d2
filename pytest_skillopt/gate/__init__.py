"""Decisions from counts of passes to a verdict, without settings, pytest or a model."""
