"""Counting how often the test split was measured."""
