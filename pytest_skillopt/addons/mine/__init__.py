"""Add-on for test suites: draft tests, from a skill or transcripts."""
