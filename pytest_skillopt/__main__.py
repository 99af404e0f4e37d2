"""``python -m pytest_skillopt``: the command line if no script is on PATH, as under cron."""

from __future__ import annotations

import sys

from pytest_skillopt.cli import main

if __name__ == "__main__":
    sys.exit(main())
