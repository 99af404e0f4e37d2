"""Contents of a user's environment: only the package."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_the_package_and_nothing_of_the_example() -> None:
    names = [file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()]
    assert {name.split("/")[0] for name in names} == {"pytest_skillopt"}
    assert "pytest_skillopt/model/client.py" in names
    strangers = ("simulat", "offline", "invoice", "example")
    assert [name for name in names if any(word in name for word in strangers)] == []
