"""Simulated worlds for the benchmark of the learning mechanisms."""
