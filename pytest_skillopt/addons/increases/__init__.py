"""Bounds on how much dearer or slower a rollout may become."""
