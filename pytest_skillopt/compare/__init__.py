"""Modes that compare two versions of a skill: aa, compare, check, try and drift."""
