"""Add-ons: each a plugin of the core, in a folder that can be taken away."""
