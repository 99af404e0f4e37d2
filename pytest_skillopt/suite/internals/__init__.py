"""Every private touch of pytest, pytest-xdist and execnet: docs/decisions/private-api.md."""
