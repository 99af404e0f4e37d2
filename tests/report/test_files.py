from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.report import files
from pytest_skillopt.report.markdown import render_summary
from pytest_skillopt.report.page import render_html
from pytest_skillopt.run.result import Result

if TYPE_CHECKING:
    from pathlib import Path

MakeResult = Callable[..., Result]


def write(directory: Path, result: Result) -> None:
    files.write_result(directory, result)
    files.write_reports(directory, result)


def test_all_reports_are_written_and_the_result_reads_back(
    make_result: MakeResult, tmp_path: Path
) -> None:
    result = make_result(hostile=True)
    write(tmp_path / "run", result)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    reports = {"report.html": render_html, "summary.md": render_summary}
    assert names == {"result.json", *reports, "skill.patch"}
    read = Result.load((tmp_path / "run" / "result.json").read_bytes())
    assert read == result
    for name, render in reports.items():
        assert (tmp_path / "run" / name).read_text(encoding="utf-8") == render(read)
    patch = (tmp_path / "run" / "skill.patch").read_bytes()
    assert patch == result.skills[0].patch.encode()


def test_half_a_surrogate_pair_hinders_no_report(make_result: MakeResult, tmp_path: Path) -> None:
    """A name of a file that is not UTF-8 has some, and a test may show it."""
    write(tmp_path, make_result().model_copy(update={"notes": ["caf\udce9 ü"]}))
    assert Result.load((tmp_path / "result.json").read_bytes()).notes == ["caf? ü"]


def test_files_are_for_their_owner_alone(make_result: MakeResult, tmp_path: Path) -> None:
    write(tmp_path, make_result())
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_an_old_patch_does_not_outlive_the_change(make_result: MakeResult, tmp_path: Path) -> None:
    write(tmp_path, make_result())
    write(tmp_path, make_result(status="rejected"))
    assert not (tmp_path / "skill.patch").exists()


def test_a_failed_write_leaves_the_old_file_and_no_scrap(
    make_result: MakeResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, make_result(tasks=1))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path, make_result(tasks=2))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_write_on_a_full_disk_names_the_file(make_result: MakeResult, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, usual[1]))
    try:
        with pytest.raises(OSError, match=r"result\.json"):
            write(tmp_path, make_result())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert [*tmp_path.iterdir()] == []
