from pathlib import Path

from pytest_skillopt.report.result import Result


def write_reports(directory: Path, result: Result) -> None:
    (directory / "result.json").write_text(result.dump())
