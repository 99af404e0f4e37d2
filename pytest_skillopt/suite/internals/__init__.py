"""Every private touch of pytest, pytest-xdist and execnet: docs/decisions/workers.md."""
