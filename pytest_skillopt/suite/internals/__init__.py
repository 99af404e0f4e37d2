"""All uses of private interfaces of pytest, pytest-xdist and execnet: docs/decisions/workers.md."""
