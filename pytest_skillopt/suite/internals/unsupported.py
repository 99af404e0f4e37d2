"""The error of a release that is not as expected."""

from __future__ import annotations

import importlib.metadata

import pytest


def unsupported(missing: str, *packages: str) -> pytest.UsageError:
    """Names the versions of the packages, and what is missing in them."""
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    return pytest.UsageError(
        f"pytest-skillopt {_version('pytest-skillopt')} cannot run rollouts with {versions}: "
        f"{missing} is not as expected. Install a version that pytest-skillopt supports."
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
