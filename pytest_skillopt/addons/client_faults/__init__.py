"""Recognizing failed calls of a test's own clients."""
