"""SpreadsheetBench Verified 400: the model writes a script that changes a workbook.

Scored as by the benchmark's ``evaluation.py``: the values of the answer's cells, numbers to two
decimals, dates to the day, in every workbook of the task. Needs openpyxl. The script runs on this
machine, without its environment variables but with its files and network: use a container.
"""

import datetime
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from published import data_of, tasks

DATA = data_of("spreadsheetbench")
ASK = "Answer with one Python script in a ```python block that uses openpyxl, reads the workbook at"
ASK += " INPUT_PATH (defined for you) and saves the changed one to OUTPUT_PATH."


def value(cell: Any) -> Any:
    if isinstance(cell, datetime.datetime):
        return float(round((cell - datetime.datetime(1899, 12, 30)) / datetime.timedelta(days=1)))
    if isinstance(cell, datetime.time):
        return str(cell)[:-3]
    try:
        return round(float(cell), 2)
    except (TypeError, ValueError):
        return cell or None


def cells(book: Any, position: str) -> list[Any]:
    found = []
    for part in position.split(","):
        sheet, _, area = part.strip().rpartition("!")
        name = sheet.strip(" '\"") or book.sheetnames[0]
        assert name in book.sheetnames, f"the workbook has no sheet {name!r}"
        block = book[name][area.strip(" '\"")]
        rows = block if isinstance(block, tuple) else ((block,),)
        found += [(c.coordinate, value(c.value)) for row in rows for c in row]
    return found


@pytest.fixture
def books(case: Any) -> list[tuple[Path, Path]]:
    """Return each workbook with the one that is wanted of it."""
    files = DATA / case["spreadsheet_path"]
    books = [(a, a.with_name(a.name.replace("init", "golden"))) for a in files.glob("*_init.xlsx")]
    books = sorted(books) or [(files / "initial.xlsx", files / "golden.xlsx")]
    for path in (path for pair in books for path in pair):
        openpyxl.load_workbook(path).close()
    return books


@pytest.mark.parametrize("case", tasks(DATA, "dataset.json"))
def test_spreadsheetbench(
    case: Any, books: Any, skill_agent: Any, rollout: Any, tmp_path: Any
) -> None:
    preview = [
        f"{sheet.title}!{row[0].coordinate}: {[cell.value for cell in row]}"
        for sheet in openpyxl.load_workbook(books[0][0])
        for row in sheet.iter_rows(max_row=5)
    ]
    prompt = [case["instruction"], f"Cells: {case['answer_position']}", *preview, ASK]
    code = re.search(r"```(?:python)?\n(.*?)```", skill_agent("\n\n".join(prompt)), re.DOTALL)
    assert code, "the reply has no ```python block"
    faults = [fault(code[1], a, b, tmp_path / "out.xlsx", case) for a, b in books]
    rollout.score(faults.count("") / len(books))
    assert not any(faults), next(filter(None, faults))


def fault(code: str, initial: Any, golden: Any, out: Any, case: Any) -> str:
    """Run the script on one workbook and return the first difference, or nothing."""
    out.unlink(missing_ok=True)
    script = f"INPUT_PATH, OUTPUT_PATH = {str(initial)!r}, {str(out)!r}\n{code}"
    command = [sys.executable, "-I", "-"]
    try:
        done = subprocess.run(
            command, input=script, capture_output=True, text=True, timeout=600, env={}, check=False
        )
    except subprocess.TimeoutExpired:
        return "the script did not end within 600 seconds"
    if done.returncode or not out.exists():
        return f"the script failed or saved nothing: {done.stderr[-500:]}"
    try:
        books = [openpyxl.load_workbook(path, data_only=True) for path in (golden, out)]
        wanted, given = (cells(book, case["answer_position"]) for book in books)
    except Exception as error:  # whatever the script may have written
        return f"the saved workbook cannot be read: {error}"
    pairs = zip(wanted, given, strict=True)
    wrong = (f"{w[0]}: expected {w[1]!r}, got {g[1]!r}" for w, g in pairs if w != g)
    return next(wrong, "")
