"""Add-on that repeats a comparison of two versions on further targets."""
